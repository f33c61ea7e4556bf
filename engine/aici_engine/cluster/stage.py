"""A stage's life, without sockets: load a range of layers, attach to a pipeline, compute steps, detach."""

import logging
import math
import time
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

import msgspec

from aici_base.errors import AiciError, UsageError
from aici_engine.cluster.frames import (
    Attach,
    Attached,
    Buffer,
    Detach,
    FrameError,
    FromStage,
    HeldRange,
    LoadStage,
    MeasureSpeed,
    Ping,
    Pong,
    StageFacts,
    StageLoaded,
    StageLost,
    StageSpeed,
    StepFailed,
    StepFrame,
    StepStates,
    TensorPiece,
    ToStage,
)
from aici_engine.cluster.headers import WEIGHT_BYTES
from aici_engine.cluster.stage_epoch import StageEpoch
from aici_engine.failure import Failure
from aici_engine.model.stage_model import StageModel

_MOST_PAGES: Final = (1 << 31) - 1
_GIB: Final = 1 << 30

_log = logging.getLogger(__name__)


class StagePorts(Protocol):
    """Where a stage's messages go. Nothing here waits."""

    def to_driver(self, message: FromStage, body: Buffer = b"") -> None: ...

    def to_next(self, message: StepFrame, body: Buffer) -> None: ...

    def connect_next(self, address: str) -> None:
        """Begin to connect to the next stage. `Stage.next_connected` or `Stage.next_lost` is called later."""

    def disconnect_next(self) -> None:
        """Idempotent."""


class WeightsLoader(Protocol):
    """Loads one range at a time. `read_bytes`, `sent_bytes`: of the last range, from the own disk and by the driver."""

    read_bytes: int
    sent_bytes: int

    def begin(self, load: LoadStage) -> FromStage | None:
        """Return what to ask the driver for; `None` if all tensors are here."""

    def take(self, piece: TensorPiece, body: Buffer) -> tuple[FromStage | None, bool]:
        """Return the answer to the driver, if any, and whether all tensors are here."""

    def finish(self) -> StageModel:
        """Make the model. Raises AiciError for tensors that are missing or that no kernel can run."""


