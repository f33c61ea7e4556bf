"""The driver's connections to all node daemons of the cluster."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from aici_base.errors import AiciError
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Ping, Pong, Refused
from aici_engine.cluster.link import LinkGroup, LinkLostError, StageLink
from aici_engine.cluster.members import Member, Members
from aici_engine.cluster.node_messages import (
    AskReport,
    FromNode,
    NodeReport,
    ToNode,
    decode_from_node,
    timeless,
)
from aici_engine.cluster.token import ClusterToken

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_PINGS: Final = 5
_PONG_S: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeView:
    """The driver's view of a node. `report`: the last; None before the first. `lost_at`: the time (`time.monotonic`)
    since which the daemon cannot be reached; None while it can. `trouble`: the reason."""

    member: Member
    report: NodeReport | None = None
    rtt_s: float = 0.0
    lost_at: float | None = None
    trouble: str = ""

    @property
    def name(self) -> str:
        return self.member.name if self.report is None else self.report.name


class NodeLinks:
    """Keeps a connection to the daemon of every member. Methods are for any thread. A context manager.

    `changed` of `watch` is called on a thread of a link, and must return soon.
    """

    def __init__(self, members: Members, token: ClusterToken, *, name: str, insecure: bool = False) -> None:
        self._members = members
        self._token = token
        self._name = name
        self._insecure = insecure
        self._links: dict[str, _NodeLink] = {}
        self._condition = threading.Condition()
        self._num_changes = 0
        self._watchers: list[Callable[[], None]] = []
        self._closed = False
        members.notify(self._follow)
        self._follow()

    def nodes(self) -> Sequence[NodeView]:
        """Return all nodes that ever were members, by address."""
        with self._condition:
            return [link.view for _, link in sorted(self._links.items())]

    def send(self, address: str, message: ToNode) -> None:
        """Send to the daemon at `address`; a lost connection loses the message too."""
        with self._condition:
            link = self._links.get(address)
        if link is not None:
            link.send(message)

    @property
    def num_changes(self) -> int:
        return self._num_changes

    def wait_change(self, since: int, timeout_s: float) -> bool:
        """Wait until `num_changes` exceeds `since`. Return False after `timeout_s`."""
        with self._condition:
            return self._condition.wait_for(lambda: self._num_changes > since or self._closed, timeout_s)

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            links = list(self._links.values())
            self._condition.notify_all()
        for link in links:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _follow(self) -> None:
        """Connect to new members, and forget the old address of a member whose daemon was started anew."""
        members = self._members.current()
        names = {member.name for member in members}
        addresses = {member.address for member in members}
        old = []
        with self._condition:
            if self._closed:
                return
            for address, link in list(self._links.items()):
                if address not in addresses and link.view.member.name in names:
                    old.append(self._links.pop(address))
            for member in members:
                if (known := self._links.get(member.address)) is not None:
                    known.member = member
                else:
                    self._links[member.address] = _NodeLink(
                        member, self._token, self._name, self._changed, insecure=self._insecure
                    )
        for link in old:
            link.close()
        self._changed()

    def _changed(self) -> None:
        with self._condition:
            if self._closed:
                return
            self._num_changes += 1
            self._condition.notify_all()
        for changed in self._watchers:
            changed()


@dataclass
class _NodeLink:
    """A thread that keeps one connection, and sleeps until something happens to it."""

    member: Member
    token: ClusterToken
    name: str
    changed: Callable[[], None]
    insecure: bool
    report: NodeReport | None = None
    rtt_s: float = 0.0
    lost_at: float | None = None
    trouble: str = ""
    outbox: list[ToNode] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.lost_at = time.monotonic()
        self._lock = threading.Lock()
        self._group: LinkGroup | None = None
        self._thread = threading.Thread(target=self._run, name="aici-node-link", daemon=True)
        self._thread.start()

    @property
    def view(self) -> NodeView:
        return NodeView(self.member, self.report, self.rtt_s, self.lost_at, self.trouble)

    def send(self, message: ToNode) -> None:
        with self._lock:
            self.outbox.append(message)
            if self._group is not None:
                self._group.wake()

    def close(self) -> None:
        """Let what was sent leave, then end."""
        self.closing.set()
        with self._lock:
            if self._group is not None:
                self._group.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self.closing.is_set():
            try:
                self._connect()
            except AiciError as error:
                if error.message != self.trouble:
                    _log.info("node %s: %s", self.member.name, error.message)
                if self.lost_at is None:
                    self.lost_at, pause_s = time.monotonic(), _FIRST_PAUSE_S
                self.trouble = error.message
                self.changed()
            self.closing.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _connect(self) -> None:
        """Connect and stay connected. Raises AiciError when the connection is lost."""
        with self._lock:
            self.outbox.clear()
            group = LinkGroup(self.token, role="driver", name=self.name, insecure=self.insecure)
            self._group = group
        try:
            address = StageAddress.parse(self.member.address)
            link: StageLink[FromNode] = StageLink(group, address, decode_from_node, max_body_bytes=0, to="node")
            link.wait_ready()
            self.rtt_s = min(_round_trip_s(link, number) for number in range(_PINGS))
            link.send(AskReport())
            self._serve(group, link)
        finally:
            with self._lock:
                self._group = None
            group.close()

    def _serve(self, group: LinkGroup, link: "StageLink[FromNode]") -> None:
        while True:
            with self._lock:
                messages, self.outbox = self.outbox, []
            for message in messages:
                link.send(message)
            if self.closing.is_set():
                with suppress(LinkLostError):
                    link.receive(0)
                return
            while (received := link.receive(0)) is not None:
                self._take(received.message)
            group.wait(None)

    def _take(self, message: FromNode) -> None:
        match message:
            case NodeReport():
                self._take_report(message)
            case Refused(failure):
                raise failure.error()

    def _take_report(self, report: NodeReport) -> None:
        is_news = self.lost_at is not None or self.report is None or timeless(self.report) != timeless(report)
        self.report, self.lost_at, self.trouble = report, None, ""
        if is_news:
            self.changed()


def _round_trip_s(link: "StageLink[FromNode]", number: int) -> float:
    begin = time.monotonic()
    link.send(Ping(number))
    while (received := link.receive(_PONG_S)) is not None:
        if received.message == Pong(number):
            return time.monotonic() - begin
    raise LinkLostError(f"the node at {link.address.endpoint} does not answer")
