"""Which sequences of a step draft how many tokens.

A draft makes its own stream faster and the others of the step slower. Drafts are worth their time if the streams of the
step are expected to be faster in the geometric mean: by the sum of all tokens a second, a stream that repeats its
prompt could slow down fifteen that do not. The times of passes are measured (`pass_times`), what follows the pass for
each right token (`walk_times`), and the probabilities too (`hit_rates`). So nothing is drafted where a pass is
compute-bound already (in large batches, and beside prompts), or where a guest takes longer than the pass. A search that
finds nothing costs time too: `search_pace`.
"""

import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from math import exp, log, log1p
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from aici_base.ids import SeqId
from aici_engine.sequences.sequence import Sequence
from aici_engine.speculation.ngram_drafter import Draft, NgramDrafter
from aici_engine.speculation.pass_times import PassTimes
from aici_engine.speculation.search_pace import SearchPace
from aici_engine.speculation.walk_times import WalkTimes
from aici_engine.step_plan import Drafts, StepPlan

MOST_A_SEQUENCE: Final = 15
_MOST_A_STEP: Final = 32
_MOST_PENDING: Final = 8
"""A step with more pending tokens of a sequence has a prompt."""
_LEAST_GAIN: Final = 1.05
"""The least gain in the speed of streams: times are measured on a busy machine."""
_CHECK: Final = 64
"""After so many passes with drafts, a pass without drafts is measured again."""
_KEPT: Final = 8
"""What drafts cost is worked out anew after so many passes: the times of passes change slowly."""
_IF_FASTER: Final = 0.3
_IF_SLOWER: Final = 0.1
"""The weight of the newest search in the moving average, if the search was slower than the average."""
_MOST_SLOWER: Final = 2.0
"""A search counts at most so many times the average: the first search of a text reads the whole text."""
_LEAST_S: Final = 1e-6
"""A search takes at least so many seconds, whatever the clock says."""


class Speculator(Protocol):
    """Owned by the scheduler. Used by the engine's thread alone."""

    def drafts(self, plan: StepPlan) -> Drafts:
        """Return the drafted tokens of the sequences that shall have any.

        An empty draft gives the pages back that were reserved for a draft.
        """

    def record_time(self, plan: StepPlan, time_s: float) -> None:
        """The pass of `plan` took `time_s` seconds."""

    def record_walk(self, num_rows: int, time_s: float, *, with_guests: bool) -> None:
        """After a pass, `num_rows` rows of drafted tokens were sampled in `time_s` seconds."""

    def forget(self, seq_id: SeqId) -> None:
        """The sequence has ended. Idempotent."""


class NoSpeculator(Speculator):
    """The null implementation: no drafts."""

    def drafts(self, plan: StepPlan) -> Drafts:  # noqa: ARG002
        return {}

    def record_time(self, plan: StepPlan, time_s: float) -> None: ...

    def record_walk(self, num_rows: int, time_s: float, *, with_guests: bool) -> None: ...

    def forget(self, seq_id: SeqId) -> None: ...


class Costs(NamedTuple):
    """`passes_s[k]`: a pass with k drafted tokens. `least_speed`: tokens a second of a stream (geometric mean) that a
    step with drafts must exceed. `least_probability`: a less likely token costs more than the token is worth."""

    passes_s: list[float]
    least_speed: float
    least_probability: float


class _Chosen(NamedTuple):
    """Drafts, and the seconds that each is expected to save."""

    drafts: Drafts
    saved_s: Mapping[SeqId, float]


