"""The device that runs the model: the CPU, or a GPU that torch can use."""

import ctypes
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal

from aici_base.errors import UsageError
from aici_engine.cache.memory import available_bytes
from aici_engine.config import EngineConfig
from aici_engine.extras import needed_for

CPU_PAGE: Final = 16
GPU_PAGE: Final = 256
"""Tokens. FlashAttention 2 requires a multiple of 256."""
_CUDA_DRIVER: Final = "libcuda.so.1"
_ROCM_DRIVER: Final = "/dev/kfd"


@dataclass(frozen=True, slots=True)
class ComputeDevice:
    """A device by torch's name, with the page size of its KV cache in tokens."""

    device: Literal["cpu", "cuda"]
    page_size: int

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def free_bytes(self) -> int:
        """Free memory of the device, in bytes."""
        if self.on_cpu:
            return available_bytes()
        import torch

        return torch.cuda.mem_get_info(self.device)[0]


def has_gpu() -> bool:
    """Whether torch sees a GPU. torch is imported only on a machine with a driver of a GPU: the import takes long."""
    if not _has_driver() or find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _has_driver() -> bool:
    """Whether the driver of NVIDIA or AMD is installed: torch's own first question."""
    try:
        ctypes.CDLL(_CUDA_DRIVER)
    except OSError:
        return os.path.exists(_ROCM_DRIVER)
    return True


def choose_device(config: EngineConfig, *, has_gpu: bool) -> ComputeDevice:
    """Choose the GPU if the configuration allows a GPU, else the CPU. int4 weights need a configuration with `cuda`.

    Raises UsageError if the configuration asks for a GPU and torch sees no GPU.
    """
    if config.device == "cuda" and not has_gpu:
        with needed_for("the device cuda"):
            import torch

        version = torch.version.cuda
        raise UsageError(
            "device cuda was asked for, but torch sees no GPU",
            hint=f"torch {torch.__version__} was built "
            + (f"for CUDA {version}: does nvidia-smi list a GPU?" if version else "for the CPU alone: install another"),
        )
    fits = config.device == "cuda" or config.dtype not in ("int8", "int4")
    is_gpu = has_gpu and config.device != "cpu" and fits
    return ComputeDevice("cuda" if is_gpu else "cpu", config.page_size or (GPU_PAGE if is_gpu else CPU_PAGE))
