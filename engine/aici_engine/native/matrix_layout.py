"""Weight matrices in the layout of the kernels: panels of sixteen rows (`src/native.h`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aici_engine.arrays import BF16_BITS, Array, address_of
from aici_engine.native.bindings import CMatrix, Format

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

LANES: Final = 16
GROUP: Final = 32
"""Integer weights of a row that share a scale."""


def pack(weight: "torch.Tensor", form: Format, bias: "torch.Tensor | None" = None) -> "dict[str, torch.Tensor]":
    """Pack `weight` (N, K) and `bias` (N,), outputs by inputs as in torch. K must be a multiple of 32.

    Returns the tensors of the packed matrix: `values`, and `scales`, `minimums` and `bias` if present.
    """
    import torch

    from aici_engine.model.quantize import quantize_int4, quantize_int8

    columns = weight.shape[1]
    weight = _whole(weight.detach())
    if form is not Format.BF16:  # weights in bf16 need no room as floats
        weight = weight.float()
    parts: dict[str, torch.Tensor] = {}
    if form is Format.INT8:
        codes, scales = quantize_int8(weight)
        parts["values"] = _fours((codes.to(torch.int16) + 128).to(torch.uint8))
        parts["scales"] = _panels(scales)
    elif form is Format.INT4:
        codes, scales, minimums = quantize_int4(weight)
        fours = _fours(codes)
        parts["values"] = fours[:, :, 0::2] | fours[:, :, 1::2] << 4
        parts |= {"scales": _panels(scales), "minimums": _panels(minimums)}
    elif form is Format.BF16:
        # Smaller numbers become 0: processors with bf16 instructions flush subnormal numbers.
        normal = weight.masked_fill(weight.abs() < torch.finfo(torch.bfloat16).tiny, 0)
        parts["values"] = normal.bfloat16().view(-1, LANES, columns // 2, 2).transpose(1, 2)
    else:
        parts["values"] = _panels(weight)
    if bias is not None:
        parts["bias"] = _whole(bias.detach().float()[:, None])[:, 0]
    return {name: part.contiguous() for name, part in parts.items()}


def blank(rows: int, columns: int, form: Format) -> "dict[str, npt.NDArray[Any]]":
    """Return a packed matrix of zero bytes, without the work of packing. `rows`, `columns`: multiples of 16 and 32."""
    panels, groups = rows // LANES, columns // GROUP
    if form is Format.F32:
        return {"values": np.zeros((panels, columns, LANES), np.float32)}
    if form is Format.BF16:
        return {"values": np.zeros((panels, columns // 2, LANES, 2), BF16_BITS)}
    vectors = {name: np.zeros((panels, groups, LANES), np.float16) for name in ("scales", "minimums")}
    values = np.zeros((panels, groups, 8, LANES, 4), np.uint8)
    if form is Format.INT8:
        return {"values": values, "scales": vectors["scales"]}
    return {"values": np.ascontiguousarray(values[:, :, 0::2]), **vectors}


def matrix(parts: Mapping[str, Array], form: Format) -> CMatrix:
    """Build the C structure. Its pointers refer to `parts`, which must outlive the structure."""
    values = parts["values"]
    columns = values.shape[1] * {Format.F32: 1, Format.BF16: 2, Format.INT8: GROUP, Format.INT4: GROUP}[form]
    at = {name: address_of(part) for name, part in parts.items()}
    rest = (at.get(name) for name in ("scales", "minimums", "bias"))
    return CMatrix(form, len(values) * LANES, columns, at["values"], *rest)


def _whole(weight: "torch.Tensor") -> "torch.Tensor":
    """Pad with zeros to a multiple of sixteen rows."""
    import torch

    missing = -len(weight) % LANES
    return torch.nn.functional.pad(weight, (0, 0, 0, missing)) if missing else weight


def _panels(numbers: "torch.Tensor") -> "torch.Tensor":
    """(N, C) to (panels, C, 16)."""
    return numbers.view(-1, LANES, numbers.shape[1]).transpose(1, 2)


def _fours(codes: "torch.Tensor") -> "torch.Tensor":
    """(N, K) to (panels, groups, 8, 16, 4): four columns of sixteen rows are adjacent."""
    return codes.view(-1, LANES, codes.shape[1] // GROUP, 8, 4).permute(0, 2, 3, 1, 4)
