"""What transformers leaves out of a GGUF file's metadata: without it a model would load, and answer a little wrongly.

The keys are those of ggml's `gguf.md`, and of what llama.cpp's converters write beside them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

_HEAD: Final = {"attention.key_length": "head_dim"}
_CAPS: Final = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "llama": _HEAD,
    "qwen3": _HEAD,
    "gemma2": _HEAD | _CAPS,
    "gemma3": _HEAD,
    "phi3": {"attention.sliding_window": "sliding_window"},
    "gpt2": {"context_length": "n_positions"},
}
_SCALINGS: Final = {"none", "linear", "yarn"}
_SCALING_KEYS: Final = {"type", "factor", "original_context_length", "finetuned"}
_LLAMA3: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Of all Llamas from 3.1 on. Files have the factors of the frequencies that come of it, and no numbers."""
ROTATION: Final = ("rope_factors_long", "rope_factors_short", "rope_freqs")
"""Tensors that are no weights."""
_TURNED_WHOLE: Final = {"llama", "qwen2", "qwen3", "gemma2", "gemma3"}
_SCALED_BY_WIDTH: Final = {("gemma2", 46), ("gemma3", 62)}
"""The two of 27 B, by their layers: queries are scaled by the width of the model over its heads. No key says so."""


def mend(config: Any, metadata: Mapping[str, Any], path: Path) -> None:
    """Change `config`, which transformers made of `metadata`. ValueError if it says what no model here can do."""
    arch = str(metadata["general.architecture"])
    own = {key.removeprefix(f"{arch}."): value for key, value in metadata.items() if key.startswith(f"{arch}.")}
    for key, name in _KEYS.get(arch, {}).items():
        if key in own:
            setattr(config, name, own[key])
    if arch in ("gemma2", "gemma3"):
        by_width = (arch, config.num_hidden_layers) in _SCALED_BY_WIDTH
        heads = config.hidden_size // config.num_attention_heads
        config.query_pre_attn_scalar = heads if by_width else config.head_dim
    if arch == "phi3":  # some of the family turn only a part of each head
        heads = config.hidden_size // config.num_attention_heads
        config.rope_parameters["partial_rotary_factor"] = own.get("rope.dimension_count", heads) / heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if arch in _TURNED_WHOLE and own.get("rope.dimension_count", width) != width:
        raise ValueError(f"it turns a part of each head only, which {arch} does not elsewhere")
    if "attention.sliding_window" in own and not hasattr(config, "sliding_window"):
        raise ValueError(f"it sees a window only, which {arch} does not elsewhere")
    if arch != "gpt-oss":  # whose rotation transformers does read
        _scale_rotation(config, own)
    if (factors := _tensors(path, *ROTATION)) is not None:
        _scale_frequencies(config, factors)


def _scale_rotation(config: Any, own: Mapping[str, Any]) -> None:
    prefix = "rope.scaling."
    scaling = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}
    kind = scaling.get("type", "none")
    if kind == "none":
        return
    unknown = sorted(set(scaling) - _SCALING_KEYS)
    if kind not in _SCALINGS or unknown or "factor" not in scaling:
        raise ValueError(f"its rotation is scaled in a way that is not known here: {kind}, {', '.join(unknown)}")
    found = {"rope_type": kind, "factor": float(scaling["factor"])}
    if kind == "yarn":
        found["original_max_position_embeddings"] = scaling["original_context_length"]
    # Layers that see a window only are not scaled.
    config.rope_parameters.get("full_attention", config.rope_parameters).update(found)


def _scale_frequencies(config: Any, factors: torch.Tensor) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    plain = torch.arange(0, 2 * len(factors), 2) / (2 * len(factors))
    wanted = config.rope_parameters["rope_theta"] ** -plain / factors
    config.rope_parameters.update(rope_type="llama3", factor=float(factors.max()), **_LLAMA3)
    got, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    if got.shape != wanted.shape or not torch.allclose(got, wanted, rtol=1e-3):
        raise ValueError("its frequencies of rotation are not those of Llama 3")


def _tensors(path: Path, *stems: str) -> torch.Tensor | None:
    """The only one of these, if it is there."""
    from gguf import GGUFReader

    found = [each for each in GGUFReader(path).tensors if each.name.removesuffix(".weight") in stems]
    if not found:
        return None
    if len(found) > 1:
        raise ValueError(f"its rotation is scaled by {found[0].name} and {found[1].name}, which is not known here")
    return torch.tensor(found[0].data).float()
