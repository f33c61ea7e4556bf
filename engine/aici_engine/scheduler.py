"""Decide what one step computes.

There is no prefill phase and no decode phase: each sequence has a count of computed tokens that catches up with its
count of tokens. A step gives every sequence that lacks one token that token, then spends what is left of its budget on
those that lack more: half of it on the oldest of these, which is done when it is done whoever comes later, and the
other half on those that lack least, so that nobody waits for long behind a long prompt. When pages run out, the newest
sequence gives up its pages and is computed anew later; the oldest can never be evicted, and any one sequence fits the
cache alone, so something always moves.

Old is a matter of priority too: a step of it is worth a minute of waiting. So those that matter less are overtaken, but
not for ever, and the order of any two never changes.

Suspended sequences keep their pages and take no slot: whom they wait for may need one. They are the first to give up
their pages to a sequence that can go on, and come back when they wake. Older means of an older request, or forked
before.

Before each step, every sequence goes on with the pages that were computed by others, or by itself before it lost them.
One whose next page is another's work in this step waits for that: so many requests that begin alike and come together
compute their beginning once. Whom it waits for moves in this very step, so nobody waits for ever.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple

from aici_base.ids import SeqId
from aici_engine.cache.kvcache import KVCache
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence


class PlannedChunk(NamedTuple):
    """Compute tokens `seq.num_computed` to `seq.num_computed + num_tokens - 1`; `samples`: they reach the last one."""

    seq: Sequence
    num_tokens: int
    samples: bool


@dataclass(slots=True)
class StepPlan:
    chunks: list[PlannedChunk] = field(default_factory=list)
    preempted: list[SeqId] = field(default_factory=list)


class Scheduler:
    """Owns who waits and who runs, both in order, and is the only one to reserve pages."""

    def __init__(
        self, cache: KVCache, *, max_num_seqs: int, max_batch_tokens: int, prefill_budget: PrefillBudget
    ) -> None:
        self._cache = cache
        self._prefill_budget = prefill_budget
        self._max_num_seqs = max_num_seqs
        self._max_batch_tokens = max_batch_tokens
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.num_reused = 0

    def add(self, seq: Sequence) -> None:
        """It waits for admission, ahead of everything that comes after it in order."""
        seq.progress.phase = Phase.WAITING
        insort(self.waiting, seq, key=_order)

    def remove(self, seq: Sequence) -> None:
        """The sequence has ended: forget it, and free its pages. Idempotent."""
        seq.progress.phase = Phase.ENDED
        for queue in (self.waiting, self.running):
            if seq in queue:
                queue.remove(seq)
        self._cache.free(seq.seq_id)

    def settle(self, seq: Sequence) -> None:
        """Free the pages of tokens that were removed in this step, and leave the sequence a token to compute.

        If no token was appended, or tokens were removed, the last token is computed again for its logits.
        """
        if seq.num_pending == 0:
            seq.progress.num_computed -= 1
        if self._cache.holds(seq.seq_id) and seq.progress.num_computed < self._cache.num_cached(seq.seq_id):
            self._cache.truncate(seq.seq_id, seq.progress.num_computed)

    def admit(self) -> None:
        """Move waiting sequences to running, in order, while pages for all their tokens are there, and fewer run
        that come before them than there are slots."""
        if not self.waiting:
            return
        active = [seq for seq in self.running if not seq.guest.suspended]
        promised = sum(self._cache.num_missing(seq.seq_id, len(seq.tokens)) for seq in active)
        for seq in [seq for seq in self.waiting if not seq.suspended]:
            if bisect_left(active, seq.order, key=_order) >= self._max_num_seqs:
                return
            need = self._num_needed(seq)
            while need > self._cache.num_free_pages - promised and (victim := self._newest_suspended()):
                self._preempt(victim)
                # It may have shared the victim's.
                need = self._num_needed(seq)
            if active and need > self._cache.num_free_pages - promised:
                return
            self.waiting.remove(seq)
            self._cache.add(seq.seq_id, seq.salt)
            self._reuse(seq)
            self._run(seq)
            promised += self._cache.num_missing(seq.seq_id, len(seq.tokens))
            insort(active, seq, key=_order)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """`child` begins with all that was computed of `parent`, in the same pages. `parent` runs."""
        child.progress.num_computed = parent.progress.num_computed
        self._cache.fork(parent.seq_id, child.seq_id)
        self._run(child)

    def decide(self) -> StepPlan:
        """Also reserves the pages. Suspended sequences get nothing, nor do the newest beyond the number of slots: forks
        and sequences that woke may be more than that."""
        plan = StepPlan()
        active = [seq for seq in self.running if not seq.guest.suspended][: self._max_num_seqs]
        for seq in active:
            if seq.num_pending > 1:
                self._reuse(seq)
        shares = self._share(active)
        for seq in active:
            num_tokens = shares.get(seq.seq_id, 0)
            # It may have been preempted right now.
            if num_tokens and seq.progress.phase is Phase.RUNNING and self._make_room(seq, num_tokens, plan):
                plan.chunks.append(PlannedChunk(seq, num_tokens, num_tokens == seq.num_pending))
        return plan

    def advance(self, plan: StepPlan) -> None:
        """The forward pass of `plan` has written the keys and values of its tokens."""
        for seq, num_tokens, _ in plan.chunks:
            seq.progress.num_computed += num_tokens
            self._cache.advance(seq.seq_id, seq.transcript.tokens, seq.progress.num_computed)

    def record_time(self, plan: StepPlan, time_s: float) -> None:
        """How long its forward pass did."""
        decodes = sum(chunk.num_tokens == 1 for chunk in plan.chunks)
        others = sum(chunk.num_tokens for chunk in plan.chunks) - decodes
        self._prefill_budget.record_step(time_s, num_decodes=decodes, num_others=others)

    def _share(self, active: list[Sequence]) -> dict[SeqId, int]:
        """Who gets how many tokens, by sequence."""
        shares = {seq.seq_id: 1 for seq in active if seq.num_pending == 1}
        late = [seq for seq in active if seq.num_pending > 1]
        budget = self._max_batch_tokens - len(shares)
        if (most := self._prefill_budget.max_prompt_tokens(len(shares))) is not None:
            budget = min(budget, most)
        begun: dict[object, Sequence] = {}
        # The oldest lacks least, too, when its half is not enough and something is left.
        for turn, seq in enumerate([*late[:1], *sorted(late, key=lambda seq: seq.num_pending)]):
            page = self._cache.next_page(seq.seq_id, seq.tokens, seq.num_reusable)
            if page is not None and begun.setdefault(page, seq) is not seq:
                continue
            had = shares.get(seq.seq_id, 0)
            more = min(seq.num_pending - had, -(-budget // 2) if turn == 0 else budget)
            shares[seq.seq_id] = had + more
            budget -= more
        return shares

    def _make_room(self, seq: Sequence, num_tokens: int, plan: StepPlan) -> bool:
        while not self._cache.reserve(seq.seq_id, seq.progress.num_computed + num_tokens):
            # Suspended, or later in order, means not in the plan: evicting it undoes nothing.
            victim = self._newest_suspended() or self.running[-1]
            self._preempt(victim)
            plan.preempted.append(victim.seq_id)
            if victim is seq:
                return False
        return True

    def _preempt(self, seq: Sequence) -> None:
        self.num_preemptions += 1
        self.running.remove(seq)
        self._cache.free(seq.seq_id)
        seq.progress.num_lost = max(seq.progress.num_lost, seq.progress.num_computed)
        seq.progress.num_computed = 0
        self.add(seq)

    def _num_needed(self, seq: Sequence) -> int:
        """Pages to admit it: what it can share, it need not have."""
        return self._cache.num_needed(seq.tokens, seq.num_reusable, seq.salt)

    def _reuse(self, seq: Sequence) -> None:
        progress = seq.progress
        before = max(progress.num_computed, progress.num_lost)
        progress.num_computed = self._cache.extend(seq.seq_id, seq.tokens, seq.num_reusable)
        found = max(0, min(progress.num_computed, seq.transcript.prompt_len) - before)
        progress.num_reused += found
        self.num_reused += found

    def _run(self, seq: Sequence) -> None:
        seq.progress.phase = Phase.RUNNING
        seq.clock.start()
        insort(self.running, seq, key=_order)

    def _newest_suspended(self) -> Sequence | None:
        return next((seq for seq in reversed(self.running) if seq.suspended), None)


def _order(seq: Sequence) -> tuple[float, SeqId, SeqId]:
    return seq.order
