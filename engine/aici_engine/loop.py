"""The engine's thread: read commands, then plan, compute and commit a step, again and again.

The computing of several steps may overlap (see `flight`): the engine plans a step while earlier steps are computed.
"""

from typing import Any

<<<<<<< HEAD
from aici_base.errors import AiciError, RuntimeDiedError
from aici_base.ids import SeqId, TokenId
=======
from aici_base.errors import AiciError
from aici_base.ids import TokenId
>>>>>>> 09f9f886 (aici serve --engine vllm: vLLM schedules and computes; rounds, guests, forks and events are those of aici's own engine. The loop's commands move to a base class that both loops share)
from aici_engine.cache.kvcache import KVCache
from aici_engine.control.session import GuestSession
from aici_engine.engine_loop import FUEL_PER_CONTEXT, EngineLoop
from aici_engine.event_output import EventOutput
from aici_engine.executor import Executor, StateLostError
from aici_engine.flight import FlightRunner
from aici_engine.heartbeat import Heartbeat
from aici_engine.recovery import Recovery
from aici_engine.sample.sampler import Sampler
from aici_engine.scheduler import Scheduler, StepPlan
from aici_engine.step_committer import StepCommitter


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
    ) -> None:
        heartbeat = heartbeat or Heartbeat()
        super().__init__(queue_=scheduler, session=session, output=output, heartbeat=heartbeat)
        self._scheduler = scheduler
        self._executor = executor
        self._runner = FlightRunner(
            executor=executor,
            cache=cache,
            scheduler=scheduler,
            session=session,
            sampler=sampler,
            output=output,
            live=self._live,
            profile=self.profile,
            heartbeat=heartbeat,
        )
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
        )
        self._recovery = Recovery(
            executor=executor, runner=self._runner, scheduler=scheduler, live=self._live, timeout_s=replay_timeout_s
        )
        executor.watch(lambda loss: self._inbox.put(lambda: self._lose_state(loss)))

    @property
    def tokens_generated(self) -> int:
        return self._committer.tokens_generated

    def _is_busy(self) -> bool:
        return bool(len(self._runner)) or self._recovery.is_waiting

    def _rest(self) -> None:
        self._recovery.mark_progress()

    def _refusal(self) -> AiciError | None:
        return self._recovery.error

<<<<<<< HEAD
    def nudge(self, heard: "Callable[[], None]") -> None:
        """Call `heard` on the engine's thread, between two steps."""
        self._inbox.put(heard)

    def use_runtime(self, runtime: ControllerRuntime) -> None:
        """Fail earlier controlled requests with RuntimeDiedError, and send later requests to `runtime`."""
        self._inbox.put(lambda: self._use_runtime(runtime))

    def expect_runtime(self, is_expected: bool) -> None:
        """Let new controlled requests wait for another runtime, or let them fail, while the runtime is dead."""
        self._inbox.put(lambda: self._expect_runtime(is_expected))

    def stop(self) -> None:
        """End every request with `abort`; then `run` returns."""
        self._inbox.put(self._stop)

    # On the engine's thread.

    def run(self) -> None:
        """Run until `stop`. An error beyond a single sequence fails all requests, later requests included."""
        with contextlib.closing(self._executor):
            self._run()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._heartbeat.beat()
                self._read_inbox()
                if self._recovery.is_waiting:
                    self._wait_for_cache()
                else:
                    self._step()
                self._output.flush()
                self.profile.lap("output")
                self.profile.end()
        except Exception as error:  # noqa: BLE001 one of the four places where failures are caught
            _log.exception("the engine loop failed")
            self.fatal = AiciError(f"the engine failed: {error!r}")
            # The error may have cut off a message to the runtime: no further message can be sent.
            self._session.lost()
=======
    def _drop_steps(self) -> None:
>>>>>>> 09f9f886 (aici serve --engine vllm: vLLM schedules and computes; rounds, guests, forks and events are those of aici's own engine. The loop's commands move to a base class that both loops share)
        self._runner.drop()

    def _close(self) -> None:
        self._executor.close()

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
        put_off = self._scheduler.put_off(held) | self._session.slowed()
        lap("admit")
        self._live.talk(lambda running: self._session.round(running, held | put_off), self._scheduler.running)
        self._live.finish_ended()
        lap("round")
        # Tokens that guests forced, and sequences that guests ended, need not wait for the forward pass.
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

<<<<<<< HEAD
    # Commands.

    def _begin(self, seq: Sequence) -> None:
        self._live.add(seq)
        if seq.room <= 0 and seq.sampler.prompt_scores is None and seq.pooling is None:
            seq.end(FinishReason.LENGTH)
        elif self._recovery.error is not None:
            seq.end(FinishReason.FAIL, self._recovery.error)
        elif seq.controller is None:
            self._accept(seq)
        elif self._live.runtime_error is not None:
            if not self._live.runtime_queue.waits(seq):
                seq.end(FinishReason.FAIL, self._live.runtime_error)
        else:
            self._start_guest(seq)

    def _start_guest(self, seq: Sequence) -> None:
        number = self._live.runtime_queue.number
        # The callback is called on the thread of the runtime's client.
        self._session.start(seq, lambda error: self._inbox.put(lambda: self._ready(seq, error, number)))

    def _ready(self, seq: Sequence, error: BaseException | None, number: int) -> None:
        """The guest of a sequence has started, or not. `number`: of the runtime that was asked."""
        if seq.progress.phase is Phase.ENDED:
            if error is None:
                self._live.talk(self._session.drop, seq)
            return
        queue = self._live.runtime_queue
        if error is None:
            self._accept(seq)
        elif isinstance(error, RuntimeDiedError) and seq.ending is None and number != queue.number:
            self._start_guest(seq)
        elif isinstance(error, RuntimeDiedError) and seq.ending is None and queue.waits(seq):
            pass
        else:
            self._session.failed_to_start(seq)
            seq.end(FinishReason.FAIL, error if isinstance(error, AiciError) else AiciError(f"instantiate: {error!r}"))

    def _use_runtime(self, runtime: ControllerRuntime) -> None:
        self._live.replace_runtime(runtime)
        for seq in self._live.runtime_queue.next_runtime():
            self._start_guest(seq)

    def _expect_runtime(self, is_expected: bool) -> None:
        if is_expected:
            self._live.runtime_queue.is_expected = True
            return
        error = self._live.runtime_error or RuntimeDiedError("the controller runtime has died")
        for seq in self._live.runtime_queue.give_up():
            seq.end(FinishReason.FAIL, error)

    def _accept(self, seq: Sequence) -> None:
        self._output.accepted(seq)
        self._scheduler.add(seq)

=======
>>>>>>> 09f9f886 (aici serve --engine vllm: vLLM schedules and computes; rounds, guests, forks and events are those of aici's own engine. The loop's commands move to a base class that both loops share)
    def _lose_state(self, loss: StateLostError) -> None:
        # Flights raise the loss themselves. The news may also be late, and the loss over: then little is lost.
        if self.fatal is None and not len(self._runner) and not self._recovery.is_waiting:
            self._recovery.begin(loss)
