"""What the thread of every engine does: read commands, step, end sequences; and survive its own failure.

All changes of sequences happen on the engine's thread; other threads only put commands into the inbox. Any module may
mark a sequence to end, and `LiveSequences.finish_ended` ends the marked sequences.
"""

import contextlib
import logging
import queue
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from aici_base.errors import AiciError, RuntimeDiedError
from aici_base.ids import SeqId
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.control.session import GuestSession
from aici_engine.early_guests import EarlyGuests
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.heartbeat import Heartbeat
from aici_engine.live_sequences import LiveSequences
from aici_engine.profile import Profile
from aici_engine.sequence_queue import SequenceQueue
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence

if TYPE_CHECKING:
    from collections.abc import Callable

FUEL_PER_CONTEXT = 10
"""The fuel of a request, in contexts of the model: a controller may not backtrack for ever."""

_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05
_IDLE_S = 2.0
"""Shorter pauses between requests cost no memory to be taken anew."""

_log = logging.getLogger(__name__)


def _nothing() -> None: ...


class EngineLoop(ABC):
    """Owns the inbox. `fatal`: the error that ended the engine, or `None`. Subclasses compute the steps.

    `on_fatal`: called when the engine has failed and all requests have ended. Set before `run`. `clock`: see
    `EarlyGuests`.
    """

    def __init__(
        self,
        *,
        queue_: SequenceQueue,
        session: GuestSession,
        output: EventOutput,
        heartbeat: Heartbeat,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> None:
        self._queue = queue_
        self._session = session
        self._output = output
        self._heartbeat = heartbeat
        self._live = LiveSequences(queue_, session, output)
        self._early = EarlyGuests(session, self._live, self._accept_early, clock=clock)
        self.profile = Profile()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._wait_s = 0.0
        self.fatal: AiciError | None = None
        self.on_fatal: Callable[[], None] = _nothing

    @property
    @abstractmethod
    def tokens_generated(self) -> int: ...

    @abstractmethod
    def _step(self) -> None:
        """Compute a step. If there is nothing to compute now, call `_wait_longer`."""

    @abstractmethod
    def _drop_steps(self) -> None:
        """Forget the steps that have begun. All sequences must end now."""

    @abstractmethod
    def _close(self) -> None:
        """The loop has ended."""

    def _is_busy(self) -> bool:
        """A step has begun, or something else than a command is waited for."""
        return False

    def _admit(self) -> None:  # noqa: B027 most sequences run before their guests have started
        """Let sequences run whose guests have started during the step."""

    def _rest(self) -> None:  # noqa: B027 most loops have nothing to do then
        """There is no sequence."""

    def _give_back(self) -> None:  # noqa: B027 not every loop owns memory
        """Give memory that no sequence needs back to the system."""

    def _shrink(self) -> None:  # noqa: B027 not every loop owns memory
        """Memory is short: give back more, at the price of computing again what the cache forgets."""

    def _refusal(self) -> AiciError | None:
        """Return why new requests fail at once, or None."""
        return None

    def _wait_longer(self) -> None:
        """All sequences wait. The wait for commands doubles from step to step up to `_LONGEST_WAIT_S`."""
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s or _FIRST_WAIT_S)

    # From any thread.

    @property
    def num_alive(self) -> int:
        return len(self._live)

    @property
    def num_running(self) -> int:
        return len(self._queue.running)

    @property
    def num_preemptions(self) -> int:
        return self._queue.num_preemptions

    @property
    def num_drafted(self) -> int:
        """Drafted tokens that forward passes computed."""
        return 0

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that became text."""
        return 0

    @property
    def num_reused(self) -> int:
        return self._queue.num_reused

    @property
    def guest_cpu_s(self) -> float:
        return self._session.guest_time.total_s

    def submit(self, seq: Sequence) -> None:
        self._inbox.put(lambda: self._begin(seq))

    def abort(self, request_id: SeqId) -> None:
        """End the request with this id, all forks included."""
        self._inbox.put(lambda: self._live.abort(request_id))

    def shrink(self) -> None:
        """Memory of the machine or of the control group is short."""
        self._inbox.put(self._shrink)

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
        try:
            self._run()
        finally:
            self._close()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._heartbeat.beat()
                self._read_inbox()
                self._step()
                self._output.flush()
                self.profile.lap("output")
                self.profile.end()
        except Exception as error:  # noqa: BLE001 one of the four places where failures are caught
            _log.exception("the engine loop failed")
            self.fatal = AiciError(f"the engine failed: {error!r}")
            # The error may have cut off a message to the runtime: no further message can be sent.
            self._session.lost()
        self._drop_steps()
        if self.fatal is not None:
            self._live.end_all(FinishReason.FAIL, self.fatal)
            self.on_fatal()
        while self.fatal is not None and not self._stopping:
            self._live.end_all(FinishReason.FAIL, self.fatal)
            self._inbox.get()()
        self._live.end_all(FinishReason.ABORT)
        self._live.talk(self._session.round, [])

    def _read_inbox(self) -> None:
        """Run all commands. With nothing to compute and nothing to wait for, wait for a command.

        If all sequences are suspended, wait for a time, which doubles from step to step up to `_LONGEST_WAIT_S`.
        """
        if self._is_busy():
            pass
        elif not self._queue.running and not self._queue.waiting:
            self._wait_s = 0.0
            self._rest()
            # Free the guests of ended sequences now, not when the next request comes.
            self._live.talk(self._session.round, [])
            self._live.finish_ended()
            self._output.flush()
            if self._inbox.empty():
                self._next_command()()
        elif self._wait_s > 0.0:
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=self._wait_s)()
        self.profile.begin()
        while not self._inbox.empty():
            self._inbox.get()()

    def _next_command(self) -> "Callable[[], None]":
        """Wait for a command. Once without work for `_IDLE_S`, give back memory."""
        with contextlib.suppress(queue.Empty):
            return self._inbox.get(timeout=_IDLE_S)
        self._give_back()
        return self._inbox.get()

    # Commands.

    def _begin(self, seq: Sequence) -> None:
        self._live.add(seq)
        if seq.room <= 0 and seq.sampler.prompt_scores is None and seq.pooling is None:
            seq.end(FinishReason.LENGTH)
        elif (refusal := self._refusal()) is not None:
            seq.end(FinishReason.FAIL, refusal)
        elif seq.controller is None:
            self._accept(seq)
        elif self._live.runtime_error is not None:
            if not self._live.runtime_queue.waits(seq):
                seq.end(FinishReason.FAIL, self._live.runtime_error)
        else:
            self._start_guest(seq)

    def _start_guest(self, seq: Sequence) -> None:
        number = self._live.runtime_queue.number
        self._session.start(seq, lambda error: self._tell_ready(seq, error, number))

    def _tell_ready(self, seq: Sequence, error: BaseException | None, number: int) -> None:
        """Called on the thread of the runtime's client, or on the engine's: see `_ready`."""
        self._early.tell(seq, has_started=error is None)
        self._inbox.put(lambda: self._ready(seq, error, number))

    def _ready(self, seq: Sequence, error: BaseException | None, number: int) -> None:
        """The guest of a sequence has started, or not. `number`: of the runtime that was asked."""
        if self._early.leave(seq):
            return
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
        if seq.controller is not None:
            self._session.started(seq)
        if seq.progress.phase is Phase.NEW:
            self._queue.add(seq)

    def _accept_early(self, started: list[Sequence]) -> list[Sequence]:
        """Accept sequences whose guests have started during the step. Return those that run."""
        for seq in started:
            self._accept(seq)
        self._admit()
        return [seq for seq in started if seq.progress.phase is Phase.RUNNING]

    def _stop(self) -> None:
        self._stopping = True
