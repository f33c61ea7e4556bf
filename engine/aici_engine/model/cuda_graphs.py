"""Steps in which every sequence has one token, as recorded once and replayed.

Launching the kernels of a step one by one takes the host longer than a GPU takes for them. A recording replays the same
kernels on the same memory: so a step is padded to one of a few sizes and told in numbers that lie where they lay.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import torch

from aici_engine.cache.ids import PageId
from aici_engine.device_copy import copy_to_device
from aici_engine.model.batch import Chunk, Pages

MAX_SIZE: Final = 256
"""Of more sequences, launching is not what takes long."""

Run = Callable[[], torch.Tensor]
Record = Callable[[Run], Run]

_log = logging.getLogger(__name__)


class PaddedBatch:
    """What layers see of a step of at most `size` sequences: as `StepBatch`, for kernels that read pages.

    Rows beyond those of a step are sequences of one token in the `spare` page, which is nobody's.
    """

    def __init__(self, size: int, *, max_pages: int, page_size: int, spare: PageId, device: torch.device) -> None:
        self._size, self._max_pages = size, max_pages
        self._page_size, self._spare = page_size, spare
        sizes = [size, size, size, size, size + 1, size * max_pages]
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        self._ids, self._positions, self._slots, lens, starts, table = torch.split(self._numbers, sizes)
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
        """A step begins: part of what is recorded."""
        self.input_ids = self._ids.long()[None]
        self.position_ids = self._positions.long()[None]
        self.write_slots = self._slots.long()

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """At most `size`, of one token each, in at most `max_pages` pages."""
        rows = np.zeros((4, self._size), np.int32)
        ids, positions, slots, lens = rows
        slots[:], lens[:] = self._spare * self._page_size, 1
        table = np.full((self._size, self._max_pages), self._spare, np.int32)
        for i, chunk in enumerate(chunks):
            pages = chunk.view.pages[: chunk.start // self._page_size + 1]
            table[i, : len(pages)] = pages
            ids[i], positions[i], lens[i] = chunk.tokens[0], chunk.start, chunk.view.total_len
            slots[i] = pages[-1] * self._page_size + chunk.start % self._page_size
        starts = np.concatenate([[0], lens.cumsum()])
        numbers = np.concatenate([rows.reshape(-1), starts, table.reshape(-1)]).astype(np.int32)
        self._numbers.copy_(copy_to_device(numbers, self._numbers.device))


class RecordedSteps:
    """`run`: the model, over one batch. Sizes are recorded when they first come."""

    def __init__(
        self, run: Callable[[PaddedBatch], torch.Tensor], new: Callable[[int], PaddedBatch], record: Record
    ) -> None:
        self._run = run
        self._new = new
        self._record: Record | None = record
        self._known: dict[int, tuple[PaddedBatch, Run]] = {}

    def __call__(self, chunks: Sequence[Chunk]) -> torch.Tensor | None:
        """A row of logits for each, valid until the next call; None for a step of another kind, or if the model does
        what cannot be recorded."""
        if len(chunks) > MAX_SIZE or any((len(chunk.tokens), chunk.num_logits) != (1, 1) for chunk in chunks):
            return None
        size = 1 << (len(chunks) - 1).bit_length()
        if size not in self._known:
            if self._record is None:
                return None
            batch = self._new(size)
            batch.fill(chunks)
            try:
                self._known[size] = batch, self._record(partial(self._run, batch))
            except RuntimeError as error:
                _log.warning("steps are launched kernel by kernel: %s", error)
                self._record = None
                return None
        batch, replay = self._known[size]
        batch.fill(chunks)
        return replay()[: len(chunks)]


def record(run: Run) -> Run:
    """As a CUDA graph. RuntimeError if it cannot be recorded, or replays as something else."""
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    try:
        # What libraries allocate when they are first used is no part of a graph.
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
