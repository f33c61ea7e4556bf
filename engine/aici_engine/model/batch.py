"""One step's ragged batch, as index tensors that are built once and read by every layer.

The tokens of all sequences lie in one row of T tokens: groups of single tokens (decode) first, then chunks of several
tokens (prefill, forced tokens). A mask per distinct sliding window is made when the first layer asks for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from aici_engine.cache.view import KvcacheView
from aici_runtime.ids import TokenId


@dataclass(frozen=True, slots=True)
class Chunk:
    """`tokens` stand at positions `start`, `start + 1`, ... of a sequence whose `view` reaches exactly to their end.

    The logits of the last `num_logits` of them are wanted.
    """

    view: KvcacheView
    tokens: Sequence[TokenId]
    start: int
    num_logits: int


@dataclass(slots=True)
class DecodeGroup:
    """Single tokens of sequences of similar length, tokens `first` to `last` - 1 of the batch.

    `slots` (rows * max_len,): all tokens of each sequence; padded with the slot of its own first token, because memory
    that was never written may hold NaN, and what belongs to others is none of its business.
    """

    first: int
    last: int
    max_len: int
    slots: torch.Tensor
    lens: torch.Tensor
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        """(rows, 1, 1, max_len), True = visible; None if all is."""
        if window not in self.masks:
            at = torch.arange(self.max_len, device=self.slots.device)
            lens = self.lens[:, None]
            visible = at < lens
            if window is not None:
                visible &= at >= lens - window
            self.masks[window] = None if bool(visible.all()) else visible[:, None, None, :]
        return self.masks[window]


@dataclass(slots=True)
class ChunkPart:
    """Tokens `first` to `last` - 1 of the batch: positions `start`, ... of one sequence. `slots` (total_len,)."""

    first: int
    last: int
    start: int
    slots: torch.Tensor
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    @property
    def total_len(self) -> int:
        return self.start + self.last - self.first

    def mask(self, window: int | None) -> torch.Tensor | None:
        """(last - first, total_len), True = visible; None if it is the plain causal square."""
        if window not in self.masks:
            self.masks[window] = None
            if self.start > 0 or (window is not None and window < self.total_len):
                keys = torch.arange(self.total_len, device=self.slots.device)
                queries = keys[self.start :, None]
                visible = keys <= queries
                if window is not None:
                    visible &= keys > queries - window
                self.masks[window] = visible
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """`input_ids`, `position_ids`: (1, T). `write_slots`: (T,). `logit_rows`: tokens whose logits are wanted, in
    the order of the chunks."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    write_slots: torch.Tensor
    decodes: tuple[DecodeGroup, ...]
    chunks: tuple[ChunkPart, ...]
    logit_rows: torch.Tensor


def build(chunks: Sequence[Chunk], device: torch.device) -> StepBatch:
    """At least one chunk, none empty."""
    by_len = sorted(range(len(chunks)), key=lambda i: (len(chunks[i].tokens) > 1, chunks[i].view.total_len))
    slots = [chunk.view.slots() for chunk in chunks]
    firsts = dict(zip(by_len, _starts(len(chunks[i].tokens) for i in by_len), strict=False))
    singles = [i for i in by_len if len(chunks[i].tokens) == 1]

    def tensor(array: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    decodes = []
    for group in _similar([(i, chunks[i].view.total_len) for i in singles]):
        max_len = max(len(slots[i]) for i in group)
        table = np.empty((len(group), max_len), np.int64)
        for row, i in zip(table, group, strict=True):
            row[: len(slots[i])] = slots[i]
            row[len(slots[i]) :] = slots[i][0]
        lens = np.array([len(slots[i]) for i in group], np.int64)
        first = firsts[group[0]]
        decodes.append(DecodeGroup(first, first + len(group), max_len, tensor(table.reshape(-1)), tensor(lens)))
    parts = [
        ChunkPart(firsts[i], firsts[i] + len(chunks[i].tokens), chunks[i].start, tensor(slots[i]))
        for i in by_len[len(singles) :]
    ]
    ids = np.concatenate([np.fromiter(chunks[i].tokens, np.int64, len(chunks[i].tokens)) for i in by_len])
    positions = np.concatenate([np.arange(chunks[i].start, chunks[i].view.total_len) for i in by_len])
    writes = np.concatenate([slots[i][chunks[i].start :] for i in by_len])
    lasts = [firsts[i] + len(chunk.tokens) for i, chunk in enumerate(chunks)]
    rows = [row for last, chunk in zip(lasts, chunks, strict=True) for row in range(last - chunk.num_logits, last)]
    return StepBatch(
        input_ids=tensor(ids)[None],
        position_ids=tensor(positions)[None],
        write_slots=tensor(writes),
        decodes=tuple(decodes),
        chunks=tuple(parts),
        logit_rows=tensor(np.array(rows, np.int64)),
    )


def _starts(lens: Iterator[int]) -> Iterator[int]:
    at = 0
    for length in lens:
        yield at
        at += length


def _similar(by_len: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Split (index, length), sorted by length, so that padding at most doubles the work of a group."""
    group: list[int] = []
    shortest = 0
    for index, length in by_len:
        if group and length > 2 * shortest + 64:
            yield group
            group = []
        if not group:
            shortest = length
        group.append(index)
    if group:
        yield group
