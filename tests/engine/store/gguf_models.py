"""GGUF files of tiny random models, in the layout of llama.cpp's converters."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.engine.support import alphabet

_METADATA = {
    "max_position_embeddings": "context_length", "num_hidden_layers": "block_count", "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "head_dim": "attention.key_length", "sliding_window": "attention.sliding_window",
    "n_ctx": "context_length", "n_positions": "context_length", "n_layer": "block_count", "n_embd": "embedding_length",
    "n_head": "attention.head_count", "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip


def write_gguf(
    path: Path,
    module: Any,
    arch: str,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, Any] | None = None,
) -> None:
    """Write `model` to a GGUF file.

    `kind`: type of the matrices. `metadata` (keys without the architecture) and `tensors` are added.
    """
    config = module.config.to_dict()
    writer = gguf.GGUFWriter(path, arch)
    given = {_METADATA[name]: value for name, value in config.items() if name in _METADATA and value is not None}
    for name, value in (given | (metadata or {})).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"{arch}.{name}", value)
    _write_tokenizer(writer, config["vocab_size"])
    [number] = [number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch]
    names = gguf.get_tensor_name_map(number, module.config.num_hidden_layers)
    for name, tensor in module.state_dict().items():
        stem, _, end = name.rpartition(".")
        if name == "lm_head.weight" and module.config.tie_word_embeddings:
            continue
        target = f"{names.get_name(stem)}.{end}"
        weight = _laid_out(target, tensor.float().numpy(), arch, config)
        quantized = weight.ndim == 2 and kind is not gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(weight, kind) if quantized else weight
        writer.add_tensor(target, data, raw_dtype=kind if quantized else None)
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _laid_out(name: str, weight: Any, arch: str, config: dict[str, Any]) -> Any:
    if arch == "llama" and (".attn_q." in name or ".attn_k." in name):
        heads = config["num_attention_heads" if ".attn_q." in name else "num_key_value_heads"]
        halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
        weight = halves.swapaxes(1, 2).reshape(weight.shape)
    if arch.startswith("gemma") and "norm.weight" in name:
        weight = weight + 1
    if arch == "gpt2" and name.split(".")[-2] in ("attn_qkv", "attn_output", "ffn_up", "ffn_down"):
        weight = weight.T
    return np.ascontiguousarray(weight)


def _write_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    """A vocabulary of the last bytes, one pair of bytes, and EOS."""
    chars = [char for _, char in sorted(alphabet().items())][2 - size :]
    tokens = [*chars, chars[0] + chars[1], "<|endoftext|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (size - 1) + [3])
    writer.add_token_merges([f"{chars[0]} {chars[1]}"])
    writer.add_eos_token_id(size - 1)
    writer.add_pad_token_id(size - 1)
