"""The device that runs the model: the CPU, or a GPU that torch can use."""

from dataclasses import dataclass
from typing import Final

import torch

from aici_base.errors import UsageError
from aici_engine.cache.memory import available_bytes
from aici_engine.config import EngineConfig
from aici_engine.model import flash_attention

CPU_PAGE: Final = 16


@dataclass(frozen=True, slots=True)
class ComputeDevice:
    """A torch device, with the page size of its KV cache in tokens."""

    device: torch.device
    page_size: int

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    def free_bytes(self) -> int:
        """Free memory of the device, in bytes."""
        return available_bytes() if self.on_cpu else torch.cuda.mem_get_info(self.device)[0]


def choose_device(config: EngineConfig, *, has_gpu: bool) -> ComputeDevice:
    """Choose the GPU if the configuration allows a GPU, else the CPU. int8 and int4 weights run on the CPU.

    Raises UsageError if the configuration asks for a GPU and torch sees no GPU.
    """
    if config.device == "cuda" and not has_gpu:
        version = torch.version.cuda
        raise UsageError(
            "device cuda was asked for, but torch sees no GPU",
            hint=f"torch {torch.__version__} was built "
            + (f"for CUDA {version}: does nvidia-smi list a GPU?" if version else "for the CPU alone: install another"),
        )
    is_gpu = has_gpu and config.device != "cpu" and config.dtype not in ("int8", "int4")
    return ComputeDevice(
        torch.device("cuda" if is_gpu else "cpu"),
        config.page_size or (flash_attention.PAGE_SIZE if is_gpu else CPU_PAGE),
    )
