"""Node daemons on threads of a test, with small scripts as stages."""

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from aici_base.errors import UnreachableError
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.control_socket import ask
from aici_engine.cluster.link_server import KeyPair
from aici_engine.cluster.members import Member, Members, RoomClaim
from aici_engine.cluster.node_daemon import NodeDaemon, NodeSettings
from aici_engine.cluster.node_messages import NodeReport
from aici_engine.cluster.token import ClusterToken

A_STAGE = """
import sys
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import decode_to_stage
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.link_server import StageServer
from aici_engine.cluster.token import ClusterToken
group = LinkGroup(ClusterToken(bytes.fromhex(sys.argv[1])), role="stage", name="a script")
server = StageServer(group, StageAddress("127.0.0.1", 0), decode_to_stage, max_body_bytes=0)
print(server.address, flush=True)
while True:
    server.receive()
"""
"""Says its Hello to everybody, and computes nothing."""
TOKEN = ClusterToken.new()


def machine(name: str, **given: object) -> NodeReport:
    facts = {"free_bytes": 1 << 30, "budget_bytes": 1 << 30, "bytes_per_s": 1e10, "flops_per_s": {}, "device": "cpu"}
    more = {
        "num_cores": 2,
        "num_threads": 2,
        "level": "",
        "labels": {},
        "is_leaving": False,
        "ray": "off",
        "stages": [],
    }
    return NodeReport(name=name, **{**facts, **more, **given})


class RunningDaemon:
    """A daemon on a thread of this process. `start` after `stop` keeps name, keys and port."""

    def __init__(self, folder: Path, name: str = "a", *, stage: str = A_STAGE, **facts: object) -> None:
        self.name, self.control = name, folder / f"node-{name}.sock"
        self.keys = KeyPair.new()
        self.machine = machine(name, **facts)
        self._stage = stage
        self._listen = StageAddress("127.0.0.1", 0)
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        ready = threading.Event()

        def run() -> None:
            settings = NodeSettings(
                listen=self._listen,
                keys=self.keys,
                token=TOKEN,
                machine=self.machine,
                stage_command=[sys.executable, "-c", self._stage, TOKEN.secret.hex()],
                engine_command=[sys.executable, "-c", self._stage, TOKEN.secret.hex()],
                control=self.control,
            )
            with NodeDaemon(settings) as daemon:
                self.address = str(daemon.address)
                self._listen = daemon.address._replace(key=None)
                ready.set()
                daemon.run()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(20)

    def stop(self) -> None:
        with contextlib.suppress(UnreachableError):
            list(ask(self.control, "leave now"))
        if self._thread is not None:
            self._thread.join(20)
            assert not self._thread.is_alive()


class ChangingMembers(Members):
    """Members that a test changes."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.changed: list[Callable[[], None]] = []
        self.claims: list[RoomClaim] = []

    def current(self) -> list[Member]:
        return self.members

    def notify(self, changed: Callable[[], None]) -> None:
        self.changed.append(changed)

    def claim(self, rooms: object) -> None:
        self.claims = list(rooms)

    def set(self, *members: Member) -> None:
        self.members = list(members)
        for changed in self.changed:
            changed()

    def close(self) -> None:
        pass
