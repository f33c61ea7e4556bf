"""Starts the engine process, connects the EngineClient to it, and starts a new process when the engine dies."""

import asyncio
import logging
import mmap
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import zmq
import zmq.asyncio

from aici_base.errors import AiciError, UnavailableError
from aici_engine.config import EngineConfig
from aici_engine.heartbeat import PAGE_BYTES
from aici_engine.private_folder import PrivateFolder
from aici_engine.server.config import LogFormat
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient, Link
from aici_engine.server.link.engine_watch import HANG_S, EngineWatch, kill_family
from aici_engine.server.link.event_frames import EventFrames
from aici_engine.server.link.process_config import ProcessConfig
from aici_runtime.runtime_process import RuntimeProcess

_MAX_DEATHS = 3
_WITHIN_S = 60.0
_LAST_MESSAGES_S = 0.5
_PAUSE_S = 0.5
_SPARE_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


class NoPlaceError(UnavailableError):
    """No machine has room for an engine."""


class EngineOwner(Protocol):
    """What an engine's messages go to: an `EngineClient`. `busy` is set while streams or calls are open."""

    busy: asyncio.Event

    def connected(self, link: Link, info: wire.EngineInfo, silence: "Callable[[], float] | None" = None) -> None: ...

    def receive(self, message: wire.FromEngine) -> None: ...


class EngineUnit(Protocol):
    """An engine in a separate process, on this machine or another. The members are as in `EngineProcess`."""

    was_useful: bool
    ready: asyncio.Future[wire.EngineInfo]

    def serve(self) -> None: ...

    async def close(self) -> None: ...


class UnitMaker(Protocol):
    """Starts an engine whose messages go to `client`. `died` is called if the engine ends after it was ready."""

    def __call__(
        self, client: EngineClient, *, config: ProcessConfig, died: "Callable[[Any, AiciError], None]"
    ) -> EngineUnit: ...


class Supervisor:
    """Keeps an engine process running. A context manager; `client` is connected while an engine is up.

    Entering waits until the engine is ready, and raises the engine's own error if the engine does not start. After more
    than `_MAX_DEATHS` engines that died within `_WITHIN_S` seconds without having computed a token, `failed` is set,
    and no further engine is started. `has_spare`: a second engine is loaded and waits, so that it can take over at
    once. `cpus`: the only processors of the engine and its guests; without any, all. `client`: default, a new one.
    `make`: makes each engine, if not as a child of this process.
    """

    def __init__(
        self,
        engine: EngineConfig,
        *,
        modules: Sequence[Path],
        max_forks: int,
        has_spare: bool = False,
        cpus: Sequence[int] = (),
        client: EngineClient | None = None,
        log_level: str = "WARNING",
        log_format: LogFormat = "text",
        make: "UnitMaker | None" = None,
    ) -> None:
        self._config = ProcessConfig(
            requests="",
            events="",
            parent_pid=os.getpid(),
            heartbeat=-1,
            engine=engine,
            max_forks=max_forks,
            cpus=tuple(cpus),
            modules=tuple(str(path) for path in modules),
            log_level=log_level,
            log_format=log_format,
        )
        self._has_spare = has_spare
        self._make: UnitMaker = make or EngineProcess
        self._process: EngineUnit | None = None
        self._spare: EngineUnit | None = None
        self._deaths: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self.client = client or EngineClient()
        self.failed = asyncio.Event()
        self.node = ""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (self._process, self._spare):
            if each is not None:
                self._end(each)
        await asyncio.gather(*self._ends)
        self.client.lost(UnavailableError("the server is stopping"))

    async def _start(self) -> None:
        """Let an engine serve: the spare engine, if any."""
        self._process, self._spare = self._spare or self._new_process(), None
        await self._process.ready
        self._process.serve()
        if self._has_spare:
            self._begin(self._load_spare())

    def _new_process(self) -> EngineUnit:
        return self._make(self.client, config=self._config, died=self._died)

    async def _load_spare(self) -> None:
        await asyncio.sleep(_SPARE_PAUSE_S)
        try:
            self._spare = spare = self._new_process()
            await spare.ready
            _log.info("a spare engine is ready")
        except (AiciError, OSError) as error:
            # A spare that has begun to serve is not this task's any more.
            if self._spare is not None and self._spare is not self._process:
                self._lose_spare(self._spare, error)

    def _lose_spare(self, spare: EngineUnit, why: Exception) -> None:
        _log.warning("the spare engine is lost: %s", why)
        self._spare = None
        self._end(spare)
        self._begin(self._load_spare())

    def _died(self, process: EngineUnit, why: AiciError) -> None:
        if process is self._spare:
            self._lose_spare(process, why)
            return
        _log.error("%s", why)
        now = time.monotonic()
        self._deaths = [] if process.was_useful else [at for at in self._deaths if now - at < _WITHIN_S] + [now]
        keeps_dying = len(self._deaths) > _MAX_DEATHS or isinstance(why, NoPlaceError)
        self.client.lost(why, will_return=not keeps_dying)
        # The rest of the old engine ends while the new engine starts.
        self._end(process)
        self._process = None
        if keeps_dying:
            self.failed.set()
        else:
            self._begin(self._start_again())

    async def _start_again(self) -> None:
        """Start an engine. Engines that die at once, and a machine that lacks something, get a pause."""
        await asyncio.sleep(_PAUSE_S * max(0, len(self._deaths) - 1))
        while True:
            try:
                await self._start()
                return
            except AiciError as error:
                assert self._process is not None
                self._died(self._process, error)
                return
            except OSError as error:
                _log.error("no engine can be started now: %s", error)
                await asyncio.sleep(_PAUSE_S)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        _keep(work, self._tasks)

    def _end(self, process: EngineUnit) -> None:
        _keep(process.close(), self._ends)


