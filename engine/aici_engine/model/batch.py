"""One step's ragged batch, as index tensors that are built once and read by every layer.

The tokens of all sequences lie in one row of T tokens: groups of single tokens (decode) first, then chunks of several
tokens (prefill, forced tokens). A mask per distinct sliding window is made when the first layer asks for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch

from aici_base.ids import TokenId
from aici_engine.cache.view import KVCacheView, KVRows
from aici_engine.device_copy import copy_to_device


class Chunk(NamedTuple):
    """`tokens` stand at positions `start`, `start + 1`, ... of a sequence whose `view` reaches exactly to their end.

    The logits of the last `num_logits` of them are wanted.
    """

    view: KVCacheView
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
    min_len: int
    max_len: int
    slots: torch.Tensor
    lens: torch.Tensor
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        """(rows, 1, 1, max_len), True = visible; None if all is."""
        if window not in self.masks:
            self.masks[window] = None
            if self.min_len < self.max_len or (window is not None and window < self.max_len):
                at = torch.arange(self.max_len, device=self.slots.device)
                lens = self.lens[:, None]
                visible = at < lens
                if window is not None:
                    visible &= at >= lens - window
                self.masks[window] = visible[:, None, None, :]
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
class Pages:
    """For a kernel that reads pages where they lie: all in i32. The queries of sequence i are tokens
    `query_starts[i]` to `query_starts[i + 1] - 1` of the batch, the last of its `lens[i]` tokens; `key_starts` sums up
    `lens`. `table` (N, pages of the longest), padded with the first page of each."""

    query_starts: torch.Tensor
    key_starts: torch.Tensor
    lens: torch.Tensor
    table: torch.Tensor
    max_queries: int
    max_keys: int


class StepBatch:
    """`input_ids`, `position_ids`: (1, T). `write_slots`: (T,). `logit_rows`: tokens whose logits are wanted, in
    the order of the chunks. `decodes` and `chunks`, or `pages`, are made when a layer asks for them."""

    def __init__(self, chunks: Sequence[Chunk], device: torch.device) -> None:
        """At least one chunk, none empty."""
        order = sorted(range(len(chunks)), key=lambda i: (len(chunks[i].tokens) > 1, chunks[i].view.total_len))
        self._sorted = [chunks[i] for i in order]
        self._firsts = np.array(list(accumulate((len(chunk.tokens) for chunk in self._sorted), initial=0)))
        self._device = device
        ids = np.concatenate([np.fromiter(chunk.tokens, np.int64, len(chunk.tokens)) for chunk in self._sorted])
        positions = np.concatenate([np.arange(chunk.start, chunk.view.total_len) for chunk in self._sorted])
        writes = np.concatenate([chunk.view.kv_rows(chunk.start) for chunk in self._sorted])
        ends = dict(zip(order, self._firsts[1:].tolist(), strict=True))
        rows = [row for i, chunk in enumerate(chunks) for row in range(ends[i] - chunk.num_logits, ends[i])]
        self.input_ids = copy_to_device(ids, device)[None]
        self.position_ids = copy_to_device(positions, device)[None]
        self.write_slots = copy_to_device(writes, device)
        self.logit_rows = copy_to_device(np.array(rows, np.int64), device)

    @cached_property
    def _slots(self) -> list[KVRows]:
        return [chunk.view.kv_rows() for chunk in self._sorted]

    @cached_property
    def decodes(self) -> list[DecodeGroup]:
        groups = []
        for group in _similar([len(slots) for slots in self._slots[: self._num_decodes]]):
            lens = np.array([len(self._slots[i]) for i in group], np.int64)
            table = np.empty((len(group), lens.max()), np.int64)
            for row, i in zip(table, group, strict=True):
                own = self._slots[i]
                row[: len(own)] = own
                row[len(own) :] = own[0]
            # A decode is one token: where it stands among the sequences, it stands among the tokens.
            places = group[0], group[-1] + 1, int(lens.min()), int(lens.max())
            groups.append(DecodeGroup(*places, self._upload(table.reshape(-1)), self._upload(lens)))
        return groups

    @cached_property
    def chunks(self) -> list[ChunkPart]:
        return [
            ChunkPart(
                int(self._firsts[i]), int(self._firsts[i + 1]), self._sorted[i].start, self._upload(self._slots[i])
            )
            for i in range(self._num_decodes, len(self._sorted))
        ]

    @cached_property
    def pages(self) -> Pages:
        lens = np.array([chunk.view.total_len for chunk in self._sorted], np.int32)
        num_pages = [len(chunk.view.pages) for chunk in self._sorted]
        table = np.empty((len(self._sorted), max(num_pages)), np.int32)
        for row, chunk, num in zip(table, self._sorted, num_pages, strict=True):
            row[:num] = chunk.view.pages
            row[num:] = row[0]
        return Pages(
            query_starts=self._upload(self._firsts.astype(np.int32)),
            key_starts=self._upload(np.concatenate([[0], lens.cumsum()]).astype(np.int32)),
            lens=self._upload(lens),
            table=self._upload(table),
            max_queries=int(np.diff(self._firsts).max()),
            max_keys=int(lens.max()),
        )

    @property
    def _num_decodes(self) -> int:
        return sum(len(chunk.tokens) == 1 for chunk in self._sorted)

    def _upload(self, array: "np.ndarray[tuple[int, ...], np.dtype[Any]]") -> torch.Tensor:
        return copy_to_device(array, self._device)


def _similar(lens: list[int]) -> Iterator[range]:
    """Split what is sorted so that padding at most doubles the work of a group."""
    first = 0
    for i, length in enumerate(lens):
        if length > 2 * lens[first] + 64:
            yield range(first, i)
            first = i
    if lens:
        yield range(first, len(lens))
