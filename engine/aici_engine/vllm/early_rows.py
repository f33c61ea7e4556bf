"""Sequences whose guests still start, while vLLM computes their prompts.

The mask of the first token is needed only after the prompt. A guest that starts in time joins the step. The row of a
later guest ends, and the sequence begins another row when its guest has started; vLLM's cache has the computed blocks.
"""

import threading
from typing import TYPE_CHECKING

from aici_engine.sequences.progress import Phase

if TYPE_CHECKING:
    from aici_base.ids import SeqId
    from aici_engine.sequences.sequence import Sequence


class EarlyRows:
    """Used by the engine's thread, except `tell`."""

    def __init__(self) -> None:
        self._starting: dict[SeqId, Sequence] = {}
        self._joined: set[SeqId] = set()
        self._told: dict[SeqId, bool] = {}
        self._news = threading.Event()

    def add(self, seq: "Sequence") -> None:
        """Note that the guest of a sequence begins to start. `leave` must follow."""
        self._starting[seq.seq_id] = seq

    def tell(self, seq: "Sequence", *, has_started: bool) -> None:
        """Note that the guest has started, or has failed to. Call on any thread, before `leave`."""
        self._told[seq.seq_id] = has_started
        self._news.set()

    def sequences(self) -> "list[Sequence]":
        """Return the sequences that want an early row, oldest first."""
        return [seq for seq in self._starting.values() if seq.ending is None and seq.progress.phase is Phase.STARTING]

    def poll(self, seqs: "list[Sequence]") -> "tuple[list[Sequence], bool]":
        """Return those of `seqs` whose guests have started, and whether the guests of others may still start."""
        self._news.clear()
        told = [(seq, self._told.get(seq.seq_id)) for seq in seqs]
        return [seq for seq, has_started in told if has_started], any(has_started is None for _, has_started in told)

    def wait(self, wait_s: float) -> None:
        """Wait until a guest has started or failed to since the last `poll`."""
        self._news.wait(wait_s)

    def join(self, seq: "Sequence") -> None:
        """Note that the guest of the sequence has started in time."""
        del self._starting[seq.seq_id]
        self._joined.add(seq.seq_id)

    def miss(self, seq: "Sequence") -> None:
        """Note that the row of the sequence ends before the guest has started: no other early row follows."""
        self._starting.pop(seq.seq_id, None)

    def leave(self, seq: "Sequence") -> bool:
        """Forget a sequence whose guest has started or failed to. Return whether the sequence has joined a step."""
        self._starting.pop(seq.seq_id, None)
        self._told.pop(seq.seq_id, None)
        is_joined = seq.seq_id in self._joined
        self._joined.discard(seq.seq_id)
        return is_joined
