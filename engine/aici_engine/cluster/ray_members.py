"""The machines of the cluster as Ray knows them. Imports no Ray: a child process does (`ray_watcher`)."""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from aici_engine.cluster import ray_start
from aici_engine.cluster.kept_process import KeptProcess
from aici_engine.cluster.members import Member, RoomClaim

_READY_S = 60.0
_MEMBERS = msgspec.json.Decoder(list[Member])


class RayMembers:
    """Asks the Ray of this machine, through a child process that is started again when it dies.

    If Ray is away, `current` keeps the last news. `is_connected`: whether the news is fresh.
    """

    def __init__(self, head_address: str, ray_token: str) -> None:
        ray_start.check_installed()
        self._watcher = KeptProcess(
            [sys.executable, "-P", "-m", "aici_engine.cluster.ray_watcher", head_address],
            listen=lambda line: line if line.startswith("[") else None,
            ready_timeout_s=_READY_S,
            environment=ray_start.environment(ray_token),
            may_start=lambda: ray_start.can_connect(head_address),
            quiet=True,
        )
        self._members: Sequence[Member] = ()
        self._listeners: list[Callable[[], None]] = []
        self._claims: Sequence[RoomClaim] | None = None
        self._closing = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="aici-members", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        return self._watcher.answer is not None

    def current(self) -> Sequence[Member]:
        return self._members

    def notify(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def claim(self, rooms: Sequence[RoomClaim]) -> None:
        self._claims = list(rooms)
        os.write(self._wake_writer, b"x")

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            os.write(self._wake_writer, b"x")
            self._thread.join()
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _run(self) -> None:
        """The kernel ends the watcher with the thread that started it: this one, which lives until `close`."""
        heard: str | None = None
        try:
            while not self._closing:
                self._watcher.advance()
                answer = self._watcher.answer
                if answer is not None and answer != heard:
                    heard = answer
                    self._members = _MEMBERS.decode(answer)
                    for changed in self._listeners:
                        changed()
                deadline = self._watcher.deadline
                wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if self._wake_reader in select.select([self._wake_reader, *self._watcher.fds], [], [], wait_s)[0]:
                    os.read(self._wake_reader, 64)
                    if self._claims is not None:
                        self._watcher.tell(msgspec.json.encode(self._claims).decode())
        finally:
            self._watcher.end()
