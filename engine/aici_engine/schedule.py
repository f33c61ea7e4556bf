"""Decide what one step computes.

There is no prefill phase and no decode phase: each sequence has a count of computed tokens that catches up with its
count of tokens. A step gives every sequence that lacks one token that token, then spends what is left of its budget on
those that lack more, oldest first. When pages run out, the newest sequence gives up its pages and is computed anew
later; the oldest can never be evicted, and any one sequence fits the cache alone, so something always moves.
"""

from bisect import insort
from dataclasses import dataclass, field

from aici_engine.cache.kvcache import KVCache
from aici_engine.sequence import Phase, Sequence
from aici_runtime.ids import SeqId


@dataclass(frozen=True, slots=True)
class Work:
    """Compute tokens `seq.num_computed` to `seq.num_computed + num_tokens - 1`; `samples`: they reach the last one."""

    seq: Sequence
    num_tokens: int
    samples: bool


@dataclass(slots=True)
class Decision:
    work: list[Work] = field(default_factory=list)
    preempted: list[SeqId] = field(default_factory=list)


class Scheduler:
    """Owns who waits and who runs, both in order of arrival, and is the only one to reserve pages."""

    def __init__(self, cache: KVCache, *, max_num_seqs: int, max_batch_tokens: int) -> None:
        self._cache = cache
        self._max_num_seqs = max_num_seqs
        self._max_batch_tokens = max_batch_tokens
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0

    def add(self, seq: Sequence) -> None:
        """It waits for admission, ahead of everything that arrived later."""
        seq.phase = Phase.WAITING
        insort(self.waiting, seq, key=_arrival)

    def remove(self, seq: Sequence) -> None:
        """It has ended: no slot, no pages. Idempotent."""
        for queue in (self.waiting, self.running):
            if seq in queue:
                queue.remove(seq)
        self._cache.free(seq.seq_id)

    def truncated(self, seq: Sequence) -> None:
        """Its last tokens were removed: so are their pages."""
        if self._cache.holds(seq.seq_id):
            self._cache.truncate(seq.seq_id, seq.num_computed)

    def admit(self) -> None:
        """Move waiting sequences to running, in order, while slots and pages for all their tokens are there."""
        unreserved = self._cache.num_free_pages - sum(self._missing_pages(seq) for seq in self.running)
        while self.waiting and len(self.running) < self._max_num_seqs:
            seq = self.waiting[0]
            need = self._cache.num_pages_for(len(seq.tokens))
            if self.running and need > unreserved:
                return
            unreserved -= need
            self.waiting.pop(0)
            seq.phase = Phase.RUNNING
            insort(self.running, seq, key=_arrival)
            self._cache.add(seq.seq_id)

    def decide(self) -> Decision:
        """Also reserves the pages. Suspended sequences get nothing, but may have to give up their pages."""
        decision = Decision()
        singles = sum(1 for seq in self.running if not seq.suspended and seq.num_pending == 1)
        budget = self._max_batch_tokens - singles
        at = 0
        while at < len(self.running):
            seq = self.running[at]
            at += 1
            num_tokens = min(seq.num_pending, 1 if seq.num_pending == 1 else budget)
            if seq.suspended or num_tokens == 0:
                continue
            if not self._make_room(seq, num_tokens, decision):
                continue
            if seq.num_pending > 1:
                budget -= num_tokens
            decision.work.append(Work(seq, num_tokens, num_tokens == seq.num_pending))
        return decision

    def _make_room(self, seq: Sequence, num_tokens: int, decision: Decision) -> bool:
        while not self._cache.reserve(seq.seq_id, seq.num_computed + num_tokens):
            # Later in order of arrival means not yet in the decision, so evicting it undoes nothing.
            victim = self.running[-1]
            self._preempt(victim)
            decision.preempted.append(victim.seq_id)
            if victim is seq:
                return False
        return True

    def _preempt(self, seq: Sequence) -> None:
        self.num_preemptions += 1
        self.running.remove(seq)
        self._cache.free(seq.seq_id)
        seq.num_computed = 0
        self.add(seq)

    def _missing_pages(self, seq: Sequence) -> int:
        return max(0, self._cache.num_pages_for(len(seq.tokens)) - len(self._cache.page_table(seq.seq_id)))


def _arrival(seq: Sequence) -> int:
    return seq.seq_id
