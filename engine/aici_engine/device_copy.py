"""From the host's memory to a device's."""

from typing import Any

import numpy as np
import torch


def copy_to_device(array: np.ndarray[Any, np.dtype[Any]], device: torch.device) -> torch.Tensor:
    """Waits for nothing that the device does. On the CPU the tensor shares the array's memory."""
    tensor = torch.from_numpy(array)
    # From memory that is not pinned, a copy waits until a GPU has done all that it was told before.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
