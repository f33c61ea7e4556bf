"""CUDA graphs for decode steps, in which every sequence has one token.

Launching the kernels of a decode step takes the host longer than running the kernels takes the GPU. A graph replays
recorded kernels on fixed memory. A step is therefore padded to one of a few batch sizes, and its numbers are copied
into the memory of the recording.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import torch

from aici_engine.cache.ids import PageId
from aici_engine.device_copy import copy_to_device
from aici_engine.model.batch import Pages
from aici_engine.step_input import Chunk

MAX_SIZE: Final = 256
"""Sequences. In larger batches, launching kernels is not the bottleneck."""

Run = Callable[[], torch.Tensor]
Record = Callable[[Run], Run]

_log = logging.getLogger(__name__)


class PaddedBatch:
    """A batch of exactly `size` decoding sequences, for kernels that read pages. Layers use it like a `StepBatch`.

    Padding rows are sequences of one token in the page `spare`, which no sequence owns.
    """

    def __init__(self, size: int, *, max_pages: int, page_size: int, spare: PageId, device: torch.device) -> None:
        self._size, self._max_pages = size, max_pages
        self._page_size, self._spare = page_size, spare
        sizes = [size, size, size, size, size + 1, size * max_pages]
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        self._ids, self._positions, self._kv_rows, lens, starts, table = torch.split(self._numbers, sizes)
        self.logit_rows = torch.arange(size, device=device)
        self.pages = Pages(
            query_starts=torch.arange(size + 1, dtype=torch.int32, device=device),
            key_starts=starts,
            lens=lens,
            table=table.view(size, max_pages),
            max_queries=1,
            max_keys=max_pages * page_size,
        )

    def read(self) -> None:
        """Convert the copied numbers to the index types of torch. The recording includes this conversion."""
        self.input_ids = self._ids.long()[None]
        self.position_ids = self._positions.long()[None]
        self.write_rows = self._kv_rows.long()

    def fill(self, chunks: Sequence[Chunk], tokens: torch.Tensor | None = None) -> None:
        """Copy at most `size` chunks to the device: one token a chunk, at most `max_pages` pages a sequence.

        `tokens`: the tokens on the device, in place of those in the chunks.
        """
        num = len(chunks)
        rows = np.zeros((4, self._size), np.int32)
        ids, positions, kv_rows, lens = rows
        kv_rows[num:], lens[num:] = self._spare * self._page_size, 1
        ids[:num] = [chunk.tokens[0] for chunk in chunks]
        positions[:num] = [chunk.start for chunk in chunks]
        lens[:num] = positions[:num] + 1
        last, offsets = np.divmod(positions[:num], self._page_size)
        table = np.full((self._size, self._max_pages), self._spare, np.int32)
        pages = chain.from_iterable(
            chunk.pages[: index + 1] for chunk, index in zip(chunks, last.tolist(), strict=True)
        )
        table[:num][np.arange(self._max_pages) <= last[:, None]] = np.fromiter(pages, np.int32, int(last.sum()) + num)
        kv_rows[:num] = table[np.arange(num), last] * self._page_size + offsets
        starts = np.concatenate([[0], lens.cumsum()])
        numbers = np.concatenate([rows.reshape(-1), starts, table.reshape(-1)]).astype(np.int32)
        self._numbers.copy_(copy_to_device(numbers, self._numbers.device))
        if tokens is not None:
            self._ids[: len(chunks)] = tokens


class RecordedSteps:
    """The recorded steps of one KV storage, by batch size (a power of two). A size is recorded on first use.

    `run` computes the logits of a batch.
    """

    def __init__(
        self, run: Callable[[PaddedBatch], torch.Tensor], new: Callable[[int], PaddedBatch], record: Record
    ) -> None:
        self._run = run
        self._new = new
        self._record: Record | None = record
        self._known: dict[int, tuple[PaddedBatch, Run]] = {}

    def __call__(self, chunks: Sequence[Chunk], tokens: torch.Tensor | None = None) -> torch.Tensor | None:
        """Return one row of logits per chunk, valid until the next call. `tokens`: see `PaddedBatch.fill`.

        Return None if the step is not a decode step, or if the model cannot be recorded.
        """
        if len(chunks) > MAX_SIZE or any((len(chunk.tokens), chunk.num_logits) != (1, 1) for chunk in chunks):
            return None
        size = 1 << (len(chunks) - 1).bit_length()
        if size not in self._known:
            if self._record is None:
                return None
            batch = self._new(size)
            batch.fill(chunks, tokens)
            try:
                self._known[size] = batch, self._record(partial(self._run, batch))
            except RuntimeError as error:
                _log.warning("steps are launched kernel by kernel: %s", error)
                self._record = None
                return None
        batch, replay = self._known[size]
        batch.fill(chunks, tokens)
        return replay()[: len(chunks)]


def record(run: Run) -> Run:
    """Record `run` as a CUDA graph. Raises RuntimeError if recording fails, or if the replay gives other logits."""
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    try:
        # A first run outside the graph: libraries allocate their workspaces here.
        with torch.cuda.stream(aside):
            wanted = run()
        current.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            found = run()
    finally:
        torch.cuda.set_stream(current)

    def replay() -> torch.Tensor:
        graph.replay()
        return found

    if not torch.allclose(replay(), wanted, rtol=1e-2, atol=1e-2):
        raise RuntimeError("a recorded step gives other logits")
    return replay
