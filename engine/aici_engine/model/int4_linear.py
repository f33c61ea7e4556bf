"""Linear layers with int4 weights, computed by torch's own kernels on a GPU."""

from typing import Any, Final

import torch

from aici_base.errors import UsageError
from aici_engine.model.quantize import GROUP, quantize_int4
from aici_engine.model.torch_tensors import to_numpy

_MIDDLE: Final = 8
"""torch's kernels count from the middle of the sixteen codes: weight = (code - 8) * scale + zero."""
_ROWS: Final = 8
_TILE: Final = 16
_TILES: Final = (8, 4, 2)


class Int4Linear(torch.nn.Module):
    """A linear layer in bf16 with int4 weights, in groups of 32 along a row, as the CPU's kernels have them.

    `weight` (N, K) in bf16 or f32, and `bias` (N,), are packed once, on `device`. Scales and zeros are bf16.
    """

    packed: torch.Tensor
    pairs: torch.Tensor

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, device: torch.device) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        codes, scales, mins = quantize_int4(to_numpy(weight))
        scale, least = (torch.from_numpy(each).float() for each in (scales, mins))
        pairs = torch.stack([scale.T, (least + _MIDDLE * scale).T], dim=-1)  # (K / 32, N, 2)
        self.register_buffer("pairs", pairs.bfloat16().contiguous().to(device), persistent=False)
        self.register_buffer("packed", _packed(torch.from_numpy(codes).to(device)), persistent=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias.bfloat16().to(device), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., K) to (..., N) in bf16."""
        rows = x.reshape(-1, self.in_features)
        multiply = torch._weight_int4pack_mm if rows.is_cuda else torch._weight_int4pack_mm_for_cpu
        out: torch.Tensor = multiply(rows, self.packed, GROUP, self.pairs)
        return (out if self.bias is None else out + self.bias).view(*x.shape[:-1], self.out_features)


def use_int4(module: Any, device: torch.device) -> None:
    """Replace the linear layers of a transformers model, but not the head, and move the model to `device`.

    Layers of a size beyond torch's kernels stay bf16, as do embedding and head. Raises UsageError if no layer can be
    packed.
    """
    head = module.get_output_embeddings()
    num_packed = 0
    for parent in list(module.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, torch.nn.Linear) and part is not head and _suits(part.weight):
                setattr(parent, name, Int4Linear(part.weight.data, part.bias, device))
                num_packed += 1
    if not num_packed:
        raise UsageError(
            f"{type(module).__name__} has no layer that torch's int4 kernels can compute",
            hint="use dtype bfloat16, or device cpu",
            param="dtype",
        )
    module.to(device)


def _suits(weight: torch.Tensor) -> bool:
    rows, columns = weight.shape
    return rows % _ROWS == 0 and columns % (_TILES[-1] * _TILE) == 0


def _packed(codes: torch.Tensor) -> torch.Tensor:
    """Return codes (N, K) of u8 in the order of torch's kernels."""
    tiles = next(each for each in _TILES if codes.shape[1] % (each * _TILE) == 0)
    if not codes.is_cuda:
        return torch._convert_weight_to_int4pack_for_cpu(codes.int(), tiles)
    return torch._convert_weight_to_int4pack(codes[:, ::2] << 4 | codes[:, 1::2], tiles)
