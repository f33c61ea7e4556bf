"""The sequences of the engine until their end, and the policy for failures of the controller runtime."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from aici_base.errors import AiciError, RuntimeDiedError
from aici_base.ids import SeqId
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.control.session import GuestSession
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.runtime_queue import RuntimeQueue
from aici_engine.sequence_queue import SequenceQueue
from aici_engine.sequences.sequence import Sequence

if TYPE_CHECKING:
    from aici_engine.sequences.group import SequenceGroup

_T = TypeVar("_T")


class LiveSequences:
    """Used by the engine's thread alone.

    `Sequence.end` marks a sequence, and `finish_ended` ends marked sequences: pages are freed, the guest is dropped,
    and after the last sequence of a request the request has its one finish event. `runtime_error`: the death of the
    controller runtime, or `None` while the runtime lives. `held`: requests with logits in a flight (see `scheduler`).
    A sequence of a held request ends after the flight: its guest is computing, and its forks need its pages.
    `runtime_queue`: sequences that outlive the runtime.
    """

    def __init__(self, queue: SequenceQueue, session: GuestSession, output: EventOutput) -> None:
        self._queue = queue
        self._session = session
        self._output = output
        self._sequences: dict[SeqId, Sequence] = {}
        self.held: set[SequenceGroup] = set()
        self.runtime_error: RuntimeDiedError | None = None
        self.runtime_queue = RuntimeQueue()

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, seq: Sequence) -> None:
        """Add the sequence of a new request, or a new fork."""
        self._sequences[seq.seq_id] = seq

    def abort(self, request_id: SeqId) -> None:
        """Mark all sequences of the request."""
        for seq in self._sequences.values():
            if seq.group.request_id == request_id:
                seq.end(FinishReason.ABORT)

    def end_all(self, reason: FinishReason, error: AiciError | None = None) -> None:
        """End every sequence. A sequence marked before keeps its own reason."""
        for seq in self._sequences.values():
            seq.end(reason, error)
        self.finish_ended()
        self._output.flush()

    def finish_ended(self) -> None:
        """End all marked sequences, except of held requests, forks before their parents."""
        for seq in [seq for seq in reversed(self._sequences.values()) if seq.ending is not None]:
            if seq.group in self.held:
                continue
            assert seq.ending is not None
            del self._sequences[seq.seq_id]
            self._queue.remove(seq)
            try:
                self.talk(self._session.drop, seq)
            finally:
                # Nothing holds the sequence any more: the listener must hear of the end even after a failure.
                self._output.finish(seq, *seq.ending)

    def talk(self, say: Callable[[_T], None], argument: _T) -> None:
        """Call `say(argument)`, which sends a message to the controller runtime. All messages of the engine pass here.

        If the runtime dies or refuses the whole message, all controlled sequences are marked with the error; plain
        sequences go on. After the death of the runtime, `say` is not called.
        """
        if self.runtime_error is not None:
            return
        try:
            say(argument)
        except RuntimeDiedError as error:
            self._lose_runtime(error)
        except AiciError as error:
            self._fail_controlled(error)

    def replace_runtime(self, runtime: ControllerRuntime) -> None:
        """Go on with `runtime`. Controlled sequences fail with RuntimeDiedError: their guests were lost."""
        if self.runtime_error is None:
            self._lose_runtime(RuntimeDiedError("the controller runtime was replaced"))
        self.finish_ended()
        self._session.use(runtime)
        self.runtime_error = None

    def _lose_runtime(self, error: RuntimeDiedError) -> None:
        self.runtime_error = error
        self._session.lost()
        self._fail_controlled(error)
        # No guest computes any more, and all forks end.
        self.held -= {seq.group for seq in self._sequences.values() if seq.controller is not None}

    def _fail_controlled(self, error: AiciError) -> None:
        for seq in self._sequences.values():
            if seq.controller is not None and seq not in self.runtime_queue:
                seq.end(FinishReason.FAIL, error)
