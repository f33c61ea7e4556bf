"""The weight formats int8 and int4: integers with a scale for every 32 weights of a row.

int8: weight = `code * scale`, codes from -127 to 127. int4: weight = `code * scale + min`, codes from 0 to 15. Scales
and minimums are f16; products and sums are f32. The formats equal GGUF's Q8_0 and Q4_1; GGUF's Q4_0 is int4 with a
scale that may be negative. Quantization first searches for the grid on which a group of weights lies, and rounds only
if the search fails. Weights of a GGUF file in a 4-bit or 8-bit format are therefore restored exactly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

GROUP: Final = 32
_SLAB: Final = 1 << 18
"""Weights that are processed at a time, so that intermediate tensors stay in the processor's cache."""
_ON_GRID: Final = 0.05
"""Largest RMS error, in grid steps, of weights on a grid. Rounding the grid to f16 causes less; weights without a grid
have 0.29."""
_SAMPLE: Final = 256


def is_grouped(weight: torch.Tensor) -> bool:
    """Whether `weight` is a matrix with a multiple of 32 columns. Other tensors are not quantized."""
    return weight.dim() == 2 and weight.shape[1] % GROUP == 0


def quantize_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize `weight` (N, K) to codes (N, K) int8 and scales (N, K / 32) f16."""
    codes = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight), weight.shape[1] // GROUP, dtype=torch.float16)
    for rows, groups in _slabs(weight):
        scale = (groups.abs().amax(-1, keepdim=True) / 127).half()
        codes[rows] = _round(groups, scale, -127, 127).flatten(1)
        scales[rows] = scale[..., 0]
    return codes, scales


def quantize_int4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantize `weight` (N, K) to codes (N, K) uint8 below 16, and scales and minimums (N, K / 32) f16."""
    codes = torch.empty(weight.shape, dtype=torch.uint8)
    scales, mins = (torch.empty(len(weight), weight.shape[1] // GROUP, dtype=torch.float16) for _ in range(2))
    mend: Callable[[Grid], None] | None = None
    for rows, groups in _slabs(weight):
        grid = Grid.of(groups.flatten(0, 1))
        if grid.error.any():
            mend = mend or (_search if _lies_on_grids(grid) else _refine)
            mend(grid)
        codes[rows] = grid.codes().view(len(groups), -1)
        scales[rows], mins[rows] = grid.scale.view(len(groups), -1), grid.min.view(len(groups), -1)
    return codes, scales, mins


def dequantize(codes: torch.Tensor, scales: torch.Tensor, mins: torch.Tensor | None = None) -> torch.Tensor:
    """Return the weights (N, K) in f32."""
    weight = codes.reshape(len(codes), -1, GROUP) * scales.float()[..., None]
    return (weight if mins is None else weight + mins.float()[..., None]).flatten(1)


def round_weights(module: Any, *, bits: int) -> None:
    """Replace the matrices of a transformers model by their quantized values, as floats.

    The result is the reference for the native kernels, and serves machines without kernels, at the speed of f32.
    Embedding and head are rounded to int8.
    """
    # Imported here: transformers is slow to import, and packing weights for the kernels does not need it.
    from transformers.pytorch_utils import Conv1D

    ends = [end.weight for end in (module.get_input_embeddings(), module.get_output_embeddings()) if end is not None]
    weights = {id(end): (end, 8, False) for end in ends}  # tied: one entry
    for part in module.modules():
        if isinstance(part, torch.nn.Linear | Conv1D):
            # A Conv1D is a Linear with a transposed weight.
            weights.setdefault(id(part.weight), (part.weight, bits, isinstance(part, Conv1D)))
    for weight, bits_here, is_transposed in weights.values():
        matrix = weight.data.T if is_transposed else weight.data
        if is_grouped(matrix):
            back = dequantize(*(quantize_int8(matrix) if bits_here == 8 else quantize_int4(matrix)))
            weight.data = (back.T if is_transposed else back).to(weight.dtype)


@dataclass(slots=True)
class Grid:
    """`groups` (G, 32) f32, with the best grid so far for every group: scale and min (G, 1) f16, squared error (G,)."""

    groups: torch.Tensor
    scale: torch.Tensor
    min: torch.Tensor
    error: torch.Tensor

    @classmethod
    def of(cls, groups: torch.Tensor) -> "Grid":
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        grid = cls(groups, ((high - low) / 15).half(), low.half(), torch.empty(0))
        grid.error = grid.error_of(grid.scale, grid.min)
        return grid

    def codes(self) -> torch.Tensor:
        return _round(self.groups - self.min.float(), self.scale, 0, 15)

    def offer(self, scale: torch.Tensor, minimum: torch.Tensor) -> None:
        """Take the new grid in the groups where the error becomes smaller."""
        error = self.error_of(scale, minimum)
        better = error < self.error
        self.error = torch.where(better, error, self.error)
        self.scale = torch.where(better[:, None], scale, self.scale)
        self.min = torch.where(better[:, None], minimum, self.min)

    def error_of(self, scale: torch.Tensor, minimum: torch.Tensor) -> torch.Tensor:
        codes = _round(self.groups - minimum.float(), scale, 0, 15)
        return codes.mul_(scale.float()).add_(minimum.float()).sub_(self.groups).square_().sum(-1)

    def part(self, index: torch.Tensor) -> "Grid":
        return Grid(self.groups[index], self.scale[index], self.min[index], self.error[index])

    def put(self, index: torch.Tensor, part: "Grid") -> None:
        self.scale[index], self.min[index], self.error[index] = part.scale, part.min, part.error


def _slabs(weight: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield slices of rows with the weights of the rows in groups: (rows, K / 32, 32) in f32."""
    if not is_grouped(weight):
        raise ValueError(f"a weight of shape {tuple(weight.shape)} has no rows of whole groups of {GROUP}")
    step = max(1, _SLAB // weight.shape[1])
    for first in range(0, len(weight), step):
        rows = slice(first, min(first + step, len(weight)))
        yield rows, weight[rows].detach().float().reshape(rows.stop - first, -1, GROUP)


def _round(groups: torch.Tensor, scale: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Return the codes as f32, in new memory. A scale of 0 gives 0."""
    scale = scale.float()
    return (groups / torch.where(scale == 0, torch.inf, scale)).round_().clamp_(low, high)


def _lies_on_grids(grid: Grid) -> bool:
    """Whether the weights were quantized before, in any format: more than half of a sample of groups lies on a grid."""
    sample = grid.part(grid.error.nonzero()[:: max(1, int(grid.error.count_nonzero()) // _SAMPLE), 0])
    _search(sample)
    near = (sample.error / GROUP).sqrt() < _ON_GRID * sample.scale[:, 0].abs()
    return bool(near.float().mean() > 0.5)


def _search(grid: Grid) -> None:
    """Try all codes that the least and the greatest weight of a group could have.

    In most formats the least weight has code 0 or the greatest has code 15.
    """
    ends = [(steps, least) for least in range(16) for steps in range(15 - least, 0, -1)]
    which = grid.error.nonzero()[:, 0]
    rest = grid.part(which)
    for steps, least in ends:
        low, high = rest.groups.amin(-1, keepdim=True), rest.groups.amax(-1, keepdim=True)
        scale = ((high - low) / steps).half()
        rest.offer(scale, (low - least * scale.float()).half())
        if not least:
            rest.offer(-scale, high.half())
        if (rest.error > 0).sum() < 0.8 * len(which):  # drop the groups with an exact grid
            grid.put(which, rest)
            which = grid.error.nonzero()[:, 0]
            rest = grid.part(which)
            if not len(which):
                return
    grid.put(which, rest)


def _refine(grid: Grid) -> None:
    """Fit scale and minimum to the codes by least squares. Two rounds, because new scales change the codes."""
    for _ in range(2):
        codes = grid.codes()
        mean_code, mean = codes.mean(-1, keepdim=True), grid.groups.mean(-1, keepdim=True)
        spread = (codes - mean_code).square_().sum(-1, keepdim=True)
        slope = (codes - mean_code).mul_(grid.groups - mean).sum(-1, keepdim=True) / spread.clamp(min=1)
        grid.offer(slope.half(), (mean - slope * mean_code).half())
