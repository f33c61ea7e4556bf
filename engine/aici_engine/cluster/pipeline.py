"""The executor of a model divided over stages. This process is the last stage: the driver."""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import numpy as np

from aici_base.errors import AiciError, InUseError, UnavailableError
from aici_engine.arrays import Array
from aici_engine.cluster.assembly import Assembly, Epoch
from aici_engine.cluster.frames import FrameError, StageLost, StepFailed, StepStates, check_states
from aici_engine.cluster.link import LinkLostError
from aici_engine.cluster.pipeline_times import PipelineTimes, StepSpan
from aici_engine.cluster.stage_epoch import states_of
from aici_engine.executor import Executor, StateLostError
from aici_engine.pooling import FinalStates
from aici_engine.step_input import StepInput

_RETRY_S: Final = 0.2
START_S: Final = 3.0
"""Stages that start at the same time as the driver, or that have not missed their last driver yet, get so long."""

Made = TypeVar("Made")
OnLinkLost = Callable[[LinkLostError], None]

_log = logging.getLogger(__name__)


class SentStep:
    """A step that has left for the first stage."""

    def __init__(self, pipeline: "PipelineExecutor", number: int, step: StepInput, *, alone: bool) -> None:
        self.number = number
        self.step = step
        self.num_tokens = sum(len(chunk.tokens) for chunk in step.chunks)
        self.alone = alone
        self.began = time.perf_counter()
        self._pipeline = pipeline

    def logits(self) -> Array:
        return self._pipeline.finish(self)

    def states(self) -> FinalStates:
        raise AssertionError("`states_size` is 0: the engine takes no request for final states")


