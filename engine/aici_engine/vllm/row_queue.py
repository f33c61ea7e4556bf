"""Sequences and their rows in vLLM.

vLLM appends a token a step to a row and never removes a token. Forced tokens, removed tokens, forks and waits end the
row of a sequence. A new row with the tokens of the sequence follows; vLLM's cache has the computed blocks.
"""

import hashlib
from bisect import insort
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from aici_engine.fair_shares import OVER, in_turn
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence
from aici_engine.vllm.row_engine import NewRow, RowEngine, RowToken

if TYPE_CHECKING:
    from collections.abc import Collection

    from aici_base.ids import SeqId, TokenId
    from aici_engine.step_plan import StepPlan

_AGE = attrgetter("order")


@dataclass(slots=True)
class _Row:
    """`tokens`: of vLLM; empty for a plain sequence, which only grows."""

    key: str
    tokens: "list[TokenId]"


class RowQueue:
    """Owns the waiting and the running sequences, and the rows. Implements `SequenceQueue`.

    `max_num_seqs`: the most running sequences; forks may make more. `num_resubmitted`: rows that followed an ended row.
    """

    def __init__(self, engine: RowEngine, *, max_num_seqs: int) -> None:
        self._engine = engine
        self._max_num_seqs = max_num_seqs
        self._rows: dict[SeqId, _Row] = {}
        self._by_key: dict[str, Sequence] = {}
        self._num_begun = 0
        self._begun: set[SeqId] = set()
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_reused = 0
        self.num_resubmitted = 0

    @property
    def num_preemptions(self) -> int:
        return self._engine.num_preemptions

    @property
    def num_places(self) -> int:
        """Further sequences that could run at once."""
        return max(0, self._max_num_seqs - len(self.running) - len(self.waiting))

    @property
    def num_rows(self) -> int:
        """Rows that vLLM computes."""
        return len(self._rows)

    def add(self, seq: Sequence) -> None:
        seq.progress.phase = Phase.WAITING
        insort(self.waiting, seq, key=_AGE)

    def remove(self, seq: Sequence) -> None:
        seq.progress.phase = Phase.ENDED
        for queue in (self.waiting, self.running):
            if seq in queue:
                queue.remove(seq)
        self._begun.discard(seq.seq_id)
        self.end_row(seq)

    def admit(self) -> None:
        """Move waiting sequences to running, in the order of service, while there are places."""
        if not self.waiting:
            return
        active = [seq for seq in self.running if not seq.suspended]
        turns = in_turn(sorted([*active, *self.waiting], key=_AGE))
        for seq in list(turns)[: self._max_num_seqs]:
            if seq.progress.phase is Phase.WAITING and turns[seq] != OVER:
                self.waiting.remove(seq)
                self._run(seq)

    def fork(self, parent: Sequence, child: Sequence) -> None:  # noqa: ARG002
        self._run(child)

    def settle(self, seq: Sequence) -> None:
        """Do nothing: `submit` compares the tokens."""

    def record_time(self, plan: "StepPlan", time_s: float) -> None:
        """Do nothing: vLLM plans."""

    def submit(self, seqs: "Collection[Sequence]") -> None:
        """Make sure that all `seqs` have rows with the tokens of the sequence, and that no other sequence has a row."""
        wanted = {seq.seq_id for seq in seqs}
        for seq in list(self._by_key.values()):
            if seq.seq_id not in wanted:
                self.end_row(seq)
        for seq in seqs:
            row = self._rows.get(seq.seq_id)
            if row is None or (row.tokens and row.tokens != seq.tokens):
                self.end_row(seq)
                self._begin_row(seq)

    def is_current(self, seq: Sequence) -> bool:
        """Return whether the row of a sequence with a controller has the tokens of the sequence."""
        row = self._rows.get(seq.seq_id)
        return row is not None and row.tokens == seq.tokens

    def sequence(self, key: str) -> Sequence:
        return self._by_key[key]

    def key(self, seq: Sequence) -> str:
        return self._rows[seq.seq_id].key

    def take(self, token: RowToken) -> Sequence | None:
        """Note a token of vLLM, and return the sequence."""
        seq = self._by_key.get(token.key)
        if seq is None:
            return None
        row = self._rows[seq.seq_id]
        if row.tokens:
            row.tokens.append(token.score.token_id)
        if seq.seq_id not in self._begun:
            self._begun.add(seq.seq_id)
            seq.progress.num_reused = 0 if seq.fork else token.num_cached
            self.num_reused += seq.progress.num_reused
        if token.is_last:
            del self._rows[seq.seq_id], self._by_key[token.key]
        return seq

    def _run(self, seq: Sequence) -> None:
        seq.progress.phase = Phase.RUNNING
        seq.clock.start()
        self.running.append(seq)

    def _begin_row(self, seq: Sequence) -> None:
        self._num_begun += 1
        self.num_resubmitted += seq.seq_id in self._begun
        key = str(self._num_begun)
        is_controlled = seq.controller is not None
        self._rows[seq.seq_id] = _Row(key, list(seq.tokens) if is_controlled else [])
        self._by_key[key] = seq
        self._engine.add(
            NewRow(
                key=key,
                tokens=seq.tokens,
                room=seq.room,
                sampling=seq.sampling,
                seed=_seed(seq),
                salt=seq.salt,
                is_controlled=is_controlled,
            )
        )

    def end_row(self, seq: Sequence) -> None:
        """End the row of a sequence, if any."""
        row = self._rows.pop(seq.seq_id, None)
        if row is not None:
            del self._by_key[row.key]
            self._engine.remove(row.key)


def _seed(seq: Sequence) -> int | None:
    """Return the seed of a row, which depends on the fork and on the place where the row begins."""
    if seq.sampling.seed is None:
        return None
    place = (seq.sampling.seed, seq.lineage, len(seq.tokens))
    return int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:7], "little")
