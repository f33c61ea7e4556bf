"""The process of a stage: one port, one driver at a time, one computing thread."""

import logging
import os
import time
from collections.abc import Callable
from typing import Final

from aici_base.errors import InUseError
from aici_engine.cache.memory import available_bytes, resident_bytes
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import (
    Buffer,
    FromStage,
    Refused,
    StageFacts,
    StageSpeed,
    StepFrame,
    ToStage,
    decode_to_stage,
    decoder,
)
from aici_engine.cluster.link import CONNECT_S, LinkGroup, LinkLostError, StageLink
from aici_engine.cluster.link_server import KeyPair, Peer, PeerFrame, PeerJoined, PeerLost, StageServer
from aici_engine.cluster.node_info import budget, measure_rates
from aici_engine.cluster.stage import Stage, StagePorts, WeightsLoader
from aici_engine.cluster.tensor_transfer import TENSOR_PIECE_BYTES
from aici_engine.cpu_threads import default_threads
from aici_engine.failure import Failure
from aici_engine.native import library

_decode_refused: Final[Callable[[Buffer], Refused]] = decoder(Refused)

_log = logging.getLogger(__name__)


class StageProcess(StagePorts):
    """Listens for a driver and for the stage before, and feeds a `Stage`. A context manager.

    `facts`: what the driver is told; the epoch and the held range are filled in here. `keys`: see StageServer.
    `measure`: measures the device of `facts` by default. Call `run` on the thread of the constructor; `stop` from any
    thread or a signal handler.
    """

    def __init__(
        self,
        links: LinkGroup,
        listen: StageAddress,
        loader: WeightsLoader,
        facts: StageFacts,
        *,
        keys: KeyPair | None = None,
        measure: Callable[[], StageSpeed] | None = None,
    ) -> None:
        """Takes over `links`. Raises as StageServer."""
        self._links = links
        self._facts = facts
        measure = measure or (lambda: own_speed(facts))
        self._stage = Stage(self, loader, memory_bytes=facts.memory_bytes, measure=measure)
        self._server: StageServer[ToStage] = StageServer(
            links, listen, decode_to_stage, max_body_bytes=TENSOR_PIECE_BYTES, keys=keys
        )
        self._driver: Peer | None = None
        self._is_logged = False
        """Whether the log has the driver. While another stage is away, the driver comes several times a second, and
        only asks for facts."""
        self._next: StageLink[Refused] | None = None
        self._next_deadline: float | None = None
        self._stopping = False

    @property
    def address(self) -> StageAddress:
        """Where the stage listens, with its key."""
        return self._server.address

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._stopping:
            self._serve_peers()
            self._watch_next()
            self._links.wait(None if self._next_deadline is None else max(0.0, self._next_deadline - time.monotonic()))

    def stop(self) -> None:
        """Let `run` return, after the step that is being computed."""
        self._stopping = True
        self._links.wake()

    def close(self) -> None:
        self._links.close()

    def __enter__(self) -> "StageProcess":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Peers.

    def _serve_peers(self) -> None:
        while not self._stopping and (event := self._server.receive(0)) is not None:
            match event:
                case PeerJoined(peer) if peer.role == "driver":
                    self._driver_joined(peer)
                case PeerFrame(peer, message, body):
                    if peer is self._driver and not self._is_logged:
                        self._is_logged = True
                        _log.info("the driver %s is here", peer.name)
                    if peer is self._driver or (peer.role == "stage" and isinstance(message, StepFrame)):
                        self._stage.receive(message, body)
                        self._server.max_body_bytes = max(TENSOR_PIECE_BYTES, self._stage.max_body_bytes)
                        self._watch_next()
                case PeerLost(peer) if peer is self._driver:
                    if self._is_logged:
                        _log.info("the driver %s is gone", peer.name)
                    self._driver, self._is_logged = None, False
                    self._stage.detach()

    def _driver_joined(self, peer: Peer) -> None:
        if self._driver is not None and self._driver.name != peer.name:
            busy = InUseError(
                f"the stage serves another driver, {self._driver.name}",
                hint="end that driver first, or start another stage",
            )
            self._server.send(peer, Refused(Failure.of(busy)))
            return
        self._stage.detach()
        self._driver = peer
        self._server.send(peer, self._stage.describe(self._facts))

    # The next stage.

    def _watch_next(self) -> None:
        if self._next is None:
            return
        try:
            if self._next_deadline is not None:
                if self._next.is_ready():
                    self._next_deadline = None
                    self._stage.next_connected()
                elif time.monotonic() > self._next_deadline:
                    raise LinkLostError(f"{self._next.address.endpoint} has not answered within {CONNECT_S:g} s")
            elif (received := self._next.receive(0)) is not None:
                raise LinkLostError(received.message.failure.message)
        except LinkLostError as error:
            self._stage.next_lost(error)

    # Ports.

    def to_driver(self, message: FromStage, body: Buffer = b"") -> None:
        if self._driver is not None:
            self._server.send(self._driver, message, body)

    def to_next(self, message: StepFrame, body: Buffer) -> None:
        if self._next is not None:
            self._next.send(message, body)

    def connect_next(self, address: str) -> None:
        self._next = StageLink(self._links, StageAddress.parse(address), _decode_refused, max_body_bytes=0)
        self._next_deadline = time.monotonic() + CONNECT_S

    def disconnect_next(self) -> None:
        if self._next is not None:
            self._next.close()
            self._next = self._next_deadline = None


def own_facts(*, device: str, memory_bytes: int | None, num_threads: int | None = None) -> StageFacts:
    """Return the facts of this process. `memory_bytes`: `None` takes a share of the free memory. `num_threads`: `None`
    see `default_threads`."""
    # A budget leaves room for a process. This process runs already: its memory is not free any more.
    free = available_bytes() + resident_bytes() if device == "cpu" else _free_on_gpu()
    memory = budget(free, memory_bytes=memory_bytes)
    threads = num_threads or default_threads()
    return StageFacts(os.getpid(), library.describe().level, device, threads, memory, epoch=0)


def _free_on_gpu() -> int:
    import torch

    return torch.cuda.mem_get_info()[0]


def own_speed(facts: StageFacts) -> StageSpeed:
    """Measure the device of `facts`, with as many threads."""
    bytes_per_s, flops_per_s = measure_rates(device=facts.device, num_threads=facts.num_threads)
    return StageSpeed(bytes_per_s, {str(dtype): rate for dtype, rate in flops_per_s.items()})
