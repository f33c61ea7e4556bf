"""Models for contestants: the GGUF that llama.cpp's quantizer starts from, and folders with random weights.

A GGUF made here has no vocabulary: contestants are given token ids. The names of tensors are those of llama.cpp's
gguf-py, the layout of rotary heads that of its converter from Hugging Face folders.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from aici_cli.bench.engines.process import ContestantError

RANDOM_MODELS = ("llama", "mistral", "qwen2", "qwen3")


def write_gguf(model: Path, out: Path) -> None:
    """In f32. Raises ContestantError for an architecture other than Llama, Qwen2 and Qwen3."""
    import gguf
    import numpy as np
    from safetensors import safe_open

    config = json.loads((model / "config.json").read_bytes())
    arch = config["model_type"]
    kind = {"llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
            "qwen3": gguf.MODEL_ARCH.QWEN3}.get(arch)  # fmt: skip
    if kind is None:
        raise ContestantError(f"no GGUF can be made here of a model of type {arch}")
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    part = out.with_name(out.name + ".part")
    writer = gguf.GGUFWriter(part, gguf.MODEL_ARCH_NAMES[kind])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(_theta(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  it is no mapping
                data = tensors.get_tensor(name).float().numpy()
                for part_name, count in (("q_proj", heads), ("k_proj", kv_heads)):
                    if kind is gguf.MODEL_ARCH.LLAMA and part_name in name:
                        data = data.reshape(count, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(data.shape)
                target = names.get_name(name, try_suffixes=(".weight", ".bias"))
                if target is None:
                    raise ContestantError(f"no GGUF can be made here of a model with a tensor {name}")
                writer.add_tensor(target, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, out)


def _theta(config: dict[str, Any]) -> float:
    return float((config.get("rope_parameters") or config).get("rope_theta", 10000.0))


def random_model(arch: str, *, like: Path, out: Path) -> Path:
    """A model folder of the shape of Qwen2.5-0.5B with random weights; vocabulary and tokenizer are those of `like`.

    What it writes means nothing, how fast is real.
    """
    if (out / "config.json").is_file():
        return out
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    vocab_size = json.loads((like / "config.json").read_bytes())["vocab_size"]
    config = AutoConfig.for_model(
        arch, vocab_size=vocab_size, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, head_dim=64,
        num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=8192, tie_word_embeddings=True,
        use_sliding_window=False, sliding_window=None, bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    part = out.with_name(out.name + ".part")
    AutoModelForCausalLM.from_config(config).save_pretrained(part)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(like / file, part)
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    return out
