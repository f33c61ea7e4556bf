"""The quantization of `aici_engine.model.quantize`, from tensors to tensors."""

import torch

from aici_engine.model import quantize
from aici_engine.model.torch_tensors import to_numpy


def quantize_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = map(torch.from_numpy, quantize.quantize_int8(to_numpy(weight)))
    return codes, scales


def quantize_int4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    codes, scales, mins = map(torch.from_numpy, quantize.quantize_int4(to_numpy(weight)))
    return codes, scales, mins


def dequantize(codes: torch.Tensor, scales: torch.Tensor, mins: torch.Tensor | None = None) -> torch.Tensor:
    found = quantize.dequantize(to_numpy(codes), to_numpy(scales), None if mins is None else to_numpy(mins))
    return torch.from_numpy(found)