class NgramSpeculator(Speculator):
    """Prompt lookup for all sequences that may draft (`may_draft`). `stems`: see `NgramDrafter`."""

    def __init__(self, stems: Seq[int] = ()) -> None:
        self._stems = stems
        self._drafters: dict[SeqId, NgramDrafter] = {}
        self._paces: dict[SeqId, SearchPace] = {}
        self._search_s = 0.0
        """About how long the search for a draft of one sequence takes; 0 before the first search."""
        self._times = PassTimes()
        self._walks = WalkTimes()
        self._known_costs: dict[tuple[int, int], Costs | None] = {}
        """By the numbers of tokens and sequences of a step."""

    def drafts(self, plan: StepPlan) -> Drafts:
        costs = self._costs(plan)
        if costs is None:
            return {}
        seqs = [chunk.seq for chunk in plan.chunks if self._pace(chunk.seq).is_due() and may_draft(chunk.seq)]
        if not seqs:
            return {}
        began = time.perf_counter()
        chosen = self._choose_drafts(plan, seqs, costs)
        self._record_search(max(_LEAST_S, time.perf_counter() - began) / len(seqs))
        for seq in seqs:
            self._pace(seq).record(chosen.saved_s.get(seq.seq_id, 0.0), self._search_s)
        return chosen.drafts

    def record_time(self, plan: StepPlan, time_s: float) -> None:
        if not plan.drafts:
            self._walks.fade()
        if not has_prompt(plan):
            is_new = self._times.age(plan.num_tokens) is None
            self._times.record(plan.num_tokens, time_s)
            if is_new or self._times.num_passes % _KEPT == 0:
                self._known_costs.clear()

    def record_walk(self, num_rows: int, time_s: float, *, with_guests: bool) -> None:
        self._walks.record(num_rows, time_s, with_guests=with_guests)

    def forget(self, seq_id: SeqId) -> None:
        self._drafters.pop(seq_id, None)
        self._paces.pop(seq_id, None)

    def _record_search(self, time_s: float) -> None:
        known_s = self._search_s or time_s
        weight = _IF_FASTER if time_s < known_s else _IF_SLOWER
        self._search_s = known_s + weight * (min(time_s, _MOST_SLOWER * known_s) - known_s)

    def _pace(self, seq: Sequence) -> SearchPace:
        return self._paces.get(seq.seq_id) or self._paces.setdefault(seq.seq_id, SearchPace())

    def _choose_drafts(self, plan: StepPlan, seqs: list[Sequence], costs: Costs) -> _Chosen:
        """Return the drafts for those of `seqs` for which drafts pay."""
        num_seqs = len(plan.chunks)
        found = self._find(seqs, costs, num_seqs=num_seqs)
        walks_s = {seq.seq_id: self._walk_s(seq) for seq in seqs if seq.seq_id in found}
        return _choose(found, walks_s, costs, num_seqs=num_seqs)

    def _find(self, seqs: list[Sequence], costs: Costs, *, num_seqs: int) -> dict[SeqId, Draft]:  # noqa: ARG002
        """Return the drafts of those of `seqs` that have any. `num_seqs`: of the step."""
        drafts = {seq.seq_id: self._draft(seq, costs.least_probability) for seq in seqs}
        return {seq_id: draft for seq_id, draft in drafts.items() if draft.tokens}

    def _walk_s(self, seq: Sequence) -> float:
        """Return about how many seconds a right token of the sequence takes after the pass."""
        return self._walks.expected_s(with_guest=seq.controller is not None)

    def _draft(self, seq: Sequence, least_probability: float) -> Draft:
        drafter = self._drafters.get(seq.seq_id)
        if drafter is None:
            drafter = NgramDrafter(seq.prediction, prompt_len=seq.transcript.prompt_len, stems=self._stems)
            self._drafters[seq.seq_id] = drafter
        drafter.read(seq.tokens)
        # The token after the last drafted token is sampled too.
        return drafter.draft(min(MOST_A_SEQUENCE, seq.room - 1), least_probability)

    def _costs(self, plan: StepPlan) -> Costs | None:
        """Return what drafts cost in a step; None if nothing shall be drafted: the step has a prompt, or not even right
        drafts can pay, or the step measures the time without drafts."""
        age = self._times.age(plan.num_tokens)
        if has_prompt(plan) or age is None or age >= _CHECK:
            return None
        sizes = plan.num_tokens, len(plan.chunks)
        if sizes not in self._known_costs:
            self._known_costs[sizes] = self._work_out_costs(*sizes)
        return self._known_costs[sizes]

    def _work_out_costs(self, num_tokens: int, num_seqs: int) -> Costs | None:
        time_s = self._times.expected_s(num_tokens)
        if time_s is None:
            return None
        passes_s = [time_s]
        least_speed, least_probability, can_pay = _LEAST_GAIN / time_s, 1.0, False
        for num_drafted in range(1, min(_MOST_A_STEP, num_seqs * MOST_A_SEQUENCE) + 1):
            pass_s = self._times.expected_s(num_tokens + num_drafted) or time_s
            passes_s.append(pass_s)
            can_pay = can_pay or 1 + num_drafted / num_seqs > least_speed * pass_s
            least_probability = min(least_probability, log(pass_s / time_s) * num_seqs / num_drafted)
        return Costs(passes_s, least_speed, least_probability) if can_pay else None


