"""Copies from host memory to a device."""

from typing import Any

import numpy as np
import torch


def copy_to_device(array: np.ndarray[Any, np.dtype[Any]], device: torch.device) -> torch.Tensor:
    """Return `array` as a tensor on `device`, without a wait for the device. On the CPU the tensor shares the
    memory."""
    tensor = torch.from_numpy(array)
    # A copy from unpinned memory would wait until the GPU has done all earlier work.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
