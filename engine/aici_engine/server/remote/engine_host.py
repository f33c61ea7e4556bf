"""The process of `aici engine`: one port, one server at a time, one engine with its runtime."""

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from aici_base.errors import AiciError, InUseError, NotFoundError, UnavailableError, UsageError
from aici_controllers.store import Store, shipped
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Refused
from aici_engine.cluster.headers import ModelSizes
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.link_server import KeyPair, Peer, PeerFrame, PeerJoined, PeerLost, StageServer
from aici_engine.cluster.node_info import process_bytes
from aici_engine.config import EngineConfig
from aici_engine.failure import Failure
from aici_engine.server.config import LogFormat
from aici_engine.server.link import wire
from aici_engine.server.link.process_config import ProcessConfig
from aici_engine.server.link.supervisor import EngineProcess
from aici_engine.server.remote.host_messages import (
    MAX_BODY_BYTES,
    EngineEnded,
    EngineSilence,
    FromHost,
    HasModules,
    ModuleBytes,
    StartEngine,
    StopEngine,
    ToHost,
    WireFrame,
    decode_to_host,
    engine_of,
)
from aici_engine.server.remote.model_in_folder import digest_of
from aici_engine.server.remote.module_arrivals import ModuleArrivals
from aici_engine.server.remote.relay import Relay

_TELL_S: Final = 0.5
_TURN_EVENTS: Final = 16

_log = logging.getLogger(__name__)


