"""Complete a configuration with the GGUF metadata that transformers ignores.

Without them, a model would load and compute slightly wrong logits. Sources of the keys: ggml's `gguf.md`, and
llama.cpp's converters.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

_HEAD_DIM: Final = {"attention.key_length": "head_dim"}
_SOFTCAPS: Final = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "llama": _HEAD_DIM,
    "qwen3": _HEAD_DIM,
    "gemma2": _HEAD_DIM | _SOFTCAPS,
    "gemma3": _HEAD_DIM,
    "phi3": {"attention.sliding_window": "sliding_window"},
    "gpt2": {"context_length": "n_positions"},
}
_SCALINGS: Final = {"none", "linear", "yarn"}
_SCALING_KEYS: Final = {"type", "factor", "original_context_length", "finetuned"}
_LLAMA3: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""The RoPE scaling of Llama 3.1 and later. GGUF files contain the resulting factors of the frequencies instead."""
ROPE_TENSORS: Final = ("rope_factors_long", "rope_factors_short", "rope_freqs")
"""Tensors with factors of the RoPE frequencies: not parameters of the model."""
_FULL_ROTARY: Final = {"llama", "qwen2", "qwen3", "gemma2", "gemma3"}
_SCALED_BY_HIDDEN_SIZE: Final = {("gemma2", 46), ("gemma3", 62)}
"""(architecture, number of layers) of the two 27 B models: queries are scaled by hidden_size / num_heads, not head_dim.
No metadata key says so."""


def complete_config(config: Any, metadata: Mapping[str, Any], path: Path) -> None:
    """Complete `config`, the result of transformers for `metadata`. Raises ValueError for an unsupported setting."""
    arch = str(metadata["general.architecture"])
    own = {key.removeprefix(f"{arch}."): value for key, value in metadata.items() if key.startswith(f"{arch}.")}
    for key, name in _KEYS.get(arch, {}).items():
        if key in own:
            setattr(config, name, own[key])
    if arch in ("gemma2", "gemma3"):
        by_hidden_size = (arch, config.num_hidden_layers) in _SCALED_BY_HIDDEN_SIZE
        heads = config.hidden_size // config.num_attention_heads
        config.query_pre_attn_scalar = heads if by_hidden_size else config.head_dim
    if arch == "phi3":  # some Phi-3 models rotate only a part of every head
        heads = config.hidden_size // config.num_attention_heads
        config.rope_parameters["partial_rotary_factor"] = own.get("rope.dimension_count", heads) / heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if arch in _FULL_ROTARY and own.get("rope.dimension_count", head_dim) != head_dim:
        raise ValueError(f"partial rotary embeddings are not supported for {arch}")
    if "attention.sliding_window" in own and not hasattr(config, "sliding_window"):
        raise ValueError(f"sliding windows are not supported for {arch}")
    if arch != "gpt-oss":  # transformers reads the RoPE scaling of gpt-oss
        _set_rope_scaling(config, own)
    if (factors := _single_tensor(path, *ROPE_TENSORS)) is not None:
        _set_rope_factors(config, factors)


def _set_rope_scaling(config: Any, own: Mapping[str, Any]) -> None:
    prefix = "rope.scaling."
    scaling = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}
    kind = scaling.get("type", "none")
    if kind == "none":
        return
    unknown = sorted(set(scaling) - _SCALING_KEYS)
    if kind not in _SCALINGS or unknown or "factor" not in scaling:
        raise ValueError(f"RoPE scaling is not supported: {', '.join([str(kind), *unknown])}")
    found = {"rope_type": kind, "factor": float(scaling["factor"])}
    if kind == "yarn":
        found["original_max_position_embeddings"] = scaling["original_context_length"]
    # Layers with a sliding window are not scaled.
    config.rope_parameters.get("full_attention", config.rope_parameters).update(found)


def _set_rope_factors(config: Any, factors: torch.Tensor) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    plain = torch.arange(0, 2 * len(factors), 2) / (2 * len(factors))
    wanted = config.rope_parameters["rope_theta"] ** -plain / factors
    config.rope_parameters.update(rope_type="llama3", factor=float(factors.max()), **_LLAMA3)
    got, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    if got.shape != wanted.shape or not torch.allclose(got, wanted, rtol=1e-3):
        raise ValueError("the RoPE factors are not those of Llama 3")


def _single_tensor(path: Path, *stems: str) -> torch.Tensor | None:
    """Return the tensor with one of the names `stems`, or None. Raises ValueError if the file has several."""
    from gguf import GGUFReader

    found = [each for each in GGUFReader(path).tensors if each.name.removesuffix(".weight") in stems]
    if not found:
        return None
    if len(found) > 1:
        raise ValueError(f"RoPE scaling by both {found[0].name} and {found[1].name} is not supported")
    return torch.tensor(found[0].data).float()
