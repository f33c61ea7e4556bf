"""Weight matrices in the layout of the kernels: panels of sixteen rows (`src/native.h`)."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from aici_engine.arrays import BF16_BITS, Array, address_of, as_bf16, as_floats
from aici_engine.model.quantize import GROUP, quantize_int4, quantize_int8
from aici_engine.native.bindings import CMatrix, Format

LANES: Final = 16
_BF16_EXPONENT: Final = 0x7F80

ArrayKind: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of an array."""


def pack(weight: npt.NDArray[Any], form: Format, bias: npt.NDArray[Any] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Pack `weight` (N, K) and `bias` (N,), outputs by inputs as in torch. K must be a multiple of 32. uint16 means the
    bits of bf16.

    Returns the arrays of the packed matrix: `values`, and `scales`, `minimums` and `bias` if present.
    """
    columns = weight.shape[1]
    weight = _whole(weight)
    parts: dict[str, npt.NDArray[Any]] = {}
    if form is Format.INT8:
        codes, scales = quantize_int8(weight)
        parts["values"] = _fours((codes.astype(np.int16) + 128).astype(np.uint8))
        parts["scales"] = _panels(scales)
    elif form is Format.INT4:
        four_bits, scales, minimums = quantize_int4(weight)
        fours = _fours(four_bits)
        parts["values"] = fours[:, :, 0::2] | fours[:, :, 1::2] << 4
        parts |= {"scales": _panels(scales), "minimums": _panels(minimums)}
    elif form is Format.BF16:
        bits = as_bf16(_without_subnormal(weight))
        parts["values"] = bits.reshape(-1, LANES, columns // 2, 2).transpose(0, 2, 1, 3)
    else:
        parts["values"] = _panels(as_floats(weight))
    if bias is not None:
        parts["bias"] = _whole(as_floats(bias)[:, None])[:, 0]
    return {name: np.ascontiguousarray(part) for name, part in parts.items()}


def _without_subnormal(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make numbers below the least normal bf16 0: processors with bf16 instructions flush subnormal numbers."""
    if weight.dtype == BF16_BITS:
        return np.where(weight & _BF16_EXPONENT, weight, np.uint16(0))
    weight = as_floats(weight)
    return np.where(np.abs(weight) < np.finfo(np.float32).tiny, np.float32(0), weight)


def shapes(rows: int, columns: int, form: Format) -> dict[str, ArrayKind]:
    """Return type and shape of the arrays of a packed matrix without bias. `rows` is rounded up to a multiple of 16;
    `columns` is a multiple of 32."""
    panels, groups = -(-rows // LANES), columns // GROUP
    if form is Format.F32:
        return {"values": (np.dtype(np.float32), (panels, columns, LANES))}
    if form is Format.BF16:
        return {"values": (BF16_BITS, (panels, columns // 2, LANES, 2))}
    fours = 8 if form is Format.INT8 else 4
    vectors = ("scales",) if form is Format.INT8 else ("scales", "minimums")
    values: dict[str, ArrayKind] = {"values": (np.dtype(np.uint8), (panels, groups, fours, LANES, 4))}
    return values | {name: (np.dtype(np.float16), (panels, groups, LANES)) for name in vectors}


def blank(rows: int, columns: int, form: Format) -> dict[str, npt.NDArray[Any]]:
    """Return a packed matrix of zero bytes, without the work of packing. `rows`, `columns`: multiples of 16 and 32."""
    return {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes(rows, columns, form).items()}


def matrix(parts: Mapping[str, Array], form: Format) -> CMatrix:
    """Build the C structure. Its pointers refer to `parts`, which must outlive the structure."""
    values = parts["values"]
    columns = values.shape[1] * {Format.F32: 1, Format.BF16: 2, Format.INT8: GROUP, Format.INT4: GROUP}[form]
    at = {name: address_of(part) for name, part in parts.items()}
    rest = (at.get(name) for name in ("scales", "minimums", "bias"))
    return CMatrix(form, len(values) * LANES, columns, at["values"], *rest)


def _whole(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Pad with zeros to a multiple of sixteen rows."""
    missing = -len(weight) % LANES
    return np.pad(weight, ((0, missing), (0, 0))) if missing else weight


def _panels(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(N, C) to (panels, C, 16)."""
    return numbers.reshape(-1, LANES, numbers.shape[1]).transpose(0, 2, 1)


def _fours(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(N, K) to (panels, groups, 8, 16, 4): four columns of sixteen rows are adjacent."""
    return codes.reshape(-1, LANES, codes.shape[1] // GROUP, 8, 4).transpose(0, 2, 3, 1, 4)
