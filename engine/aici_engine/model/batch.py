"""The ragged batch of one step: index tensors, built once and read by every layer.

The batch is one row of T tokens: first groups of single tokens (decode), then chunks of several tokens (prefill, forced
tokens). Masks are built on demand, one for every distinct sliding window.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from aici_engine.cache.view import KVRows, kv_rows
from aici_engine.device_copy import copy_to_device
from aici_engine.step_input import Chunk


@dataclass(slots=True)
class DecodeGroup:
    """Decoding sequences of similar length: tokens `first` to `last` - 1 of the batch, one token per sequence.

    `kv_rows` (rows * max_len,): the cache rows of all tokens, sequence by sequence. Padding repeats the first row of
    the same sequence: a row that was never written may hold NaN, and a row of another sequence must not be read.
    """

    first: int
    last: int
    min_len: int
    max_len: int
    kv_rows: torch.Tensor
    lens: torch.Tensor
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        """(rows, 1, 1, max_len), True = visible; None if every position is visible."""
        if window not in self.masks:
            self.masks[window] = None
            if self.min_len < self.max_len or (window is not None and window < self.max_len):
                at = torch.arange(self.max_len, device=self.kv_rows.device)
                lens = self.lens[:, None]
                visible = at < lens
                if window is not None:
                    visible &= at >= lens - window
                self.masks[window] = visible[:, None, None, :]
        return self.masks[window]


@dataclass(slots=True)
class ChunkPart:
    """Tokens `first` to `last` - 1 of the batch, at positions `start`, `start + 1`, ... of one sequence.

    `kv_rows` (total_len,): the cache rows of all positions.
    """

    first: int
    last: int
    start: int
    kv_rows: torch.Tensor
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    @property
    def total_len(self) -> int:
        return self.start + self.last - self.first

    def mask(self, window: int | None) -> torch.Tensor | None:
        """(last - first, total_len), True = visible; None for the plain causal square."""
        if window not in self.masks:
            self.masks[window] = None
            if self.start > 0 or (window is not None and window < self.total_len):
                keys = torch.arange(self.total_len, device=self.kv_rows.device)
                queries = keys[self.start :, None]
                visible = keys <= queries
                if window is not None:
                    visible &= keys > queries - window
                self.masks[window] = visible
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class Pages:
    """The batch for kernels that read pages in place. All tensors are i32.

    Sequence i has `lens[i]` tokens; its queries are tokens `query_starts[i]` to `query_starts[i + 1] - 1` of the batch,
    and belong to the last positions. `key_starts`: cumulative sum of `lens`, from 0. `table` (N, pages of the longest
    sequence): page tables, padded with the first page of the same sequence.
    """

    query_starts: torch.Tensor
    key_starts: torch.Tensor
    lens: torch.Tensor
    table: torch.Tensor
    max_queries: int
    max_keys: int


class StepBatch:
    """Index tensors of one step, on the device of the model.

    `input_ids`, `position_ids` (1, T). `write_rows` (T,): the cache row of every token. `logit_rows`: tokens with
    requested logits, in the order of the chunks. `decodes` and `chunks`, or `pages`, are built on first use.
    """

    def __init__(
        self, chunks: Sequence[Chunk], page_size: int, device: torch.device, tokens: torch.Tensor | None = None
    ) -> None:
        """`chunks` must not be empty, and every chunk must have a token. `tokens`: of chunks of one token each, on the
        device, in place of the tokens in the chunks."""
        order = sorted(range(len(chunks)), key=lambda i: (len(chunks[i].tokens) > 1, chunks[i].end))
        self._order = order
        self._sorted = [chunks[i] for i in order]
        self._firsts = np.array(list(accumulate((len(chunk.tokens) for chunk in self._sorted), initial=0)))
        self._page_size = page_size
        self._device = device
        ids = np.concatenate([np.fromiter(chunk.tokens, np.int64, len(chunk.tokens)) for chunk in self._sorted])
        positions = np.concatenate([np.arange(chunk.start, chunk.end) for chunk in self._sorted])
        writes = np.concatenate([self._rows(chunk, chunk.start) for chunk in self._sorted])
        self._ends = dict(zip(order, self._firsts[1:].tolist(), strict=True))
        self.input_ids = copy_to_device(ids, device)[None]
        if tokens is not None:
            self.input_ids = tokens.long()[copy_to_device(np.array(order, np.int64), device)][None]
        self.position_ids = copy_to_device(positions, device)[None]
        self.write_rows = copy_to_device(writes, device)
        self.logit_rows = self._last_rows(chunk.num_logits for chunk in chunks)
        self._given = chunks

    @cached_property
    def state_rows(self) -> torch.Tensor:
        """(S,): tokens with requested final states, in the order of the chunks."""
        return self._last_rows(chunk.num_states for chunk in self._given)

    @cached_property
    def chunk_order(self) -> torch.Tensor:
        """(T,): for every token of the batch, its index when the tokens stand in the order of the chunks."""
        lens = np.diff(self._firsts)
        places = np.argsort(self._order)  # of the chunks, among the sorted chunks
        starts = np.empty_like(lens)
        starts[places] = np.cumsum(lens[places]) - lens[places]
        return self._upload(np.concatenate([np.arange(s, s + n) for s, n in zip(starts, lens, strict=True)]))

    @cached_property
    def _kv_rows(self) -> list[KVRows]:
        return [self._rows(chunk) for chunk in self._sorted]

    @cached_property
    def decodes(self) -> list[DecodeGroup]:
        groups = []
        for group in _similar([len(rows) for rows in self._kv_rows[: self._num_decodes]]):
            lens = np.array([len(self._kv_rows[i]) for i in group], np.int64)
            table = np.empty((len(group), lens.max()), np.int64)
            for row, i in zip(table, group, strict=True):
                own = self._kv_rows[i]
                row[: len(own)] = own
                row[len(own) :] = own[0]
            # A decode is one token, so the index is the same among sequences and among tokens.
            places = group[0], group[-1] + 1, int(lens.min()), int(lens.max())
            groups.append(DecodeGroup(*places, self._upload(table.reshape(-1)), self._upload(lens)))
        return groups

    @cached_property
    def chunks(self) -> list[ChunkPart]:
        return [
            ChunkPart(
                int(self._firsts[i]), int(self._firsts[i + 1]), self._sorted[i].start, self._upload(self._kv_rows[i])
            )
            for i in range(self._num_decodes, len(self._sorted))
        ]

    @cached_property
    def pages(self) -> Pages:
        lens = np.array([chunk.end for chunk in self._sorted], np.int32)
        num_pages = [len(chunk.pages) for chunk in self._sorted]
        table = np.empty((len(self._sorted), max(num_pages)), np.int32)
        for row, chunk, num in zip(table, self._sorted, num_pages, strict=True):
            row[:num] = chunk.pages
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

    def _rows(self, chunk: Chunk, start: int = 0) -> KVRows:
        return kv_rows(chunk.pages, self._page_size, start, chunk.end)

    def _last_rows(self, counts: Iterable[int]) -> torch.Tensor:
        rows = [row for i, count in enumerate(counts) for row in range(self._ends[i] - count, self._ends[i])]
        return copy_to_device(np.array(rows, np.int64), self._device)

    def _upload(self, array: "np.ndarray[tuple[int, ...], np.dtype[Any]]") -> torch.Tensor:
        return copy_to_device(array, self._device)


def _similar(lens: list[int]) -> Iterator[range]:
    """Split sorted lengths into groups in which padding at most doubles the work (plus 64 tokens)."""
    first = 0
    for i, length in enumerate(lens):
        if length > 2 * lens[first] + 64:
            yield range(first, i)
            first = i
    if lens:
        yield range(first, len(lens))