def _keep(work: Coroutine[Any, Any, None], tasks: "set[asyncio.Task[None]]") -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class EngineProcess:
    """An engine process and the two sockets that lead to the process. `was_useful`: the engine computed a token.

    `ready` is done when the engine is loaded; from `serve` on, the engine serves the client. `died` is called if the
    process ends after it was ready.
    """

    def __init__(
        self, client: EngineOwner, *, config: ProcessConfig, died: "Callable[[EngineProcess, AiciError], None]"
    ) -> None:
        self._client = client
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._is_up = False
        self._has_ended = False
        self.was_useful = False
        self.ready: asyncio.Future[wire.EngineInfo] = self._loop.create_future()
        self._context = zmq.Context()
        self._requests = zmq.asyncio.Socket(self._context, zmq.PUSH)
        self._events = EventFrames(self._context, self._received)
        # Open connections do not need the folder, so it goes as soon as both sides are connected. The folder is
        # private: the engine obeys anybody with access to the socket.
        self._folder: PrivateFolder | None = None
        try:
            page = self._open(config)
        except BaseException:
            self._close_sockets()
            raise
        self._pidfd = os.pidfd_open(self._child.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        self._why = "the engine process has died"
        self._watch = EngineWatch(
            self._child.pid, page, client, nudge=lambda: self.send(wire.Nudge()), hung=self._end_hanging
        )
        self._watching = self._loop.create_task(self._watch.run_start())

    def _open(self, config: ProcessConfig) -> mmap.mmap:
        """Bind the sockets and start the process. Return the page of its heartbeat. Raises OSError."""
        self._requests.set_hwm(0)
        self._requests.linger = 0
        self._folder = PrivateFolder("aici-sockets-")
        addresses = [f"ipc://{self._folder.path}/{letter}" for letter in "re"]
        self._requests.bind(addresses[0])
        self._events.bind(addresses[1])
        with open(os.memfd_create("aici-heartbeat"), "wb") as heartbeat:
            heartbeat.truncate(PAGE_BYTES)
            page = mmap.mmap(heartbeat.fileno(), PAGE_BYTES)
            config = msgspec.structs.replace(
                config, requests=addresses[0], events=addresses[1], heartbeat=heartbeat.fileno()
            )
            argument = msgspec.json.encode(config, enc_hook=str).decode()
            vllm = config.engine.vllm
            python = sys.executable if vllm is None or vllm.python is None else str(vllm.python)
            command = [python, "-P", "-m", "aici_engine.server.engine_process.main", argument]
            say = _as_json if config.log_format == "json" else None
            self._child = RuntimeProcess(command, say=say, pass_fds=[heartbeat.fileno()])
        return page

    def _close_sockets(self) -> None:
        self._requests.close()
        self._events.close()
        self._context.term()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()

    def serve(self) -> None:
        """Connect the client. `ready` must be done."""
        self._watching = self._loop.create_task(self._watch.run())
        self._client.connected(self, self.ready.result(), lambda: self._watch.silent_s)

    def send(self, message: wire.ToEngine) -> None:
        # Never blocks: the socket has no high-water mark.
        self._requests.send(wire.encode([message]))

    async def close(self) -> None:
        self._stop_watching()
        self._watching.cancel()
        await asyncio.to_thread(self._child.end)
        self._close_sockets()

    def _received(self, frame: bytes) -> None:
        for message in wire.decode_from_engine(frame):
            if isinstance(message, wire.Ready):
                self._remove_folder()
                self._is_up = True
                self._watching.cancel()
                self.ready.set_result(message.info)
            elif not self._is_up and isinstance(message, wire.Reply) and message.failure is not None:
                self._fail(message.failure.error())
            elif not self._has_ended:
                # The streams of an engine that has ended are the next engine's: see `EngineClient.lost`.
                self.was_useful = self.was_useful or isinstance(message, wire.TokenOut)
                self._client.receive(message)

    def _end_hanging(self) -> None:
        """Kill the engine and its runtime. `_ended` does the rest."""
        self._why = f"the engine process made no progress for {HANG_S:g} s, and was ended"
        kill_family(self._child.pid)

    def _ended(self) -> None:
        self._has_ended = True
        self._stop_watching()
        self._watching.cancel()
        why = UnavailableError(self._why, hint="the server's log has its last output")
        if self._is_up:
            self._died(self, why)
        else:
            # The socket may still hold a message with the engine's own error.
            self._loop.call_later(_LAST_MESSAGES_S, self._fail, why)

    def _fail(self, why: AiciError) -> None:
        if not self.ready.done():
            self.ready.set_exception(why)

    def _stop_watching(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _as_json(line: str) -> None:
    """Write a line of the engine process's standard error as JSON.

    Lines of the engine's logger are JSON already. Output of the runtime or of a crash is logged as a warning.
    """
    if line.startswith("{"):
        sys.stderr.write(line)
    else:
        _log.warning("%s", line.rstrip("\n"))
