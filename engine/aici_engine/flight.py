"""The second part of a step: the forward pass, while guests compute their masks. A step in this part is a flight.

Flights end in the order of their start. The executor computes in the same order, so a flight may read what earlier
flights have not written yet, pages may be freed and reused while a flight uses them, and only the logits are waited
for.
"""

import itertools
import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aici_base.errors import AiciError
from aici_base.ids import SeqId
from aici_engine.cache.kvcache import KVCache
from aici_engine.control.session import GuestAnswer, GuestSession, NewFork
from aici_engine.early_guests import EarlyGuests
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.executor import Executor, PendingStep, StateLostError
from aici_engine.heartbeat import Heartbeat
from aici_engine.live_sequences import LiveSequences
from aici_engine.pooling import FinalStates
from aici_engine.profile import Profile
from aici_engine.sample.logprobs import num_rows
from aici_engine.sample.sampler import Sampler
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.group import SequenceGroup
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_input import Chunk, PageCopy, StepInput
from aici_engine.step_plan import StepPlan

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Flight:
    """A step that has begun and not ended.

    `held`: the requests with logits or final states in the flight. `answers`: see `GuestSession.answers`; `None` before
    the guests' answers are received. `pending`: the forward pass, or `None` if the pass failed to begin. `wanted[i]`:
    rows of logits and final states for chunk i of the plan. `began_at`: by the monotonic clock. `ended_at`: the end of
    the pass, for a pass beside which guests may join; 0 for others.
    """

    plan: StepPlan
    held: set[SequenceGroup]
    new_forks: list[NewFork]
    began_at: float = 0.0
    answers: dict[SeqId, GuestAnswer] | None = None
    ended_at: float = 0.0
    pending: PendingStep | None = None
    wanted: list[tuple[int, int]] = field(default_factory=list)

    def sequences(self) -> list[Sequence]:
        return [*(chunk.seq for chunk in self.plan.chunks), *(fork.child for fork in self.new_forks)]


@dataclass(frozen=True, slots=True)
class FlightResult:
    """The result of a flight's forward pass and guests, before sampling.

    `rows[i]`: the rows of logits for chunk i of the plan, in the sampler's form; a GPU may still compute the numbers.
    The rows of drafted tokens are the last.
    `rows` is empty if the forward pass failed; then all sequences of the plan are marked to end. `spoiled`: the pass
    failed after it had begun, so pages do not hold what the cache says. `answers`: see `GuestSession.answers`.
    `began_at`: by the monotonic clock. `forward_s`: seconds from then to the logits. `waited_s`: seconds that the
    engine waited for guests after the forward pass.
    `states[i]`: the final states for chunk i of the plan, `num_states` rows; empty if no chunk wants states.
    """

    plan: StepPlan
    rows: list[list[Any]]
    spoiled: bool
    answers: dict[SeqId, GuestAnswer]
    new_forks: list[NewFork]
    began_at: float
    forward_s: float
    waited_s: float
    states: list[FinalStates] = field(default_factory=list)

    def family(self, seq: Sequence) -> list[Sequence]:
        """Return the sequence and its forks of this step. The family shares a row of logits."""
        return [seq, *(fork.child for fork in self.new_forks if fork.parent is seq)]


