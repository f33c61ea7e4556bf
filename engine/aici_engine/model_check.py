"""Bounds on the sizes in config.json, which may come from anywhere: a size that no model has would take all memory or
time, or fail late without a name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aici_base.errors import UsageError
from aici_engine.model_files import read_settings

_HINT: Final = "the file is damaged, or made to do harm: use the publisher's own"
_POSITIONS, _LAYERS, _WIDTH, _HEADS, _VOCABULARY = 1 << 27, 1 << 10, 1 << 20, 1 << 14, 1 << 24
_LARGEST: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length"), _POSITIONS
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), _LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "intermediate_size", "n_inner", "ffn_dim"), _WIDTH),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head", "head_dim"), _HEADS),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), _HEADS),
    "vocab_size": _VOCABULARY,
}
"""The largest value of a setting: about ten times the value of the largest known models."""
_LEAST_NUMBERS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"), 0.0),
    "rope_theta": 1.0,
}
"""The least value of settings that need not be whole numbers."""
LARGEST_NUMBER: Final = 1e30
"""The largest value of these settings."""


def read_model_config(folder: Path) -> dict[str, Any]:
    """Return config.json. Raises UsageError for a bad file, and for sizes that no model has."""
    path = folder / "config.json"
    settings = read_settings(path)
    for part in (settings, *(value for name, value in settings.items() if name.endswith("_config"))):
        if isinstance(part, dict):
            check_sizes(path, part)
    return settings


def check_sizes(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a size in the settings of `path` that no model has."""
    for name, largest in _LARGEST.items():
        values = settings.get(name)
        for value in values if isinstance(values, list) else [values]:
            if value is None:
                continue
            # A model without layers has an error of its own.
            smallest = 0 if name.endswith(("experts", "layers")) else 1
            if type(value) is not int or not smallest <= value <= largest:
                shown = str(value)[:40]
                raise UsageError(
                    f"{path}: {name} is {shown}, and must be a whole number from {smallest} to {largest}", hint=_HINT
                )
    for name, least in _LEAST_NUMBERS.items():
        values = settings.get(name)
        for value in values if isinstance(values, list) else [values]:
            if value is not None and not (type(value) in (int, float) and least <= value <= LARGEST_NUMBER):
                shown = str(value)[:40]
                raise UsageError(
                    f"{path}: {name} is {shown}, and must be a number from {least:g} to {LARGEST_NUMBER:g}", hint=_HINT
                )
