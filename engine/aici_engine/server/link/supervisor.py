"""Starts the engine process, connects the EngineClient to it, and starts a new process when the engine dies."""

import asyncio
import logging
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec
import zmq
import zmq.asyncio

from aici_base.errors import AiciError, UnavailableError
from aici_engine.config import EngineConfig
from aici_engine.heartbeat import PAGE_BYTES
from aici_engine.private_folder import PrivateFolder
from aici_engine.server.config import LogFormat
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.engine_watch import HANG_S, EngineWatch, kill_family
from aici_engine.server.link.process_config import ProcessConfig
from aici_runtime.runtime_process import RuntimeProcess

_MAX_DEATHS = 3
_WITHIN_S = 60.0
_LAST_MESSAGES_S = 0.5

_log = logging.getLogger(__name__)


class Supervisor:
    """Keeps an engine process running. A context manager; `client` is connected while an engine is up.

    Entering waits until the engine is ready, and raises the engine's own error if the engine does not start. After more
    than `_MAX_DEATHS` engines that died within `_WITHIN_S` seconds without having computed a token, `failed` is set,
    and no further engine is started.
    """

    def __init__(
        self,
        engine: EngineConfig,
        *,
        modules: Sequence[Path],
        max_forks: int,
        log_level: str = "WARNING",
        log_format: LogFormat = "text",
    ) -> None:
        self._config = ProcessConfig(
            requests="",
            events="",
            parent_pid=os.getpid(),
            heartbeat=-1,
            engine=engine,
            max_forks=max_forks,
            modules=tuple(str(path) for path in modules),
            log_level=log_level,
            log_format=log_format,
        )
        self._process: _EngineProcess | None = None
        self._deaths: list[float] = []
        self._restart: asyncio.Task[None] | None = None
        self.client = EngineClient()
        self.failed = asyncio.Event()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._restart is not None:
            self._restart.cancel()
        if self._process is not None:
            await self._process.close()
        self.client.lost(UnavailableError("the server is stopping"))

    async def _start(self) -> None:
        self._process = process = _EngineProcess(self.client, config=self._config, died=self._died)
        await process.ready

    def _died(self, why: AiciError) -> None:
        _log.error("%s", why)
        now = time.monotonic()
        was_useful = self._process is not None and self._process.was_useful
        self._deaths = [] if was_useful else [at for at in self._deaths if now - at < _WITHIN_S] + [now]
        keeps_dying = len(self._deaths) > _MAX_DEATHS
        self.client.lost(why, will_return=not keeps_dying)
        if keeps_dying:
            self.failed.set()
        else:
            self._restart = asyncio.get_running_loop().create_task(self._start_again())

    async def _start_again(self) -> None:
        assert self._process is not None
        await self._process.close()
        try:
            await self._start()
        except AiciError as error:
            self._died(error)


class _EngineProcess:
    """An engine process and the two sockets that lead to the process. `was_useful`: the engine computed a token."""

    def __init__(self, client: EngineClient, *, config: ProcessConfig, died: Callable[[AiciError], None]) -> None:
        self._client = client
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._is_up = False
        self.was_useful = False
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._context = zmq.asyncio.Context()
        self._requests, self._events = self._context.socket(zmq.PUSH), self._context.socket(zmq.PULL)
        for socket in (self._requests, self._events):
            socket.set_hwm(0)
            socket.linger = 0
        # Open connections do not need the folder, so it goes as soon as both sides are connected. The folder is
        # private: the engine obeys anybody with access to the socket.
        self._folder = PrivateFolder("aici-sockets-")
        addresses = [f"ipc://{self._folder.path}/{letter}" for letter in "re"]
        self._requests.bind(addresses[0])
        self._events.bind(addresses[1])
        heartbeat = os.memfd_create("aici-heartbeat")
        os.ftruncate(heartbeat, PAGE_BYTES)
        page = mmap.mmap(heartbeat, PAGE_BYTES)
        config = msgspec.structs.replace(config, requests=addresses[0], events=addresses[1], heartbeat=heartbeat)
        argument = msgspec.json.encode(config, enc_hook=str).decode()
        command = [sys.executable, "-P", "-m", "aici_engine.server.engine_process.main", argument]
        say = _as_json if config.log_format == "json" else None
        self._child = RuntimeProcess(command, say=say, pass_fds=[heartbeat])
        os.close(heartbeat)
        self._pidfd = os.pidfd_open(self._child.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        self._reader = self._loop.create_task(self._read())
        self._why = "the engine process has died"
        self._watch = EngineWatch(
            self._child.pid, page, client, nudge=lambda: self.send(wire.Nudge()), hung=self._end_hanging
        )
        self._watching = self._loop.create_task(self._watch.run_start())

    def send(self, message: wire.ToEngine) -> None:
        # Never blocks: the socket has no high-water mark.
        self._requests.send(wire.encode([message]))

    async def close(self) -> None:
        self._stop_watching()
        self._reader.cancel()
        self._watching.cancel()
        await asyncio.to_thread(self._child.end)
        self._requests.close()
        self._events.close()
        self._context.term()
        self._folder.remove()

    async def _read(self) -> None:
        while True:
            for message in wire.decode_from_engine(await self._events.recv()):
                if isinstance(message, wire.Ready):
                    self._folder.remove()
                    self._is_up = True
                    self._watching.cancel()
                    self._watching = self._loop.create_task(self._watch.run())
                    self._client.connected(self, message.info, lambda: self._watch.silent_s)
                    self.ready.set_result(None)
                elif not self._is_up and isinstance(message, wire.Reply) and message.failure is not None:
                    self._fail(message.failure.error())
                else:
                    self.was_useful = self.was_useful or isinstance(message, wire.TokenOut)
                    self._client.receive(message)

    def _end_hanging(self) -> None:
        """Kill the engine and its runtime. `_ended` does the rest."""
        self._why = f"the engine process made no progress for {HANG_S:g} s, and was ended"
        kill_family(self._child.pid)

    def _ended(self) -> None:
        self._stop_watching()
        self._watching.cancel()
        why = UnavailableError(self._why, hint="the server's log has its last output")
        if self._is_up:
            self._died(why)
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
