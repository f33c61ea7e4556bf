"""Fusion by torch.compile: runs of small operations become one kernel of the GPU."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

import torch

_COMPILER: Final = "triton"
Function = TypeVar("Function", bound=Callable[..., Any])


def can_fuse(device: torch.device) -> bool:
    """Whether torch has a compiler for the device: on NVIDIA's and AMD's GPUs, and not on the CPU, where the C
    compiler of the machine would take minutes."""
    return device.type == "cuda" and find_spec(_COMPILER) is not None


def fused(function: Function, device: torch.device) -> Function:
    """Return `function` as one kernel or a few, compiled at the first call. Elsewhere than on a GPU, as it is."""
    if not can_fuse(device):
        return function
    prepare()
    compiled: Any = torch.compile(function, dynamic=True)
    return cast("Function", compiled)


def prepare() -> None:
    """Set torch's compiler for this process. Call before torch.compile."""
    # What cannot be compiled is called as it is: without a C compiler, say, which Triton needs.
    torch._dynamo.config.suppress_errors = True
    # The epsilon of a norm is a constant of its model.
    torch._dynamo.config.specialize_float = True
