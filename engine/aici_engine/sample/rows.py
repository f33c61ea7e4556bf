"""Many rows to sample in one call."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.sample.masks import Bits, Logits, MaskApplier


class RowToChoose(NamedTuple):
    """A row of logits, its mask, and how to choose. `draw`: see `pipeline.choose`."""

    row: Logits
    bits: Bits | None
    params: SamplingParams
    draw: int


ChooseRows = Callable[[Sequence[RowToChoose], MaskApplier], list[TokenId | ValueError]]
"""Apply the masks, and choose a token for every row, or an error as `pipeline.choose` raises. Rows are overwritten."""
