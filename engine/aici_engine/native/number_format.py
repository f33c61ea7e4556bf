"""The number format of a model's weights."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aici_engine.arrays import as_floats
from aici_engine.config import Dtype
from aici_engine.model.quantize import dequantize, quantize_int4, quantize_int8

_LOSSLESS: Final = 1e-4
"""Largest relative error of a matrix that counts as lossless. Packing weights again loses less if the weights were
stored in the same format; rounding other weights loses a hundred times as much."""

Matrices = Callable[[], Iterable[npt.NDArray[Any]]]


def stored_dtype(settings: Mapping[str, Any]) -> Dtype:
    """bfloat16 if config.json says so, else float32: neither of bf16 and f16 holds all values of the other."""
    return "bfloat16" if settings.get("dtype", settings.get("torch_dtype")) == "bfloat16" else "float32"


def smallest_lossless(matrices: Matrices, dtype: Dtype) -> Dtype:
    """The smallest format without loss. Weights from a GGUF file lie on the grid of an integer format.

    `matrices` begins anew with each call; the first matrix with a loss ends a round.
    """
    if all(_is_lossless(matrix, dequantize(*quantize_int4(matrix))) for matrix in matrices()):
        return "int4"
    if all(_is_lossless(matrix, dequantize(*quantize_int8(matrix))) for matrix in matrices()):
        return "int8"
    return dtype


def _is_lossless(weight: npt.NDArray[Any], packed: npt.NDArray[np.float32]) -> bool:
    weight = as_floats(weight)
    return bool(np.linalg.norm(weight - packed) <= _LOSSLESS * np.linalg.norm(weight))