class Stage:
    """Obeys one driver. Weights outlive the driver; keys and values end with the epoch.

    `memory_bytes`: for weights, keys and values together. `measure`: called once at most, when a driver asks.
    """

    def __init__(
        self, ports: StagePorts, loader: WeightsLoader, *, memory_bytes: int, measure: Callable[[], StageSpeed]
    ) -> None:
        self._ports = ports
        self._loader = loader
        self._memory_bytes = memory_bytes
        self._measure = cache(measure)
        self._wanted: LoadStage | None = None
        self._load_began = 0.0
        self._model: StageModel | None = None
        self._loaded: StageLoaded | None = None
        self._attaching: Attach | None = None
        self._epoch: StageEpoch | None = None
        self._last_epoch = 0

    @property
    def max_body_bytes(self) -> int:
        """The longest body of a step that the stage accepts now."""
        return 0 if self._epoch is None else self._epoch.max_body_bytes

    def describe(self, facts: StageFacts) -> StageFacts:
        """Return `facts` with the latest epoch, and the range in memory."""
        held, load = None, self._wanted
        if load is not None and self._loaded is not None:
            held = HeldRange(load.model, load.first, load.last, load.embedding, load.head, load.dtype)
        return msgspec.structs.replace(facts, epoch=self._last_epoch, held=held)

    # Messages.

    def receive(self, message: ToStage, body: Buffer = b"") -> None:
        """Take a message of the driver, or a step of the stage before."""
        try:
            match message:
                case Ping(number):
                    self._ports.to_driver(Pong(number))
                case MeasureSpeed():
                    self._ports.to_driver(self._measure())
                case LoadStage():
                    self._load(message)
                case TensorPiece():
                    self._take(message, body)
                case Attach():
                    self._attach(message)
                case Detach():
                    self.detach()
                case StepFrame():
                    self._step(message, body)
        except Exception as error:  # noqa: BLE001 the stage's loop: a failure costs the epoch, and not the weights
            if not isinstance(error, AiciError):
                _log.exception("%s failed", type(message).__name__)
            self._fail(error)

    def next_connected(self) -> None:
        """The connection to the next stage is open."""
        if self._attaching is not None:
            self._attached(self._attaching)

    def next_lost(self, error: AiciError) -> None:
        """The connection to the next stage has failed, or is refused."""
        attach = self._attaching or (None if self._epoch is None else self._epoch.attach)
        if attach is not None:
            self._ports.to_driver(StageLost(attach.epoch, attach.stage, Failure.of(error)))
        self.detach()

    def detach(self) -> None:
        """Drop keys and values, and keep the weights. Idempotent. Call when the driver is gone."""
        self._epoch = self._attaching = None
        self._ports.disconnect_next()

    # Loading.

    def _load(self, load: LoadStage) -> None:
        self.detach()
        if self._loaded is not None and load == self._wanted:
            self._ports.to_driver(self._loaded)
            return
        self._model = self._loaded = None
        self._check_room(load, least_bytes(load))
        self._wanted, self._load_began = load, time.monotonic()
        asked = self._loader.begin(load)
        if asked is None:
            self._finish_load(load)
        else:
            self._ports.to_driver(asked)

    def _take(self, piece: TensorPiece, body: Buffer) -> None:
        if self._wanted is None or self._loaded is not None:
            return  # of a load that has failed or was replaced
        answer, complete = self._loader.take(piece, body)
        if answer is not None:
            self._ports.to_driver(answer)
        if complete:
            self._finish_load(self._wanted)

    def _finish_load(self, load: LoadStage) -> None:
        model = self._loader.finish()
        page_bytes = model.token_bytes * load.page_size
        room = self._memory_bytes - model.weight_bytes
        max_pages = min(_MOST_PAGES, room // page_bytes) if page_bytes else _MOST_PAGES
        self._check_room(load, model.weight_bytes + page_bytes)
        self._model = model
        self._loaded = StageLoaded(
            model=load.model,
            weight_bytes=model.weight_bytes,
            page_bytes=page_bytes,
            max_pages=max_pages,
            hidden_size=model.hidden_size,
            vocab_size=model.vocab_size,
            states_dtype=str(model.states_dtype).removeprefix("torch."),
            read_bytes=self._loader.read_bytes,
            sent_bytes=self._loader.sent_bytes,
            seconds=time.monotonic() - self._load_began,
        )
        _log.info("loaded layers %d to %d in %.2f s", load.first, load.last - 1, self._loaded.seconds)
        self._ports.to_driver(self._loaded)

    def _check_room(self, load: LoadStage, num_bytes: int) -> None:
        if num_bytes > self._memory_bytes:
            raise UsageError(
                f"layers {load.first} to {load.last - 1} need at least {num_bytes / _GIB:.2f} GiB, and the stage may "
                f"use {self._memory_bytes / _GIB:.2f} GiB",
                hint="give this stage fewer layers (--cuts), or more memory (aici stage --memory)",
            )

    # An epoch.

    def _attach(self, attach: Attach) -> None:
        self.detach()
        if self._loaded is None:
            raise FrameError("attach came before load")
        if attach.num_pages > self._loaded.max_pages:
            raise UsageError(f"the stage has room for {self._loaded.max_pages} pages, not for {attach.num_pages}")
        self._attaching, self._last_epoch = attach, attach.epoch
        if attach.next:
            self._ports.connect_next(attach.next)
        else:
            self._attached(attach)

    def _attached(self, attach: Attach) -> None:
        assert self._model is not None
        self._attaching = None
        self._epoch = StageEpoch(self._model, attach)
        self._ports.to_driver(Attached(attach.epoch, attach.stage))

    def _step(self, step: StepFrame, body: Buffer) -> None:
        epoch = self._epoch
        if epoch is None or step.epoch < epoch.attach.epoch:
            return  # of an epoch that is over: the driver knows
        done, states = epoch.step(step, body)
        if epoch.attach.next:
            self._ports.to_next(done, states)
        elif done.failure is None:
            self._ports.to_driver(StepStates(done.epoch, done.number, done.times), states)
        else:
            self._ports.to_driver(StepFailed(done.epoch, done.number, epoch.attach.stage, done.failure))

    def _fail(self, error: Exception) -> None:
        """Tell the driver that the load, the attach or the epoch has failed, and wait for the next one."""
        attach = self._attaching or (None if self._epoch is None else self._epoch.attach)
        epoch, stage = (0, 0) if attach is None else (attach.epoch, attach.stage)
        if self._loaded is None:
            self._wanted = None
        self.detach()
        self._ports.to_driver(StepFailed(epoch, 0, stage, Failure.of(error)))


def least_bytes(load: LoadStage) -> int:
    """Return what the weights of a range take at least, known before they are read."""
    num_weights = sum(math.prod(tensor.shape) for tensor in load.tensors)
    return int(num_weights * WEIGHT_BYTES.get(load.dtype, 0.0))  # type: ignore[call-overload]