class PipelineExecutor(Executor):
    """Sends steps through the stages, and computes the last layers and the head here.

    The constructor connects to the stages, lets them load what they lack, and begins an epoch. When a stage is lost,
    the epoch is over, and `restore` begins the next one. Used by the engine's thread, except `status`.
    """

    waits = True

    def __init__(
        self,
        make_assembly: Callable[[OnLinkLost], Assembly],
        *,
        depth: int | None = None,
        patience_s: float = START_S,
    ) -> None:
        """`make_assembly` takes the function to call when a link is lost. `depth`: the number of stages + 1 by default.
        `patience_s`: for stages that are not there yet.

        Raises AiciError if a stage cannot be had.
        """
        self._times = PipelineTimes()
        self._flights: deque[SentStep] = deque()
        self._report: Callable[[StateLostError], None] | None = None
        self._epoch: Epoch | None = None
        self._lost: StateLostError | None = None
        self._num_lost = 0
        self._attempt: Future[Epoch] | None = None
        self._trouble = ""
        self._assembly = assembly = make_assembly(self._link_lost)
        try:
            self._epoch = epoch = _first_epoch(assembly, patience_s)
        except BaseException:
            assembly.close()
            raise
        model = assembly.model
        self.vocab_size = epoch.near.vocab_size
        self.context = model.context
        self.eos_tokens = model.eos_tokens
        self.num_pages = epoch.num_pages
        self.page_size = model.page_size
        self.device = str(epoch.near.device)
        self.depth = depth or len(epoch.links) + 1

    # Steps.

    def begin(self, step: StepInput) -> SentStep:
        epoch = self._living()
        frame = epoch.tables.frame(step, epoch=epoch.number, number=epoch.next_number)
        ids = np.fromiter(itertools.chain.from_iterable(chunk.tokens for chunk in step.chunks), np.int32)
        # The cache may change its page tables before the states come back.
        kept = step._replace(chunks=[chunk._replace(pages=list(chunk.pages)) for chunk in step.chunks])
        sent = SentStep(self, epoch.next_number, kept, alone=not self._flights)
        try:
            epoch.links[0].send(frame, ids.data)
        except LinkLostError as error:
            raise self._lose(error) from error
        epoch.next_number += 1
        self._flights.append(sent)
        return sent

    def finish(self, wanted: SentStep) -> Array:
        """Return the logits of a step. Earlier steps that nobody has asked for are computed too, and dropped."""
        epoch = self._living()
        while True:
            sent = self._flights.popleft()
            try:
                logits = self._logits(epoch, sent)
            except Exception as error:
                if sent is wanted or isinstance(error, StateLostError):
                    raise
                continue
            if sent is wanted:
                return logits

    def _logits(self, epoch: Epoch, sent: SentStep) -> Array:
        answer, body = self._receive(epoch, sent)
        arrived = time.perf_counter()
        # A copy has its turn with its step: an earlier step may have written the page just now.
        for copy in sent.step.copies:
            epoch.storage.copy_page(*copy)
        if isinstance(answer, StepFailed):
            raise answer.failure.error()
        near = epoch.near
        num_rows = sent.num_tokens if near.part.num_layers else sum(chunk.num_logits for chunk in sent.step.chunks)
        num_bytes = num_rows * near.hidden_size * near.states_dtype.itemsize
        try:
            check_states(answer, body, epoch=epoch.number, num_stages=len(epoch.links), num_bytes=num_bytes)
        except FrameError as error:
            raise self._lose(error) from error
        states = states_of(body, near)
        has_rows = len(states) > 0  # else there are no layers here, and no token has logits
        nothing = np.empty((0, near.vocab_size), np.float32)
        logits = near.run(epoch.storage, sent.step.chunks, states) if has_rows else nothing
        span = StepSpan(sent.num_tokens, sent.began, arrived, time.perf_counter(), sent.alone)
        self._times.add(span, answer.times)
        return logits

    def _receive(self, epoch: Epoch, sent: SentStep) -> tuple[StepStates | StepFailed, bytearray]:
        """Wait for the answer to a step."""
        deadline = time.perf_counter() + self._times.limit_s(sent.num_tokens)
        while True:
            for link in reversed(epoch.links):
                try:
                    received = link.receive(0)
                except LinkLostError as error:
                    raise self._lose(error) from error
                match received and received.message:
                    case None:
                        continue
                    case (StepStates() | StepFailed()) as answer if answer.number == sent.number:
                        assert received is not None
                        return answer, received.body
                    case (StepFailed() | StageLost()) as answer:
                        raise self._lose(answer.failure.error())
                    case other:
                        raise self._lose(AiciError(f"{link.address.endpoint} sent {type(other).__name__} out of order"))
            left = deadline - time.perf_counter()
            if left <= 0:
                raise self._lose(UnavailableError("a step has been away for far longer than the steps before"))
            self._assembly.links.wait(left)

    # Loss and return.

    def watch(self, on_lost: Callable[[StateLostError], None]) -> None:
        self._report = on_lost

    def restore(self, wait_s: float) -> bool:
        if self._epoch is not None and self._lost is None:
            return True
        if self._attempt is None:
            self._flights.clear()
            self._epoch = None
            _forget_frames(self._lost)  # they keep the old cache, and the memory may not hold two
            self._attempt = _in_thread(self._assembly.assemble)
        try:
            epoch = self._attempt.result(wait_s)
            if lost := next((link.lost for link in epoch.links if link.lost is not None), None):
                raise lost
        except TimeoutError:
            return False
        except AiciError as error:
            _forget_frames(error)
            if error.message != self._trouble:
                _log.warning("the pipeline is not complete: %s", error)
            self._trouble = error.message
            self._attempt = _in_thread(self._assembly.assemble, pause_s=_RETRY_S)
            return False
        self._attempt = self._lost = None
        self._epoch = epoch
        self._trouble = ""
        _log.info("the pipeline is complete again: epoch %d", epoch.number)
        return True

    def close(self) -> None:
        self._report = None
        self._assembly.stop()
        if self._attempt is not None:
            self._attempt.exception()
        self._assembly.close()

    def _living(self) -> Epoch:
        if self._lost is not None:
            raise self._lost
        assert self._epoch is not None, "restore comes before begin"
        return self._epoch

    def _lose(self, why: AiciError) -> StateLostError:
        """Note the loss; the first reason counts."""
        if self._lost is not None:
            return self._lost
        self._lost = StateLostError(f"the pipeline is interrupted: {why.message}", hint=why.hint)
        self._num_lost += 1
        self._trouble = why.message
        return self._lost

    def _link_lost(self, error: LinkLostError) -> None:
        """Called on a thread of the link. The engine's thread sees the loss itself when it waits for a step."""
        epoch = self._epoch
        if (
            epoch is None
            or self._flights
            or self._report is None
            or all(link.lost is not error for link in epoch.links)
        ):
            return
        self._report(self._lose(error))

    # For people.

    def status(self) -> dict[str, Any]:
        """Return the state of the pipeline as JSON values. For any thread."""
        epoch, times = self._epoch, self._times
        return {
            "state": "ready" if epoch is not None and self._lost is None else "interrupted",
            "trouble": self._trouble,
            "epoch": None if epoch is None else epoch.number,
            "interruptions": self._num_lost,
            "depth": self.depth,
            "num_pages": self.num_pages,
            "page_size": self.page_size,
            "num_steps": times.num_steps,
            "num_tokens": times.num_tokens,
            "hop_s": times.hop_s / times.num_hop_steps if times.num_hop_steps else None,
            "num_hop_steps": times.num_hop_steps,
            "stages": [] if epoch is None else [self._stage_status(epoch, i) for i in range(len(epoch.stages))],
            "driver": None if epoch is None else self._driver_status(epoch),
        }

    def _stage_status(self, epoch: Epoch, number: int) -> dict[str, Any]:
        stage = epoch.stages[number]
        return {
            "address": stage.address.endpoint,
            "name": epoch.links[number].peer_name,
            "pid": stage.facts.pid,
            "first": stage.part.first,
            "last": stage.part.last,
            "device": stage.facts.device,
            "cpu_level": stage.facts.cpu_level,
            "memory_bytes": stage.facts.memory_bytes,
            "weight_bytes": stage.loaded.weight_bytes,
            "page_bytes": stage.loaded.page_bytes,
            "max_pages": stage.loaded.max_pages,
            "read_bytes": stage.loaded.read_bytes,
            "sent_bytes": stage.loaded.sent_bytes,
            "load_s": stage.loaded.seconds,
            "rtt_s": stage.rtt_s,
            "computed_s": self._times.computed_s[number],
            "waited_s": self._times.waited_s[number],
        }

    def _driver_status(self, epoch: Epoch) -> dict[str, Any]:
        return {
            "first": epoch.near.part.first,
            "last": epoch.near.part.last,
            "weight_bytes": epoch.near.weight_bytes,
            "page_bytes": epoch.near.token_bytes * self.page_size,
            "computed_s": self._times.computed_s[-1],
        }


def _first_epoch(assembly: Assembly, patience_s: float) -> Epoch:
    """Assemble, and try again for a moment while a stage is missing, or has not noticed the loss of its driver."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return assembly.assemble()
        except (UnavailableError, InUseError):
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def _forget_frames(error: BaseException | None) -> None:
    """Drop the frames that an exception and its causes have passed, with the local variables."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _in_thread(make: Callable[[], Made], *, pause_s: float = 0.0) -> "Future[Made]":
    """Call `make` on a thread of its own, after a pause."""
    future: Future[Made] = Future()

    def run() -> None:
        time.sleep(pause_s)
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="aici-assembly", daemon=True).start()
    return future
