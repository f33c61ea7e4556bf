"""The machines of the cluster as Ray knows them. Imports no Ray: a child process does (`ray_watcher`)."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from aici_engine.cluster import ray_start
from aici_engine.cluster.kept_process import KeptProcess, KeptProcessThread
from aici_engine.cluster.members import Member, RoomClaim

_READY_S = 60.0
_MEMBERS = msgspec.json.Decoder(list[Member])


class RayMembers:
    """Asks the Ray of this machine, through a child process, restarted when it dies.

    If Ray is away, `current` keeps the last news. `is_connected`: whether the news is fresh.
    """

    def __init__(self, head_address: str, ray_token: str) -> None:
        ray_start.check_installed()
        watcher = KeptProcess(
            [sys.executable, "-P", "-m", "aici_engine.cluster.ray_watcher", head_address],
            listen=lambda line: line if line.startswith("[") else None,
            ready_timeout_s=_READY_S,
            environment=ray_start.environment(ray_token),
            may_start=lambda: ray_start.can_connect(head_address),
            quiet=True,
        )
        self._members: Sequence[Member] = ()
        self._listeners: list[Callable[[], None]] = []
        self._heard: str | None = None
        self._kept = KeptProcessThread(watcher, name="aici-members", advanced=self._hear)

    @property
    def is_connected(self) -> bool:
        return self._kept.process.answer is not None

    def current(self) -> Sequence[Member]:
        return self._members

    def notify(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def claim(self, rooms: Sequence[RoomClaim]) -> None:
        self._kept.tell(msgspec.json.encode(list(rooms)).decode())

    def close(self) -> None:
        self._kept.close()

    def _hear(self, answer: str | None) -> None:
        if answer is not None and answer != self._heard:
            self._heard = answer
            self._members = _MEMBERS.decode(answer)
            for changed in self._listeners:
                changed()