def _choose(found: Mapping[SeqId, Draft], walks_s: Mapping[SeqId, float], costs: Costs, *, num_seqs: int) -> _Chosen:
    """Return as much of the drafts as pays: those tokens first that speed their streams up most.

    `walks_s`: seconds a right token after the pass.
    """
    gains = _gains(found, most=len(costs.passes_s) - 1)
    best_speed, best = costs.least_speed, 0
    sum_gains, walk_s = 0.0, 0.0
    for num_drafted, (gain, probability, seq_id) in enumerate(gains, 1):
        sum_gains += gain
        walk_s += probability * walks_s[seq_id]
        speed = exp(sum_gains / num_seqs) / (costs.passes_s[num_drafted] + walk_s)
        if speed > best_speed:
            best_speed, best = speed, num_drafted
    lengths: dict[SeqId, int] = {}
    saved_s: dict[SeqId, float] = {}
    if best:
        sum_gains = sum(gain for gain, _, _ in gains[:best])
        saved_each_s = exp(sum_gains / num_seqs) * (costs.passes_s[0] - 1 / best_speed) / sum_gains
        for gain, _, seq_id in gains[:best]:
            lengths[seq_id] = lengths.get(seq_id, 0) + 1
            saved_s[seq_id] = saved_s.get(seq_id, 0.0) + gain * saved_each_s
    return _Chosen({seq_id: found[seq_id].tokens[:length] for seq_id, length in lengths.items()}, saved_s)


def _gains(found: Mapping[SeqId, Draft], *, most: int) -> list[tuple[float, float, SeqId]]:
    """Return the drafted tokens with the largest gains: gain, probability and sequence. A gain is the logarithm of how
    much faster the token makes its stream. A token never comes before an earlier token of its sequence."""
    gains = []
    for seq_id, draft in found.items():
        expected = 1.0
        for probability in draft.probabilities:
            gains.append((log1p(probability / expected), probability, seq_id))
            expected += probability
    # The sort is stable, and gains fall along a draft.
    return sorted(gains, key=itemgetter(0), reverse=True)[:most]


def has_prompt(plan: StepPlan) -> bool:
    """Return whether the step computes a part of a prompt. Nothing is drafted then."""
    return any(not chunk.samples or chunk.num_tokens > _MOST_PENDING for chunk in plan.chunks)


def may_draft(seq: Sequence) -> bool:
    """Return whether several tokens of the sequence may be sampled after one pass.

    Forks share variables and hear of each other's tokens, so a request with forks goes on a token at a time.
    """
    guest = seq.guest
    return (
        seq.pooling is None
        and seq.sampler.prompt_scores is None
        and seq.room > 1
        and (seq.controller is None or (not guest.starting and len(seq.group.members) == 1 and guest.num_branches == 1))
    )
