"""The weight formats int8 and int4: integers with a scale for every 32 weights of a row.

int8: weight = `code * scale`, codes from -127 to 127. int4: weight = `code * scale + min`, codes from 0 to 15. Scales
and minimums are f16; products and sums are f32. The formats equal GGUF's Q8_0 and Q4_1; GGUF's Q4_0 is int4 with a
scale that may be negative. Quantization first searches for the grid on which a group of weights lies, and rounds only
if the search fails. Weights of a GGUF file in a 4-bit or 8-bit format are therefore restored exactly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aici_engine.arrays import Array, as_floats

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]

GROUP: Final = 32
_SLAB: Final = 1 << 18
"""Weights that are processed at a time, so that intermediate arrays stay in the processor's cache."""
_ON_GRID: Final = 0.05
"""Largest RMS error, in grid steps, of weights on a grid. Rounding the grid to f16 causes less; weights without a grid
have 0.29."""
_SAMPLE: Final = 256


def is_grouped(weight: Array) -> bool:
    """Whether `weight` is a matrix with a multiple of 32 columns. Other arrays are not quantized."""
    return bool(weight.ndim == 2 and weight.shape[1] % GROUP == 0)


def quantize_int8(weight: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int8], Halves]:
    """Quantize `weight` (N, K) to codes (N, K) int8 and scales (N, K / 32) f16. uint16 means the bits of bf16."""
    codes = np.empty(weight.shape, np.int8)
    scales = np.empty((len(weight), weight.shape[1] // GROUP), np.float16)
    for rows, groups in _slabs(weight):
        scale = _halves(np.abs(groups).max(0) / np.float32(127))
        codes[rows] = _as_rows(_round(groups, scale, -127, 127), codes[rows])
        scales[rows] = scale.reshape(scales[rows].shape)
    return codes, scales


def quantize_int4(weight: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], Halves, Halves]:
    """Quantize `weight` (N, K) to codes (N, K) uint8 below 16, and scales and minimums (N, K / 32) f16.

    uint16 means the bits of bf16.
    """
    codes = np.empty(weight.shape, np.uint8)
    scales, mins = (np.empty((len(weight), weight.shape[1] // GROUP), np.float16) for _ in range(2))
    mend: Callable[[Grid], None] | None = None
    for rows, groups in _slabs(weight):
        grid = Grid.of(groups)
        if grid.error.any():
            mend = mend or (_search if _lies_on_grids(grid) else _refine)
            mend(grid)
        codes[rows] = _as_rows(grid.codes(), codes[rows])
        scales[rows] = grid.scale.reshape(scales[rows].shape)
        mins[rows] = grid.min.reshape(scales[rows].shape)
    return codes, scales, mins


def dequantize(codes: npt.NDArray[Any], scales: Halves, mins: Halves | None = None) -> Floats:
    """Return the weights (N, K) in f32."""
    weight = codes.reshape(len(codes), -1, GROUP) * scales.astype(np.float32)[..., None]
    if mins is not None:
        weight += mins.astype(np.float32)[..., None]
    return weight.reshape(codes.shape)


@dataclass(slots=True)
class Grid:
    """`groups` (32, G) f32, with the best grid so far for every group: scale and min (G,) f16, squared error (G,)."""

    groups: Floats
    scale: Halves
    min: Halves
    error: Floats

    @classmethod
    def of(cls, groups: Floats) -> "Grid":
        low, high = groups.min(0), groups.max(0)
        grid = cls(groups, _halves((high - low) / np.float32(15)), _halves(low), np.empty(0, np.float32))
        grid.error = grid.error_of(grid.scale, grid.min)
        return grid

    def codes(self) -> Floats:
        return _round(self.groups - self.min.astype(np.float32), self.scale, 0, 15)

    def offer(self, scale: Halves, minimum: Halves) -> None:
        """Take the new grid in the groups where the error becomes smaller."""
        error = self.error_of(scale, minimum)
        better = error < self.error
        self.error = np.where(better, error, self.error)
        self.scale = np.where(better, scale, self.scale)
        self.min = np.where(better, minimum, self.min)

    def error_of(self, scale: Halves, minimum: Halves) -> Floats:
        lowest = minimum.astype(np.float32)
        codes = _round(self.groups - lowest, scale, 0, 15)
        codes *= scale.astype(np.float32)
        codes += lowest
        codes -= self.groups
        codes *= codes
        error: Floats = codes.sum(0)
        return error

    def part(self, index: npt.NDArray[np.intp]) -> "Grid":
        return Grid(np.ascontiguousarray(self.groups[:, index]), self.scale[index], self.min[index], self.error[index])

    def put(self, index: npt.NDArray[np.intp], part: "Grid") -> None:
        self.scale[index], self.min[index], self.error[index] = part.scale, part.min, part.error


def _slabs(weight: npt.NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Yield slices of rows with the weights of the rows in groups: (32, rows * K / 32) in f32.

    The numbers of a group lie far apart, so that numpy computes many groups with one instruction.
    """
    if not is_grouped(weight):
        raise ValueError(f"a weight of shape {tuple(weight.shape)} has no rows of whole groups of {GROUP}")
    step = max(1, _SLAB // weight.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # weights that are no numbers stay so
        for first in range(0, len(weight), step):
            rows = slice(first, min(first + step, len(weight)))
            yield rows, np.ascontiguousarray(as_floats(weight[rows]).reshape(-1, GROUP).T)


def _as_rows(codes: Floats, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return codes (32, G) in the order and type of `like`."""
    return codes.T.astype(like.dtype).reshape(like.shape)


def _halves(numbers: Floats) -> Halves:
    return numbers.astype(np.float16)


def _round(groups: Floats, scale: Halves, low: int, high: int) -> Floats:
    """Return the codes as f32, in new memory. A scale of 0 gives 0."""
    step = scale.astype(np.float32)
    codes = groups / np.where(step == 0, np.float32(np.inf), step).astype(np.float32, copy=False)
    np.rint(codes, out=codes)
    found: Floats = np.clip(codes, np.float32(low), np.float32(high))
    return found


def _lies_on_grids(grid: Grid) -> bool:
    """Whether the weights were quantized before, in any format: more than half of a sample of groups lies on a grid."""
    inexact = grid.error.nonzero()[0]
    sample = grid.part(inexact[:: max(1, len(inexact) // _SAMPLE)])
    _search(sample)
    near = np.sqrt(sample.error / GROUP) < _ON_GRID * np.abs(sample.scale.astype(np.float32))
    return bool(near.mean() > 0.5)


def _search(grid: Grid) -> None:
    """Try all codes that the least and the greatest weight of a group could have.

    In most formats the least weight has code 0 or the greatest has code 15.
    """
    ends = [(steps, least) for least in range(16) for steps in range(15 - least, 0, -1)]
    which = grid.error.nonzero()[0]
    rest = grid.part(which)
    for steps, least in ends:
        low, high = rest.groups.min(0), rest.groups.max(0)
        scale = _halves((high - low) / np.float32(steps))
        rest.offer(scale, _halves(low - np.float32(least) * scale.astype(np.float32)))
        if not least:
            rest.offer(-scale, _halves(high))
        if (rest.error > 0).sum() < 0.8 * len(which):  # drop the groups with an exact grid
            grid.put(which, rest)
            which = grid.error.nonzero()[0]
            rest = grid.part(which)
            if not len(which):
                return
    grid.put(which, rest)


def _refine(grid: Grid) -> None:
    """Fit scale and minimum to the codes by least squares. Two rounds, because new scales change the codes."""
    for _ in range(2):
        codes = grid.codes()
        mean_code, mean = codes.mean(0), grid.groups.mean(0)
        spread = ((codes - mean_code) ** 2).sum(0)
        slope = ((codes - mean_code) * (grid.groups - mean)).sum(0) / np.maximum(spread, np.float32(1))
        grid.offer(_halves(slope), _halves(mean - slope * mean_code))