class EngineHost:
    """Runs an engine for a server on another machine. An async context manager; leaving ends the engine.

    `folders`: the models of this machine. `memory_bytes`: for the process, the weights and the cache; None: the
    engine's share of what is free. `num_threads`: None is a thread a core. `keys`: see StageServer.

    The engine keeps weights and cache when the server goes, and the next server with the same settings finds both.
    """

    def __init__(
        self,
        links: LinkGroup,
        listen: StageAddress,
        folders: Sequence[Path],
        *,
        keys: KeyPair | None = None,
        memory_bytes: int | None = None,
        num_threads: int | None = None,
        log_level: str = "INFO",
        log_format: LogFormat = "text",
    ) -> None:
        """Takes over `links`. Raises as StageServer."""
        self._links = links
        self._folders = folders
        self._memory_bytes = memory_bytes
        self._num_threads = num_threads
        self._log: tuple[str, LogFormat] = (log_level, log_format)
        self._store = Store()
        self._server: StageServer[ToHost] = StageServer(
            links, listen, decode_to_host, max_body_bytes=MAX_BODY_BYTES, keys=keys
        )
        self._driver: Peer | None = None
        self._order: StartEngine | None = None
        self._engine: EngineProcess | None = None
        self._relay = Relay(lambda messages: self._send(WireFrame(), wire.encode(messages)))
        self._starting: asyncio.Task[None] | None = None
        self._arrivals = ModuleArrivals(self._store, self._relay.take)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> StageAddress:
        """Where the server connects to, with the key."""
        return self._server.address

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for descriptor in self._server.fds:
            self._loop.add_reader(descriptor, self._read)
        self._loop.call_soon(self._read)
        self._begin(self._tell_silence())
        return self

    async def __aexit__(self, *exc: object) -> None:
        for descriptor in self._server.fds:
            self._loop.remove_reader(descriptor)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end_engine()
        self._links.close()

    # The server.

    def _read(self) -> None:
        """Take all events: a descriptor of ZeroMQ tells of a change once."""
        for _ in range(_TURN_EVENTS):
            if (event := self._server.receive(0)) is None:
                return
            match event:
                case PeerJoined(peer):
                    self._joined(peer)
                case PeerFrame(peer, message, body) if peer is self._driver:
                    try:
                        self._take(message, body)
                    except (AiciError, ValueError) as error:
                        self._send(EngineEnded(Failure.of(error)))
                case PeerLost(peer) if peer is self._driver:
                    _log.info("the server %s is gone", peer.name)
                    self._leave()
        self._loop.call_soon(self._read)

    def _joined(self, peer: Peer) -> None:
        if peer.role != "driver" or (self._driver is not None and self._driver.name != peer.name):
            name = "nobody but servers" if self._driver is None else f"another server, {self._driver.name}"
            busy = InUseError(f"the engine's host serves {name}", hint="end that server, or start another host")
            self._server.send(peer, Refused(Failure.of(busy)))
            return
        _log.info("the server %s is here", peer.name)
        self._leave()
        self._driver = peer

    def _leave(self) -> None:
        self._driver = None
        if self._starting is not None:
            self._starting.cancel()
        self._arrivals.clear()
        self._relay.detach()

    def _send(self, message: FromHost, body: bytes = b"") -> None:
        if self._driver is not None:
            self._server.send(self._driver, message, body)
            self._loop.call_soon(self._read)

    def _take(self, message: ToHost, body: bytearray) -> None:
        match message:
            case StartEngine():
                if self._starting is not None:
                    self._starting.cancel()
                self._starting = self._begin(self._start(message, self._starting))
            case ModuleBytes(module_id):
                self._arrivals.expect(module_id)
                self._begin(self._arrivals.keep(module_id, bytes(body)))
            case WireFrame():
                for each in wire.decode_to_engine(body):
                    self._arrivals.take(each)
            case StopEngine():
                self._begin(self._end_engine())

    # The engine.

    async def _start(self, order: StartEngine, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if self._engine is None or order != self._order:
                await self._end_engine()
                await self._start_engine(order)
            assert self._engine is not None
            await asyncio.shield(self._engine.ready)
            if self._relay.info is None:
                self._engine.serve()
            await self._relay.idle.wait()
            self._send(HasModules(sorted(await asyncio.to_thread(self._module_ids))))
            self._relay.attach()
        except AiciError as error:
            _log.error("%s", error)
            self._send(EngineEnded(Failure.of(error)))
            await self._end_engine()
        except OSError as error:
            self._send(EngineEnded(Failure.of(UnavailableError(f"no engine can be started now: {error}"))))
            await self._end_engine()

    async def _start_engine(self, order: StartEngine) -> None:
        folder = await asyncio.to_thread(self._folder_of, order.model)
        level, form = self._log
        config = ProcessConfig(
            requests="",
            events="",
            parent_pid=os.getpid(),
            heartbeat=-1,
            engine=self._fitted(engine_of(order.settings, folder)),
            max_forks=order.max_forks,
            modules=tuple(map(str, shipped().values())),
            log_level=level,
            log_format=form,
        )
        _log.info("starting an engine of %s", folder.name)
        self._order, self._engine = order, EngineProcess(self._relay, config=config, died=self._died)

    def _folder_of(self, model: bytes) -> Path:
        for folder in self._folders:
            if digest_of(folder) == model:
                return folder
        names = ", ".join(folder.name for folder in self._folders) or "none"
        raise NotFoundError(
            f"the server's model is not on this machine ({self._links.name}), whose models are: {names}",
            hint="name the same model on both machines: aici node join --model MODEL, or aici engine --model MODEL",
        )

    def _fitted(self, engine: EngineConfig) -> EngineConfig:
        """Return the configuration with this machine's threads and memory."""
        engine = replace(engine, num_threads=self._num_threads)
        if self._memory_bytes is None:
            return engine
        sizes = ModelSizes.of(engine.model_dir)
        weights = sizes.weight_bytes(sizes.whole, sizes.dtype if engine.dtype == "auto" else engine.dtype)
        left = self._memory_bytes - process_bytes() - weights
        if left <= 0:
            raise UsageError(
                f"the weights take {weights >> 20} MiB, and {self._links.name} gives "
                f"{(self._memory_bytes - process_bytes()) >> 20} MiB to an engine",
                hint="give more --memory, or divide the model over several machines",
            )
        return replace(engine, memory_fraction=1.0, cache_bytes=left)

    def _module_ids(self) -> set[str]:
        """Return the modules that the engine's runtime finds. Reads files."""
        return {module.module_id for module in self._store.registry.modules()}

    def _died(self, process: EngineProcess, why: AiciError) -> None:
        if process is self._engine:
            _log.error("%s", why)
            self._send(EngineEnded(Failure.of(why)))
            self._begin(self._end_engine())

    async def _end_engine(self) -> None:
        engine, self._engine, self._order = self._engine, None, None
        if engine is not None:
            self._relay.lost()
            await engine.close()

    async def _tell_silence(self) -> None:
        """Tell the server while the engine makes no progress."""
        told = 0
        while True:
            await self._relay.busy.wait()
            await asyncio.sleep(_TELL_S)
            tenths = round(10 * self._relay.silence()) if self._relay.busy.is_set() else 0
            if tenths != told:
                told = tenths
                self._send(EngineSilence(tenths))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
