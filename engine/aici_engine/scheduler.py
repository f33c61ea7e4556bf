"""Decide what a step computes.

A step has no prefill phase and no decode phase. Every sequence has a count of computed tokens, and the count catches up
with the number of tokens. A step first computes one token of every sequence with a single pending token (the sequence
decodes). Half of the remaining budget goes to the oldest sequence with more pending tokens (mostly a prompt), so later
requests cannot delay the oldest prompt. The other half goes to the sequences with the fewest pending tokens, so a short
prompt does not wait long behind a long prompt.

When pages run out, the newest sequence gives up its pages and is computed again later (preemption). The oldest sequence
is never preempted, and any sequence alone fits the cache, so every step makes progress.

Owners share the places and the pages fairly (`fair_shares`): "older" and "newer" mean the order of service below, which
is the age where all sequences have one owner. A waiting sequence may take the pages of a newer one of another owner.

Priority changes the age: one step of priority is worth a minute of waiting. So requests of low priority are overtaken,
but not for ever, and of two sequences the same one stays the older. Among the forks of a request, the earlier fork is
older.

Sequences in the background (`BACKGROUND_PRIORITY`, the lines of batches) are computed only in steps in which no other
sequence has work, and lose their pages to a waiting sequence that is not in the background.

Suspended sequences keep their pages, but do not count against `max_num_seqs`: a suspended sequence may wait for a
sequence without a place among the running. Suspended sequences are the first to lose their pages to an active sequence,
and are admitted again after waking.

Before a step, every sequence takes over the cached pages of its next tokens, computed by other sequences, or by the
same sequence before a preemption. If the plan already has such a page as work of a different sequence, the sequence
waits for the page. So requests with a common beginning that arrive together compute the beginning once. The page is
computed in this very step, so the waiting ends.

Several steps may be in flight: begun, and not finished. A request is *held* while a step in flight gives logits to one
of its sequences: it is in no other step, and loses no pages. A prompt's chunk without logits holds nothing, so the next
chunk goes into the next step. Decoding requests are spread evenly over the steps, whole requests at a time, because
forks share variables and hear of each other's tokens in the order of their steps.

A sequence whose last token is computed may have a *draft*: tokens after the last token that are computed in the same
step, to be sampled one after the other as far as the draft is right (`draft_walk`). Drafts take free pages only.
"""

import time
from bisect import insort
from collections import Counter
from collections.abc import Set as AbstractSet
from operator import attrgetter

from aici_base.ids import SeqId
from aici_engine.cache.kvcache import KVCache
from aici_engine.fair_shares import BACKGROUND, OVER, in_turn, without_background
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.sequences.group import SequenceGroup
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence
from aici_engine.speculation.speculator import NoSpeculator, Speculator
from aici_engine.step_plan import PlannedChunk, StepPlan

Groups = AbstractSet[SequenceGroup]
_NOBODY: Groups = frozenset()
_LEAST_CHUNK = 128
"""Tokens of prompts that a step of several in flight, or in the background, may compute in any case. Fewer tokens a
step read the weights too often."""
_CHUNKS_PER_STEP = 4
"""If several steps are in flight, prompts are cut into this many chunks for each step."""
_AGE = attrgetter("order")


