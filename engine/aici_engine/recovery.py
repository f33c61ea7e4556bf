"""Recovery after the executor has lost its pages: running sequences are computed anew, and their texts go on.

Nothing that a client or a guest has heard changes: tokens stay, forks of lost flights live, and the answers of guests
to lost flights are used for the flights that replace them.
"""

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from aici_base.errors import UnavailableError
from aici_engine.events import FinishReason
from aici_engine.executor import Executor, StateLostError
from aici_engine.flight import FlightRunner
from aici_engine.live_sequences import LiveSequences
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.sequence import Sequence

if TYPE_CHECKING:
    from aici_base.ids import SeqId

_POLL_S: Final = 0.05
"""Commands wait at most this long while the engine waits for the executor."""

_log = logging.getLogger(__name__)


class _Suspect(NamedTuple):
    """A sequence that was in flight at a loss, with `num_tokens` tokens for the first time at `since`."""

    num_tokens: int
    since: float


class Recovery:
    """Used by the engine's thread alone.

    Requests wait for an empty cache for at most `timeout_s` since the last step that ended, and fail with
    UnavailableError then. So does a request that is in flight at every loss and gets no token for `timeout_s`: the
    request may be the cause. `error`: why new requests fail at once, or `None`.
    """

    def __init__(
        self,
        *,
        executor: Executor,
        runner: FlightRunner,
        scheduler: Scheduler,
        live: LiveSequences,
        timeout_s: float,
    ) -> None:
        self._executor = executor
        self._runner = runner
        self._scheduler = scheduler
        self._live = live
        self._timeout_s = timeout_s
        self._loss: StateLostError | None = None
        self._lost_at: float | None = None
        self._suspects: dict[SeqId, _Suspect] = {}
        self.error: UnavailableError | None = None

    @property
    def is_waiting(self) -> bool:
        """There is no cache, so no step can begin."""
        return self._loss is not None

    def begin(self, loss: StateLostError) -> None:
        """The executor has lost all pages: give up all flights."""
        _log.warning("all running requests will be computed anew: %s", loss)
        self._loss = loss
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        self._fail_suspects(self._runner.sequences())
        self._start_anew()
        self._check_time()

    def replay(self) -> None:
        """A flight failed after it had begun: give up the other flights, which may have read its pages."""
        try:
            self._runner.drain()
        except StateLostError as loss:
            self.begin(loss)
        else:
            self._start_anew()

    def wait(self) -> None:
        """Wait a moment for an empty cache. After the time limit, all requests fail; the waiting goes on."""
        if self._executor.restore(_POLL_S):
            self._loss = self.error = None
        else:
            self._check_time()

    def mark_progress(self) -> None:
        """A step has ended, or no sequence waits for a step: the next loss has the whole time limit."""
        self._lost_at = None

    def _start_anew(self) -> None:
        self._runner.abandon()
        self._scheduler.restart()

    def _fail_suspects(self, in_flight: Iterable[Sequence]) -> None:
        now = time.monotonic()
        suspects: dict[SeqId, _Suspect] = {}
        for seq in in_flight:
            suspect = self._suspects.get(seq.seq_id)
            if suspect is None or suspect.num_tokens != len(seq.tokens):
                suspect = _Suspect(len(seq.tokens), now)
            suspects[seq.seq_id] = suspect
            if (waited_s := now - suspect.since) >= self._timeout_s:
                _log.error("request %d was in flight at every loss for %.0f s: it fails", seq.seq_id, waited_s)
                seq.end(FinishReason.FAIL, self._unavailable())
        self._suspects = suspects

    def _unavailable(self) -> UnavailableError:
        assert self._loss is not None
        return UnavailableError(
            f"the model is not available: {self._loss}",
            hint=self._loss.hint or f"try again later: requests waited {self._timeout_s:g} s",
        )

    def _check_time(self) -> None:
        assert self._lost_at is not None
        waited_s = time.monotonic() - self._lost_at
        if waited_s >= self._timeout_s:
            if self.error is None:
                _log.error("no step has ended for %.0f s: all requests fail", waited_s)
            self.error = self._unavailable()
            self._live.end_all(FinishReason.FAIL, self.error)
