"""The head of a cluster's Ray, as a child of the server."""

import os
import threading
from pathlib import Path
from typing import Self

from aici_base.errors import UnavailableError
from aici_engine.cluster import ray_start
from aici_engine.cluster.kept_process import KeptProcessThread
from aici_engine.cluster.token import ClusterToken

_END_S = 3.0


class RayHead:
    """Keeps the head at `address`, HOST:PORT. A context manager; `wait_up` before others join.

    The list of nodes is on the disk: when the head, or its machine, starts again within a minute, the nodes stay.
    """

    def __init__(self, address: str, token: ClusterToken) -> None:
        ray_start.check_installed()
        self.address = address
        self._folder = ray_start.ray_folder()
        process = ray_start.head(self._folder, token.ray_token(), address=address, state=_state_folder(address))
        self._up = threading.Event()
        self._kept = KeptProcessThread(process, name="aici-ray-head", advanced=self._note, grace_s=_END_S)

    def wait_up(self) -> None:
        """Wait until nodes can join. Raises UnavailableError if Ray does not start."""
        if not self._up.wait(ray_start.READY_S):
            raise UnavailableError(
                f"Ray does not start at {self.address}: {self._kept.process.last_words()[-1000:]}",
                hint="choose another address",
                cli_hint="choose another --cluster-address",
            )

    def close(self) -> None:
        self._kept.close()
        self._folder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _note(self, answer: str | None) -> None:
        if answer is not None:
            self._up.set()


def _state_folder(address: str) -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return base / "aici" / f"cluster-{address.rpartition(':')[2]}"
