"""The engine's thread: read commands, then plan, compute and commit a step, again and again.

The computing of several steps may overlap (see `flight`): the engine plans a step while earlier steps are computed.
"""

import time
from typing import TYPE_CHECKING, Any

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.control.session import GuestSession
from aici_engine.draft_walk import DraftWalks
from aici_engine.engine_loop import FUEL_PER_CONTEXT, EngineLoop
from aici_engine.event_output import EventOutput
from aici_engine.executor import Executor, StateLostError
from aici_engine.flight import FlightRunner
from aici_engine.heartbeat import Heartbeat
from aici_engine.recovery import Recovery
from aici_engine.run_ahead import RunAhead
from aici_engine.sample.sampler import Sampler
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_committer import StepCommitter
from aici_engine.step_plan import StepPlan

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop(EngineLoop):
    """Owns the executor.

    The EOS tokens: see `StepCommitter`.
    """

    def __init__(
        self,
        *,
        executor: Executor,
        cache: KVCache,
        scheduler: Scheduler,
        session: GuestSession,
        sampler: Sampler[Any],
        output: EventOutput,
        eos_tokens: frozenset[TokenId],
        eos_for_guests: TokenId,
        kept_eos: TokenId | None,
        replay_timeout_s: float = 30.0,
        heartbeat: Heartbeat | None = None,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> None:
        heartbeat = heartbeat or Heartbeat()
        super().__init__(queue_=scheduler, session=session, output=output, heartbeat=heartbeat, clock=clock)
        self._scheduler = scheduler
        self._executor = executor
        self._cache = cache
        self._runner = FlightRunner(
            executor=executor,
            cache=cache,
            scheduler=scheduler,
            session=session,
            sampler=sampler,
            output=output,
            live=self._live,
            early=self._early,
            profile=self.profile,
            heartbeat=heartbeat,
        )
        self._walks = DraftWalks(scheduler=scheduler, session=session, live=self._live, profile=self.profile)
        ahead = RunAhead(executor=executor, cache=cache, scheduler=scheduler)
        self._committer = StepCommitter(
            queue=scheduler,
            session=session,
            sampler=sampler,
            output=output,
            live=self._live,
            profile=self.profile,
            eos_tokens=eos_tokens,
            eos_for_guests=eos_for_guests,
            kept_eos=kept_eos,
            max_fuel=FUEL_PER_CONTEXT * executor.context,
            walks=self._walks,
            run_ahead=ahead if executor.goes_ahead else None,
            asks_early=executor.depth == 1,
        )
        self._recovery = Recovery(
            executor=executor, runner=self._runner, scheduler=scheduler, live=self._live, timeout_s=replay_timeout_s
        )
        executor.watch(lambda loss: self._inbox.put(lambda: self._lose_state(loss)))

    @property
    def tokens_generated(self) -> int:
        return self._committer.tokens_generated

    @property
    def num_drafted(self) -> int:
        return self._walks.num_drafted

    @property
    def num_accepted(self) -> int:
        return self._walks.num_accepted

    def _is_busy(self) -> bool:
        return bool(len(self._runner)) or self._recovery.is_waiting

    def _rest(self) -> None:
        self._recovery.mark_progress()

    def _give_back(self) -> None:
        if not len(self._runner):  # a step in flight may still write to the pages of ended sequences
            self._executor.discard(self._cache.take_spent())

    def _shrink(self) -> None:
        self._cache.shrink()
        self._give_back()

    def _refusal(self) -> AiciError | None:
        return self._recovery.error

    def _drop_steps(self) -> None:
        self._runner.drop()

    def _close(self) -> None:
        self._runner.close()
        self._executor.close()

    def _start_guest(self, seq: Sequence) -> None:
        super()._start_guest(seq)
        # With several steps in flight, a guest could join its step only once the steps before have ended.
        if seq.guest.starting and self._executor.depth == 1:
            self._early.add(seq)
            if seq.progress.phase is Phase.NEW:
                self._queue.add(seq)

    def _step(self) -> None:
        """Begin flights up to the depth of the executor, and finish the oldest flight."""
        if self._recovery.is_waiting:
            self._wait_for_cache()
            return
        try:
            while len(self._runner) < self._executor.depth and self._begin_flight():
                pass
            if not len(self._runner):
                self._recovery.mark_progress()
                self._wait_longer()
                return
            self._wait_s = 0.0
            result = self._runner.finish()
        except StateLostError as loss:
            self._recovery.begin(loss)
            return
        self._committer.commit(result)
        if result.spoiled:
            self._recovery.replay()
        else:
            self._recovery.mark_progress()

    def _begin_flight(self) -> bool:
        """Return False if there is nothing to compute now."""
        plan = self._plan()
        if plan.chunks:
            self._runner.begin(plan)
        return bool(plan.chunks)

    def _plan(self) -> StepPlan:
        """Admit waiting sequences, ask the guests in a round, and decide what to compute."""
        lap = self.profile.lap
        self._runner.receive_answers()
        self._live.finish_ended()
        lap("inbox")
        held = frozenset(self._live.held)
        self._scheduler.admit(held)
        put_off = self._scheduler.put_off(held) | self._session.slowed(self._scheduler.running)
        lap("admit")
        self._live.talk(lambda running: self._session.round(running, held | put_off), self._scheduler.running)
        self._live.finish_ended()
        lap("round")
        # Forced tokens, and sequences ended by guests, need not wait for the forward pass.
        self._output.flush()
        lap("output")
        plan = self._scheduler.decide(held, put_off)
        lap("decide")
        return plan

    def _wait_for_cache(self) -> None:
        """Sequences may end meanwhile. Their guests are freed at the latest when no sequence is left."""
        self._live.finish_ended()
        if not len(self._live):
            self._live.talk(self._session.round, [])
        self._output.flush()
        self._recovery.wait()

    def _lose_state(self, loss: StateLostError) -> None:
        # Flights raise the loss themselves. The news may also be late, and the loss over: then little is lost.
        if self.fatal is None and not len(self._runner) and not self._recovery.is_waiting:
            self._recovery.begin(loss)
