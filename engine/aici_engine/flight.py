"""The second part of a step: the forward pass, while guests compute their masks."""

import itertools
import logging
import time
from dataclasses import dataclass
from typing import Any

from aici_base.errors import AiciError
from aici_base.ids import SeqId
from aici_engine.cache.kvcache import KVCache
from aici_engine.control.session import GuestAnswer, GuestSession, NewFork
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.executor import Executor, PendingStep
from aici_engine.live_sequences import LiveSequences
from aici_engine.profile import Profile
from aici_engine.sample.logprobs import num_rows
from aici_engine.sample.sampler import Sampler
from aici_engine.scheduler import Scheduler, StepPlan
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_input import Chunk, PageCopy, StepInput

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Flight:
    """A step that has begun and not ended.

    `pending`: the forward pass, or `None` if the pass failed to begin; then all sequences of the plan are marked to
    end. `num_logits[i]`: rows of logits for chunk i of the plan. `begin_s`: seconds that the beginning of the pass took
    on the engine's thread.
    """

    plan: StepPlan
    new_forks: list[NewFork]
    num_logits: list[int]
    pending: PendingStep | None = None
    begin_s: float = 0.0

    def sequences(self) -> list[Sequence]:
        return [*(chunk.seq for chunk in self.plan.chunks), *(fork.child for fork in self.new_forks)]


@dataclass(frozen=True, slots=True)
class FlightResult:
    """The result of a flight's forward pass and guests, before sampling.

    `rows[i]`: the rows of logits for chunk i of the plan, in the sampler's form; a GPU may still compute the numbers.
    `rows` is empty if the forward pass failed; then all sequences of the plan are marked to end. `answers`: see
    `GuestSession.answers`. `forward_s`: seconds of the forward pass on the engine's thread.
    """

    plan: StepPlan
    rows: list[list[Any]]
    answers: dict[SeqId, GuestAnswer]
    new_forks: list[NewFork]
    forward_s: float

    def family(self, seq: Sequence) -> list[Sequence]:
        """Return the sequence and its forks of this step. The family shares a row of logits."""
        return [seq, *(fork.child for fork in self.new_forks if fork.parent is seq)]


class FlightRunner:
    """Begins and finishes flights."""

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
        profile: Profile,
    ) -> None:
        self._executor = executor
        self._cache = cache
        self._scheduler = scheduler
        self._session = session
        self._sampler = sampler
        self._output = output
        self._live = live
        self._profile = profile

    def begin(self, plan: StepPlan) -> Flight:
        """Ask the guests, and begin the forward pass."""
        flight = Flight(plan, self._ask_guests(plan), [])
        self._profile.lap("ask")
        began = time.monotonic()
        try:
            step = self._step_input(plan)
            self._profile.lap("batch")
            flight.num_logits = [chunk.num_logits for chunk in step.chunks]
            flight.pending = self._executor.begin(step)
            self._profile.lap("forward")
            self._scheduler.advance(plan)
            self._profile.lap("commit")
        except Exception as error:  # noqa: BLE001 the engine loop's: a failure costs the requests of this step
            self._fail(flight, error)
        flight.begin_s = time.monotonic() - began
        return flight

    def finish(self, flight: Flight) -> FlightResult:
        """Wait for the logits, then read the guests' answers."""
        began = time.monotonic()
        rows = self._rows(flight)
        forward_s = flight.begin_s + time.monotonic() - began
        self._profile.lap("forward")
        answers = self._read_answers()
        self._profile.lap("answers")
        return FlightResult(flight.plan, rows, answers, flight.new_forks, forward_s)

    def _ask_guests(self, plan: StepPlan) -> list[NewFork]:
        """Let guests begin to compute their masks. Return the new forks."""
        asked = [chunk.seq for chunk in plan.chunks if chunk.samples and chunk.seq.controller is not None]
        new_forks: list[NewFork] = []
        self._live.talk(lambda seqs: new_forks.extend(self._session.ask(seqs)), asked)
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
            num_logits = max(int(samples), num_rows(seq, end))
            chunks.append(Chunk(seq.seq_id, seq.transcript.tokens[start:end], start, pages, num_logits))
        copies = [PageCopy(*copy) for copy in self._cache.take_copies()]
        return StepInput(chunks, copies, self._cache.take_forgotten())

    def _rows(self, flight: Flight) -> list[list[Any]]:
        """Return the rows of every chunk. Empty if the forward pass failed."""
        if flight.pending is None:
            return []
        try:
            rows = iter(self._sampler.rows(flight.pending.logits()))
            return [list(itertools.islice(rows, num_logits)) for num_logits in flight.num_logits]
        except Exception as error:  # noqa: BLE001 the engine loop's: a failure costs the requests of this step
            self._fail(flight, error)
            return []

    def _fail(self, flight: Flight, error: Exception) -> None:
        _log.error("a forward pass failed", exc_info=error)
        for seq in flight.sequences():
            seq.end(FinishReason.FAIL, AiciError(f"the model failed: {error}"))

    def _read_answers(self) -> dict[SeqId, GuestAnswer]:
        answers: dict[SeqId, GuestAnswer] = {}
        self._live.talk(lambda _: answers.update(self._session.answers()), None)
        return answers