class Scheduler:
    """Owns the waiting and the running sequences, by age, and their pages. Used by the engine's thread alone.
    Held requests: see above.

    `max_num_seqs`: sequences that compute in one step. `max_batch_tokens`: tokens of one step, at least `max_num_seqs`.
    `depth`: steps in flight at a time. `num_preemptions` and `num_reused` (prompt tokens found in the cache) count
    since the engine started.
    """

    def __init__(
        self,
        cache: KVCache,
        *,
        max_num_seqs: int,
        max_batch_tokens: int,
        prefill_budget: PrefillBudget,
        depth: int = 1,
        speculator: Speculator | None = None,
    ) -> None:
        if max_batch_tokens < max_num_seqs:
            raise AssertionError("a step has no room for a token of each sequence")
        self._cache = cache
        self._speculator = speculator or NoSpeculator()
        self._prefill_budget = prefill_budget
        self._max_num_seqs = max_num_seqs
        self._max_batch_tokens = max_batch_tokens
        self._depth = depth
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.num_reused = 0
        self._num_plans = 0

    def add(self, seq: Sequence) -> None:
        """The sequence waits for admission, behind older sequences and ahead of newer sequences."""
        seq.progress.phase = Phase.WAITING
        insort(self.waiting, seq, key=_AGE)

    def remove(self, seq: Sequence) -> None:
        """Forget an ended sequence, and free its pages. Idempotent."""
        if seq.progress.phase is Phase.RUNNING:
            now = time.monotonic()
            for other in self.waiting:
                if other.share.owner == seq.share.owner:
                    other.clock.wait_behind(now)
        seq.progress.phase = Phase.ENDED
        for queue in (self.waiting, self.running):
            if seq in queue:
                queue.remove(seq)
        self._cache.free(seq.seq_id)
        self._speculator.forget(seq.seq_id)

    def accept(self, seq: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` tokens are computed: a drafted token was sampled."""
        seq.progress.num_computed = num_tokens
        self._cache.advance(seq.seq_id, seq.tokens, num_tokens)

    def has_pages(self, seq: Sequence, num_tokens: int) -> bool:
        """Return whether the first `num_tokens` tokens have pages of their own or of a shared beginning."""
        return self._cache.num_missing(seq.seq_id, num_tokens) == 0

    def give_back(self, seq: Sequence) -> None:
        """Free the pages of drafted tokens that were not sampled."""
        if self._cache.holds(seq.seq_id):
            self._cache.truncate(seq.seq_id, seq.progress.num_computed)

    def settle(self, seq: Sequence) -> None:
        """Free the pages of tokens that were removed in this step, and leave the sequence a token to compute.

        If no token was appended, or tokens were removed, the last token is computed again for its logits.
        """
        if seq.num_pending == 0:
            seq.progress.num_computed -= 1
        if self._cache.holds(seq.seq_id) and seq.progress.num_computed < self._cache.num_cached(seq.seq_id):
            self._cache.truncate(seq.seq_id, seq.progress.num_computed)

    def admit(self, held: Groups = _NOBODY) -> None:
        """Move waiting sequences to running, oldest first.

        A sequence is admitted if the cache has pages for all its tokens, and it is among the `max_num_seqs` oldest
        sequences that run or wait. The first sequence without room ends the admission, so newer sequences do not
        overtake. If no active sequence runs, the oldest waiting sequence is admitted in any case.
        """
        if not self.waiting:
            return
        active = [seq for seq in self.running if not seq.guest.suspended]
        promised = sum(self._cache.num_missing(seq.seq_id, len(seq.tokens)) for seq in active)
        awake = [seq for seq in self.waiting if not seq.suspended]
        turns = in_turn(sorted([*active, *awake], key=_AGE))
        for seq in list(turns)[: self._max_num_seqs]:
            if seq.progress.phase is not Phase.WAITING:
                continue
            if turns[seq] == OVER:
                return
            if self._is_beyond_pages(seq):
                continue
            need = self._num_needed(seq)
            while need > self._cache.num_free_pages - promised:
                victim = self._newest_suspended(held) or self._newest_with_less_right(seq, turns, held)
                if victim is None:
                    break
                if not victim.suspended:
                    active.remove(victim)
                    promised -= self._cache.num_missing(victim.seq_id, len(victim.tokens))
                self._preempt(victim)
                # The sequence may have counted on pages of the victim.
                need = self._num_needed(seq)
            if active and need > self._cache.num_free_pages - promised:
                return
            self.waiting.remove(seq)
            self._cache.add(seq.seq_id, seq.salt)
            self._reuse(seq)
            self._run(seq)
            promised += self._cache.num_missing(seq.seq_id, len(seq.tokens))
            active.append(seq)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Run `child` with all computed tokens of `parent`, in the same pages. `parent` must be running."""
        child.progress.num_computed = parent.progress.num_computed
        self._cache.fork(parent.seq_id, child.seq_id)
        self._run(child)

    def put_off(self, held: Groups) -> Groups:
        """Return the requests that sit out the next step, so that all steps in flight decode about equally much.

        The requests that have waited longest for a step do not sit out.
        """
        if self._depth == 1:
            return _NOBODY
        active = without_background([seq for seq in self.running if not seq.suspended])
        decodes = Counter(seq.group for seq in active if seq.num_pending == 1 and seq.group not in held)
        last_plan = {group: max(seq.progress.last_plan for seq in group.members) for group in decodes}
        room = -(-len(active) // self._depth)
        put_off = set()
        for group in sorted(decodes, key=lambda group: last_plan[group]):
            if room <= 0:
                put_off.add(group)
            room -= decodes[group]
        return put_off

    def decide(self, held: Groups = _NOBODY, put_off: Groups = _NOBODY) -> StepPlan:
        """Return the plan of a step, and reserve the pages for its tokens.

        Suspended sequences compute nothing, nor do requests of `held` and `put_off`. Forks and sequences that woke may
        exceed `max_num_seqs`: then the newest sequences compute nothing.
        """
        plan = StepPlan()
        self._num_plans += 1
        turns = in_turn([seq for seq in self.running if not seq.guest.suspended])
        active = without_background([seq for seq, turn in turns.items() if turn < OVER])
        self._take_back_pages(active, held)
        if held or put_off:
            active = [seq for seq in active if seq.group not in held and seq.group not in put_off]
        del active[self._max_num_seqs :]
        for seq in active:
            if seq.num_pending > 1:
                self._reuse(seq)
        shares = self._share(active, held)
        for seq in active:
            num_tokens = shares.get(seq.seq_id, 0)
            # An older sequence may have taken the pages just now.
            if (
                num_tokens
                and seq.progress.phase is Phase.RUNNING
                and self._make_room(seq, num_tokens, plan, held, turns)
            ):
                seq.progress.last_plan = self._num_plans
                plan.chunks.append(PlannedChunk(seq, num_tokens, num_tokens == seq.num_pending))
        if plan.chunks:
            self._draft(plan)
        return plan

    def _draft(self, plan: StepPlan) -> None:
        """Add the drafts that fit into the step and into free pages."""
        drafts = self._speculator.drafts(plan)
        if not drafts:
            return
        room = self._max_batch_tokens - plan.num_tokens
        fitting = {}
        for seq, num_tokens, _ in plan.chunks:
            draft = drafts.get(seq.seq_id, [])[: max(0, room)]
            if draft and self._cache.reserve(seq.seq_id, seq.progress.num_computed + num_tokens + len(draft)):
                fitting[seq.seq_id] = draft
                room -= len(draft)
            elif seq.seq_id in drafts:
                self._cache.truncate(seq.seq_id, seq.progress.num_computed + num_tokens)
        plan.drafts = fitting

    def advance(self, plan: StepPlan) -> None:
        """The forward pass of `plan` has begun: for all later steps, the keys and values of its tokens are written."""
        for seq, num_tokens, _ in plan.chunks:
            seq.progress.num_computed += num_tokens
            self._cache.advance(seq.seq_id, seq.transcript.tokens, seq.progress.num_computed)

    def expected_s(self, plan: StepPlan) -> float:
        """Return about how long the forward pass of `plan` takes; 0 if nothing is known yet."""
        decodes = sum(chunk.num_tokens == 1 for chunk in plan.chunks)
        others = sum(chunk.num_tokens for chunk in plan.chunks) - decodes
        return self._prefill_budget.expected_s(num_decodes=decodes, num_others=others)

    def record_time(self, plan: StepPlan, time_s: float) -> None:
        """The forward pass and the sampling of `plan` took `time_s` seconds, not counting the steps before."""
        self._speculator.record_time(plan, time_s)
        if plan.drafts:
            return
        decodes = sum(chunk.num_tokens == 1 for chunk in plan.chunks)
        others = sum(chunk.num_tokens for chunk in plan.chunks) - decodes
        self._prefill_budget.record_step(time_s, num_decodes=decodes, num_others=others)

    def record_walk(self, num_rows: int, time_s: float, *, with_guests: bool) -> None:
        """Sampling `num_rows` rows of drafted tokens took `time_s` seconds after the step, their guests included."""
        self._speculator.record_walk(num_rows, time_s, with_guests=with_guests)

    def _share(self, active: list[Sequence], held: Groups) -> dict[SeqId, int]:
        """Return the number of tokens to compute, by sequence."""
        shares = {seq.seq_id: 1 for seq in active if seq.num_pending == 1}
        late = [seq for seq in active if seq.num_pending > 1]
        budget = self._max_batch_tokens - len(shares)
        # The decoding sequences of the steps before wait for a step of prompts alone.
        num_decodes = len(shares) or sum(not seq.suspended for seq in self.running if seq.group in held)
        if (most := self._prefill_budget.max_prompt_tokens(num_decodes)) is not None:
            budget = min(budget, most)
        if late and late[0].clock.is_background:
            # A request that arrives now waits for the end of this step.
            budget = min(budget, _LEAST_CHUNK)
        if self._depth > 1:
            # A prompt computed in one step would keep one stage busy at a time.
            num_pending = sum(seq.num_pending for seq in late)
            budget = min(budget, max(_LEAST_CHUNK, -(-num_pending // (_CHUNKS_PER_STEP * self._depth))))
        begun: dict[object, Sequence] = {}
        # The oldest sequence stands in the list twice: it may take a part of the other half too.
        for turn, seq in enumerate([*late[:1], *sorted(late, key=lambda seq: seq.num_pending)]):
            page = self._cache.next_page(seq.seq_id, seq.tokens, seq.num_reusable)
            if page is not None and begun.setdefault(page, seq) is not seq:
                continue
            had = shares.get(seq.seq_id, 0)
            more = min(seq.num_pending - had, -(-budget // 2) if turn == 0 else budget)
            shares[seq.seq_id] = had + more
            budget -= more
        return shares

    def _make_room(
        self, seq: Sequence, num_tokens: int, plan: StepPlan, held: Groups, turns: dict[Sequence, float]
    ) -> bool:
        while not self._cache.reserve(seq.seq_id, seq.progress.num_computed + num_tokens):
            # A suspended sequence, and the newest running sequence, are not in the plan yet: the plan stays valid.
            victim = self._newest_suspended(held) or next(
                each for each in reversed(turns) if self._may_stop(each, held)
            )
            if victim is seq and held:
                # Newer sequences may be held: they can be preempted once the steps in flight have ended.
                return False
            self._preempt(victim)
            plan.preempted.append(victim.seq_id)
            if victim is seq:
                return False
        return True

    def restart(self) -> None:
        """The contents of all pages are lost: running sequences wait for admission, to be computed anew.

        No request may be held.
        """
        for seq in list(self.running):
            self._give_up_pages(seq)
        self._cache.clear()

    def _preempt(self, seq: Sequence) -> None:
        self.num_preemptions += 1
        self._give_up_pages(seq)

    def _give_up_pages(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._cache.free(seq.seq_id)
        seq.progress.num_lost = max(seq.progress.num_lost, seq.progress.num_computed)
        seq.progress.num_computed = 0
        self.add(seq)

    def _num_needed(self, seq: Sequence) -> int:
        """Return the number of free pages that an admission takes. Pages held by others are shared."""
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
        insort(self.running, seq, key=_AGE)

    def _newest_with_less_right(self, seq: Sequence, turns: dict[Sequence, float], held: Groups) -> Sequence | None:
        """Return the running sequence that gives its pages to the waiting `seq`: the newest with a later turn and
        another owner, or in the background while `seq` is not."""
        for other in reversed(turns):
            if turns[other] <= turns[seq]:
                return None
            has_less_right = other.share.owner != seq.share.owner or turns[other] >= BACKGROUND > turns[seq]
            if has_less_right and self._may_stop(other, held):
                return other
        return None

    def _is_beyond_pages(self, seq: Sequence) -> bool:
        """Return whether the owner may hold fewer pages than it would with `seq`. A sequence alone is never beyond."""
        if seq.share.pages is None:
            return False
        owned = [other for other in self.running if other.share.owner == seq.share.owner]
        return bool(owned) and self._num_pages([*owned, seq]) > seq.share.pages

    def _take_back_pages(self, active: list[Sequence], held: Groups) -> None:
        """Preempt the newest sequences of owners who hold too many pages, and take them out of `active`."""
        for seq in reversed(list(active)):
            if seq.share.pages is None:
                continue
            owned = [other for other in self.running if other.share.owner == seq.share.owner]
            if len(owned) > 1 and self._num_pages(owned) > seq.share.pages and self._may_stop(seq, held):
                self._preempt(seq)
                active.remove(seq)

    def _num_pages(self, seqs: list[Sequence]) -> int:
        return sum(self._cache.num_pages_for(len(seq.tokens)) for seq in seqs)

    def _may_stop(self, seq: Sequence, held: Groups) -> bool:
        return seq.progress.phase is Phase.RUNNING and seq.group not in held

    def _newest_suspended(self, held: Groups) -> Sequence | None:
        return next((seq for seq in reversed(self.running) if seq.suspended and seq.group not in held), None)
