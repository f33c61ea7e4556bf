"""The frequencies of rotary position embeddings (RoPE). Sources of the formulas: the papers that name the types."""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PLAIN_TYPES: Final = frozenset({"default", "linear", "llama3"})
"""The types that `inverse_frequencies` knows."""


@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def inverse_frequencies(rope: Mapping[str, Any], rotary_dim: int) -> npt.NDArray[np.float32]:
    """Return the inverse frequencies (rotary_dim / 2,) of the type in `rope_type`: default, linear or llama3.

    The power is computed in f64, because the f32 power of the C library differs between machines. Raises KeyError,
    TypeError, ValueError or ArithmeticError for settings that are missing, of another type, or not known; others may
    give frequencies that are not finite.
    """
    kind = rope.get("rope_type", rope.get("type", "default"))
    exponents = np.arange(0, rotary_dim, 2).astype(np.float32) / np.float32(rotary_dim)
    powers = np.power(float(rope["rope_theta"]), exponents.astype(np.float64)).astype(np.float32)
    plain = np.float32(1) / powers
    if kind == "default":
        return plain
    factor = np.float32(rope["factor"])
    if kind == "linear":
        return plain / factor
    if kind == "llama3":
        return _llama3(rope, plain, factor)
    raise ValueError(f"the RoPE type is {kind}")


def _llama3(rope: Mapping[str, Any], plain: npt.NDArray[np.float32], factor: np.float32) -> npt.NDArray[np.float32]:
    """Divide low frequencies by `factor`, keep high ones, and interpolate between them."""
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    context = float(rope["original_max_position_embeddings"])
    wavelengths = np.float32(2 * math.pi) / plain
    is_low, is_high = wavelengths > context / low, wavelengths < context / high
    share = (np.float32(context) / wavelengths - np.float32(low)) / np.float32(high - low)
    between = (np.float32(1) - share) * plain / factor + share * plain
    scaled = np.where(is_low, plain / factor, np.where(is_high, plain, between))
    return scaled.astype(np.float32)
