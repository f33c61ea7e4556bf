"""Model folders with random weights, for benchmarks of architectures without a download."""

import json
import shutil
from pathlib import Path
from typing import Final

RANDOM_MODELS: Final = ("llama", "mistral", "qwen2", "qwen3")


def random_model(arch: str, *, like: Path, out: Path) -> Path:
    """Return a model folder with random weights and the dimensions of Qwen2.5-0.5B, with the tokenizer of `like`.

    The text of the model is noise; the speed is real.
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
