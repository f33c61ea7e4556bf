"""Page tables as changes: the driver sends what is new since the last step, the stages keep the tables.

A decoding sequence needs a new page once per `page_size` tokens; in all other steps nothing is sent.
"""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import astuple

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cluster.frames import MAX_CHUNKS, ChunkFrame, FrameError, StepFrame
from aici_engine.step_input import Chunk, PageCopy, StepInput


class PageTableSender:
    """The driver's side: remembers the page tables that the stages have been told. One object per epoch.

    All stages see all steps, so all stages have been told the same. `num_sent`, `num_full`: page ids sent, and page ids
    in the tables of all chunks.
    """

    def __init__(self) -> None:
        self._told: dict[SeqId, list[PageId]] = {}
        self.num_sent = 0
        self.num_full = 0

    def frame(self, step: StepInput, *, epoch: int, number: int) -> StepFrame:
        """Return the header of a step. The chunks' page tables are copied: the cache may change afterwards."""
        for seq_id in step.forgotten:
            self._told.pop(seq_id, None)
        return StepFrame(
            epoch=epoch,
            number=number,
            forgotten=list(step.forgotten),
            copies=[(source, target) for source, target in step.copies],
            chunks=[self._changes(chunk) for chunk in step.chunks],
        )

    def _changes(self, chunk: Chunk) -> ChunkFrame:
        pages = list(chunk.pages)
        keep = _num_equal(self._told.get(chunk.seq_id, []), pages)
        self._told[chunk.seq_id] = pages
        self.num_sent += len(pages) - keep
        self.num_full += len(pages)
        return ChunkFrame(chunk.seq_id, chunk.start, len(chunk.tokens), keep, list[int](pages[keep:]), chunk.num_logits)


class PageTableMirror:
    """The stage's side: the page tables of all sequences since the last Attach. `check_step` comes before `apply`."""

    def __init__(self) -> None:
        self._tables: dict[int, list[PageId]] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def num_held(self, seq: int) -> int:
        """Return the number of pages of a sequence; 0 if the sequence is not known."""
        return len(self._tables.get(seq, ()))

    def apply(self, step: StepFrame, tokens: Sequence[int] | None) -> StepInput:
        """Change the tables as the step says, and return the step.

        `tokens`: the ids of all chunks, one after the other; `None` at stages without token ids: their chunks have
        positions instead. The chunks' page tables are valid until the next `apply`. Raises FrameError for too many
        sequences.
        """
        for seq in step.forgotten:
            self._tables.pop(seq, None)
        chunks = []
        at = 0
        for seq, start, count, keep, pages, num_logits in map(astuple, step.chunks):
            table = self._tables.setdefault(seq, [])
            table[keep:] = pages
            ids = range(start, start + count) if tokens is None else tokens[at : at + count]
            at += count
            chunks.append(Chunk(SeqId(seq), cast("Sequence[TokenId]", ids), start, table, num_logits))
        if len(self._tables) > MAX_CHUNKS:
            raise FrameError(f"the driver has {len(self._tables)} sequences with pages, and the limit is {MAX_CHUNKS}")
        copies = [PageCopy(PageId(source), PageId(target)) for source, target in step.copies]
        return StepInput(chunks, copies, [SeqId(seq) for seq in step.forgotten])


def _num_equal(told: list[PageId], pages: list[PageId]) -> int:
    """Return how many entries at the front are the same."""
    if pages[: len(told)] == told:  # the common case: the table grew, or is the same
        return len(told)
    pairs = enumerate(zip(told, pages, strict=False))
    return next((i for i, (old, new) in pairs if old != new), min(len(told), len(pages)))