class FlightRunner:
    """Owns the flights, oldest first. `len` is their number."""

    def __init__(
        self,
        *,
        executor: Executor,
        cache: KVCache,
        scheduler: Scheduler,
        session: GuestSession,
        sampler: Sampler[Any],
        output: EventOutput,
        live: LiveSequences,
        early: EarlyGuests,
        profile: Profile,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._executor = executor
        self._cache = cache
        self._scheduler = scheduler
        self._session = session
        self._sampler = sampler
        self._output = output
        self._live = live
        self._early = early
        self._profile = profile
        self._heartbeat = heartbeat or Heartbeat()
        self._flights: deque[Flight] = deque()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="aici-beside")
        """Talks to guests while the engine's thread computes a pass."""

    def __len__(self) -> int:
        return len(self._flights)

    def sequences(self) -> Iterator[Sequence]:
        """Yield the sequences in flight; a sequence may come more than once."""
        for flight in self._flights:
            yield from flight.sequences()

    def receive_answers(self) -> None:
        """Receive the answers that guests owe. Call before any other message to the guests."""
        # Only the newest flight's guests can owe an answer.
        if self._flights and self._flights[-1].answers is None:
            answers = self._read_answers()
            self._flights[-1].answers = {seq_id: answer.copy() for seq_id, answer in answers.items()}

    def begin(self, plan: StepPlan) -> None:
        """Ask the guests, and begin the forward pass. Raises StateLostError, with the flight among the flights."""
        held = {
            seq.group for seq, num_tokens, samples in plan.chunks
            if any(_wanted(seq, seq.progress.num_computed + num_tokens, samples=samples))
        }  # fmt: skip
        self._live.held |= held
        flight = Flight(plan, held, self._ask_guests(plan))
        self._flights.append(flight)
        self._profile.lap("ask")
        flight.began_at = time.monotonic()
        try:
            step = self._step_input(plan)
            self._profile.lap("batch")
            flight.wanted = [(chunk.num_logits, chunk.num_states) for chunk in step.chunks]
            self._heartbeat.compute(plan.num_tokens)
            flight.pending = self._begin_beside_guests(flight, step)
            self._profile.lap("forward")
            self._scheduler.advance(plan)
            self._profile.lap("commit")
        except StateLostError:
            raise
        except Exception as error:  # noqa: BLE001 the engine loop's: a failure costs the requests of this step
            self._fail(flight, error)

    def finish(self) -> FlightResult:
        """Wait for the logits of the oldest flight, then for the answers of its guests.

        Raises StateLostError, with the flight among the flights.
        """
        flight = self._flights[0]
        rows, states = self._rows(flight)
        self._heartbeat.computed()
        self._profile.lap("forward")
        began = flight.ended_at or time.monotonic()
        answers = self._read_answers() if flight.answers is None else flight.answers
        if early := self._early_of(flight.plan):
            answers = self._join(
                early, answers, is_alone=len(early) == len(flight.plan.chunks), step_s=began - flight.began_at
            )
        waited_s = time.monotonic() - began
        self._profile.lap("answers")
        self._remove(flight)
        spoiled = flight.pending is not None and not rows
        return FlightResult(
            flight.plan, rows, spoiled, answers, flight.new_forks,
            began_at=flight.began_at, forward_s=began - flight.began_at, waited_s=waited_s, states=states,
        )  # fmt: skip

    def _early_of(self, plan: StepPlan) -> list[Sequence]:
        """Return the sequences with logits in the step whose guests start."""
        return self._early.those_of([chunk.seq for chunk in plan.chunks if chunk.samples])

    def _begin_beside_guests(self, flight: Flight, step: StepInput) -> PendingStep:
        """Begin the forward pass. If the executor computes in C, guests that start meanwhile join."""
        early = self._early_of(flight.plan) if self._executor.computes_in_c else []
        if not early:
            return self._executor.begin(step)
        # The other thread has the session to itself: this thread computes, and touches neither guests nor the cache.
        talk = self._beside.submit(self._join_beside, flight, early)
        try:
            return self._executor.begin(step)
        finally:
            flight.ended_at = time.monotonic()
            self._profile.lap("forward")
            self._early.wake()
            talk.result()
            self._profile.lap("answers")

    def _join_beside(self, flight: Flight, early: list[Sequence]) -> None:
        """Receive the answers that guests owe, and those of guests that join until the pass is over."""
        self.receive_answers()
        assert flight.answers is not None
        until = flight.began_at + self._scheduler.expected_s(flight.plan)
        flight.answers |= self._early.join_beside(early, is_over=lambda: flight.ended_at > 0.0, until=until)

    def _join(
        self, early: list[Sequence], answers: dict[SeqId, GuestAnswer], *, is_alone: bool, step_s: float
    ) -> dict[SeqId, GuestAnswer]:
        """Let guests join that have started meanwhile. The sequences of the others wait. Return all answers."""
        # The next message to the runtime overwrites the masks.
        kept = {seq_id: answer.copy() for seq_id, answer in answers.items()}
        kept |= self._early.join(early, is_alone=is_alone, step_s=step_s)
        for seq in self._early.those_of(early):
            self._early.miss(seq)
            self._session.wait_for_start(seq)
        return kept

    def abandon(self) -> None:
        """Give up all flights. Their guests are heard, and their new forks run; no sequence gets a token."""
        self.receive_answers()
        for flight in list(self._flights):
            for fork in flight.new_forks:
                if fork.child.ending is None:
                    self._scheduler.fork(fork.parent, fork.child)
            self._session.keep(flight.answers or {})
            self._remove(flight)

    def drop(self) -> None:
        """Forget all flights. All sequences must end now."""
        self.receive_answers()
        self._flights.clear()
        self._live.held.clear()

    def close(self) -> None:
        self._beside.shutdown()

    def drain(self) -> None:
        """Wait for the forward passes of all flights, which shall be abandoned. Raises StateLostError."""
        for flight in self._flights:
            if flight.pending is not None:
                try:
                    flight.pending.logits()
                except StateLostError:
                    raise
                except Exception as error:  # noqa: BLE001 the engine loop's: its requests are computed anew
                    _log.warning("an abandoned forward pass failed: %s", error)

    def _remove(self, flight: Flight) -> None:
        self._flights.popleft()
        self._live.held -= flight.held

    def _ask_guests(self, plan: StepPlan) -> list[NewFork]:
        """Let guests begin to compute their masks. Return the new forks."""
        asked = [chunk.seq for chunk in plan.chunks if chunk.samples and chunk.seq.guest.bound]
        new_forks: list[NewFork] = []
        expected_s = self._scheduler.expected_s(plan)
        self._live.talk(lambda seqs: new_forks.extend(self._session.ask(seqs, expected_s)), asked)
        for fork in new_forks:
            self._live.add(fork.child)
            self._output.forked(fork.child, fork.parent, fork.begin)
        return new_forks

    def _step_input(self, plan: StepPlan) -> StepInput:
        """Return the plan in the executor's form: tokens, positions and pages."""
        chunks = []
        for seq, num_tokens, samples in plan.chunks:
            start = seq.progress.num_computed
            end = start + num_tokens
            pages = self._cache.page_table(seq.seq_id)
            num_logits, num_states = _wanted(seq, end, samples=samples)
            draft = plan.drafts.get(seq.seq_id, [])
            tokens = seq.transcript.tokens[start:end] + draft
            chunks.append(Chunk(seq.seq_id, tokens, start, pages, num_logits + len(draft), num_states))
        copies = [PageCopy(*copy) for copy in self._cache.take_copies()]
        return StepInput(chunks, copies, self._cache.take_forgotten())

    def _rows(self, flight: Flight) -> tuple[list[list[Any]], list[FinalStates]]:
        """Return the rows of logits and the final states of every chunk. Empty if the forward pass failed."""
        if flight.pending is None:
            return [], []
        try:
            rows = iter(self._sampler.rows(flight.pending.logits()))
            states: list[FinalStates] = []
            if any(num_states for _, num_states in flight.wanted):
                ends = itertools.accumulate(num_states for _, num_states in flight.wanted)
                states = np.split(flight.pending.states(), list(ends)[:-1])
            return [list(itertools.islice(rows, num_logits)) for num_logits, _ in flight.wanted], states
        except StateLostError:
            raise
        except Exception as error:  # noqa: BLE001 the engine loop's: a failure costs the requests of this step
            self._fail(flight, error)
            return [], []

    def _fail(self, flight: Flight, error: Exception) -> None:
        _log.error("a forward pass failed", exc_info=error)
        for seq in flight.sequences():
            seq.end(FinishReason.FAIL, AiciError(f"the model failed: {error}"))

    def _read_answers(self) -> dict[SeqId, GuestAnswer]:
        answers: dict[SeqId, GuestAnswer] = {}
        self._live.talk(lambda _: answers.update(self._session.answers()), None)
        return answers


def _wanted(seq: Sequence, end: int, *, samples: bool) -> tuple[int, int]:
    """Return how many rows of logits and how many final states a chunk up to position `end` gives."""
    if seq.pooling is not None:
        return 0, seq.pooling.num_states(end)
    return max(int(samples), num_rows(seq, end)), 0
