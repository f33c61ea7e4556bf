"""Weight matrices in the layout of the kernels (`src/native.h`): panels of sixteen rows."""

from dataclasses import dataclass

import torch

from aici_engine.model.quantize import GROUP, quantize_int4, quantize_int8
from aici_engine.native.bindings import CMatrix, Format

LANES = 16


@dataclass(frozen=True, slots=True)
class Matrix:
    """`tensors` own the memory that `c` points to."""

    c: CMatrix
    tensors: tuple[torch.Tensor, ...]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)


def pack(weight: torch.Tensor, form: Format, bias: torch.Tensor | None = None) -> Matrix:
    """`weight` (N, K), `bias` (N,): outputs by inputs, as torch's linear layers have them. K is a multiple of 32."""
    columns = weight.shape[1]
    weight = _whole(weight.detach().float())
    scales = minimums = None
    if form is Format.INT8:
        codes, scales = quantize_int8(weight)
        values = _bytes((codes.to(torch.int16) + 128).to(torch.uint8))
    elif form is Format.INT4:
        codes, scales, minimums = quantize_int4(weight)
        fours = _bytes(codes)  # (P, groups, 8, 16, 4)
        values = fours[:, :, 0::2] | fours[:, :, 1::2] << 4
    elif form is Format.BF16:
        values = weight.bfloat16().view(-1, LANES, columns // 2, 2).transpose(1, 2)
    else:
        values = weight.view(-1, LANES, columns).transpose(1, 2)
    blocks = (each.view(-1, LANES, columns // GROUP).transpose(1, 2) for each in (scales, minimums) if each is not None)
    tensors = [each.contiguous() for each in (values, *blocks)]
    if bias is not None:
        bias = _whole(bias.detach().float()[:, None])[:, 0].contiguous()
    at = [tensor.data_ptr() for tensor in tensors] + [None] * (3 - len(tensors))
    c = CMatrix(form, weight.shape[0], columns, *at, None if bias is None else bias.data_ptr())
    return Matrix(c, (*tensors, *(() if bias is None else (bias,))))


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """Zeros to a multiple of sixteen rows."""
    return torch.nn.functional.pad(weight, (0, 0, 0, -len(weight) % LANES))


def _bytes(codes: torch.Tensor) -> torch.Tensor:
    """(N, K) to (panels, groups, 8, 16, 4): four columns of sixteen rows stand together."""
    columns = codes.shape[1]
    return codes.view(-1, LANES, columns // GROUP, 8, 4).permute(0, 2, 3, 1, 4)
