"""Copies from host memory to a device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def copy_to_device(array: np.ndarray[Any, np.dtype[Any]], device: torch.device) -> torch.Tensor:
    """Return `array` as a tensor on `device`, without a wait for the device. On the CPU the tensor shares the
    memory."""
    tensor = torch.from_numpy(array)
    # A copy from unpinned memory would wait until the GPU has done all earlier work.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class MaskCopy:
    """Copies masks to a device beside its other work: a forward pass that was begun before goes on meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, masks: Sequence[npt.NDArray[np.uint8]]) -> torch.Tensor:
        """Return the masks (R, bytes), for work that the device is told from now on. All have the same length."""
        if self._stream is None:
            return copy_to_device(np.stack(masks), self._device)
        here = torch.empty(len(masks), len(masks[0]), dtype=torch.uint8, pin_memory=True)
        np.stack(masks, out=here.numpy())
        with torch.cuda.stream(self._stream):
            there = here.to(self._device, non_blocking=True)
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        there.record_stream(current)
        return there
