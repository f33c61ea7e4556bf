"""Tensors of a model's files as torch has them."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from aici_engine.arrays import BF16_BITS

_TYPES: Final[Mapping[str, torch.dtype]] = {
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""The types that numpy lacks, by name in safetensors."""


def to_torch(array: npt.NDArray[Any], dtype: str) -> torch.Tensor:
    """Return the tensor with the memory of `array`, which a `TensorSource` has read. `dtype`: of its `TensorInfo`."""
    tensor = torch.from_numpy(array)
    return tensor.view(_TYPES[dtype]) if dtype in _TYPES else tensor


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the array with the memory of `tensor`, bf16 as its bits."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(BF16_BITS))
    return np.asarray(tensor.numpy())
