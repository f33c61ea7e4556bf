"""Connections between driver, stages and node daemons: ZeroMQ over TCP with CURVE. Knows frames, and no models.

Each listener has its own key pair; the public key is part of the address, so nobody else can answer in the listener's
place. Everybody who connects has the key pair derived from the cluster token, so a stranger is refused in the
handshake, before any frame is read. Then both sides send a Hello, which tells versions and clusters apart.

A lost connection stays lost: frames may be lost with it, so nothing is connected again behind the owner's back.
"""

import errno
import hmac
import math
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.token import ClusterToken

Message = TypeVar("Message")
Role: TypeAlias = Literal["driver", "stage", "node", "engine"]
Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

CONNECT_S: Final = 5.0
_LINGER_MS: Final = 500
_NOISE_BYTES: Final = 1 << 10


class LinkLostError(UnavailableError):
    """A connection to a stage or a node daemon could not be made, or is lost."""


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """How soon a silent peer counts as lost.

    `interval_s`: between two pings. `timeout_s`: after a ping without an answer, or anything else, the connection is
    lost.
    `send_buffer_bytes`: of the kernel, which may give less (net.core.wmem_max). A ping waits behind this buffer, so the
    buffer must empty within the timeout on the slowest link, and hold what is on its way on the fastest.
    """

    interval_s: float
    timeout_s: float
    send_buffer_bytes: int


LAN: Final = Heartbeats(0.3, 0.9, 128 << 10)
"""Fits links from 2 Mbit/s on."""
WAN: Final = Heartbeats(1.0, 3.0, 1 << 20)
"""Fits links from 4 Mbit/s on."""


def driver_name() -> str:
    """Return a name that says to a stage that a driver which comes again is the same process."""
    return f"{socket.gethostname()} (process {os.getpid()})"


class Received(NamedTuple, Generic[Message]):
    """A frame that arrived. `body` is aligned, writable, and the receiver's own."""

    message: Message
    body: bytearray


class Closable(Protocol):
    def close(self) -> None: ...


class LinkGroup:
    """The connections of one process to others. A context manager; used by one thread, except `wake`.

    `role`, `name`: of this process, for the peers. `insecure`: no encryption, and addresses of this machine and of
    private networks alone. `wait` returns when any link of the group has something to receive.
    """

    def __init__(self, token: ClusterToken, *, role: Role, name: str, insecure: bool = False) -> None:
        self.token = token
        self.role: Role = role
        self.name = name
        self.insecure = insecure
        self.authenticates = False
        """Whether the group has a thread that decides who may connect to its servers."""
        self.context: Context = zmq.Context()
        self.poller = zmq.Poller()
        self._owners: list[Closable] = []
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.poller.register(self._wake_fd, zmq.POLLIN)
        self._signals: tuple[int, int] | None = None

    def add(self, owner: "Closable", *polled: "zmq.Socket[bytes] | int") -> None:
        """Close `owner` with the group, and let `wait` look at its sockets. Called by links and servers."""
        self._owners.append(owner)
        for item in polled:
            self.poller.register(item, zmq.POLLIN)

    def remove(self, owner: "Closable", *polled: "zmq.Socket[bytes] | int") -> None:
        self._owners.remove(owner)
        for item in polled:
            self.poller.unregister(item)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a link has a frame or is lost, or `wake` was called. Return False after `timeout_s`.

        Call `receive(0)` of each link and server before, until nothing is left. A lost link makes all calls return at
        once until the link is closed.
        """
        ready = dict(self.poller.poll(None if timeout_s is None else math.ceil(timeout_s * 1000)))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        if self._signals is not None and self._signals[0] in ready:
            os.read(self._signals[0], 4096)
        return bool(ready)

    def wake_on_signals(self) -> None:
        """Let every signal end `wait`. Only the main thread may call this, and only one group of a process.

        Without it, a signal that arrives just before `wait` sleeps, or at another thread, is handled only when
        something else ends the sleep.
        """
        self._signals = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.poller.register(self._signals[0], zmq.POLLIN)
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)

    def wake(self) -> None:
        """Let `wait` return. For any thread."""
        os.eventfd_write(self._wake_fd, 1)

    def check_address(self, address: StageAddress) -> None:
        """Raise UsageError for an address in public that would be used without encryption."""
        if self.insecure and not address.is_private:
            raise UsageError(
                f"{address.endpoint} is in public, and the connection would not be encrypted",
                hint="start the stage without --insecure, and use its whole address, with #KEY",
            )

    def hello(self, *, answers: bytes = b"") -> frames.Hello:
        hello = frames.Hello(frames.VERSION, self.token.cluster, self.role, self.name, secrets.token_bytes(16), answers)
        return msgspec.structs.replace(hello, mac=self._mac(hello))

    def check_hello(self, header: frames.Buffer, *, answers: bytes, peer: str) -> frames.Hello:
        """Return the Hello of a peer. Raises UnavailableError for a peer of another version or cluster."""
        version = _decode_version(header).version
        if version != frames.VERSION:
            raise UnavailableError(
                f"{peer} speaks version {version} of the messages, and this {self.role} version {frames.VERSION}",
                hint="install the same version of aici on all machines of a cluster",
            )
        hello = frames.decode_hello(header)
        if not hmac.compare_digest(hello.mac, self._mac(hello)) or hello.answers != answers:
            raise UnavailableError(
                f"{peer} is of cluster {hello.cluster}, and this {self.role} of cluster {self.token.cluster}",
                hint="copy the token file of the one machine to the other",
            )
        return hello

    def _mac(self, hello: frames.Hello) -> bytes:
        return self.token.mac(frames.encode(msgspec.structs.replace(hello, mac=b"")))

    def close(self) -> None:
        """Close all links. What was sent just before has half a second to leave. Idempotent."""
        for owner in list(self._owners):
            owner.close()
        if self._wake_fd >= 0:
            self.context.term()
            os.close(self._wake_fd)
            self._wake_fd = -1
        if self._signals is not None:
            signal.set_wakeup_fd(-1)
            for fd in self._signals:
                os.close(fd)
            self._signals = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _AnyHello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    version: frames.Count


_decode_version: Final[Callable[[frames.Buffer], _AnyHello]] = frames.decoder(_AnyHello)
_decode_greeting: Final[Callable[[frames.Buffer], Any]] = frames.decoder(frames.Refused | _AnyHello)


class StageLink(Generic[Message]):
    """A connection that this process makes to a stage or a node daemon. A context manager; used by one thread.

    The constructor begins to connect, and returns at once; `wait_ready` waits. `decode`: of the peer's messages
    (`frames.decoder`). `max_body_bytes`: the most bytes of a body from the peer. `to`: what the peer must say that it
    is. `on_lost` is called once when the
    connection is lost: by a thread of the link, which otherwise sleeps, or within a call of the owner.

    Raises UsageError for an address that does not go with `insecure`, and UnreachableError for an unknown host.
    """

    def __init__(
        self,
        group: LinkGroup,
        address: StageAddress,
        decode: Callable[[frames.Buffer], Message],
        *,
        max_body_bytes: int,
        to: Role = "stage",
        heartbeats: Heartbeats = LAN,
        connect_s: float = CONNECT_S,
        on_lost: Callable[[LinkLostError], None] | None = None,
    ) -> None:
        target = address.resolved()
        group.check_address(target)
        if (address.key is None) != group.insecure:
            raise UsageError(
                f"the address {address.endpoint} has {'no' if address.key is None else 'a'} key",
                hint="use the whole address that the stage prints; start all stages with --insecure, or none",
            )
        self.address = address
        self.peer_name = ""
        self.lost: LinkLostError | None = None
        """Why the connection is lost; `None` while it is not. For any thread."""
        self._group = group
        self._decode = decode
        self._to: Role = to
        self._connect_s = connect_s
        self._on_lost = on_lost
        self._reader = frames.FrameReader(max_body_bytes)
        self._is_ready = False
        self._lost_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._socket = group.context.socket(zmq.DEALER)
        set_up(self._socket)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, round(connect_s * 1000))
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, round(connect_s * 1000))
        set_heartbeats(self._socket, heartbeats)
        if (key := address.curve_key) is not None:
            self._socket.curve_serverkey = key
            self._socket.curve_publickey, self._socket.curve_secretkey = group.token.client_keys()
        monitor = monitor_of(self._socket, group.context, zmq.EVENT_ALL)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._lost_fd, zmq.POLLIN)
        group.add(self, self._socket, self._lost_fd)
        self._watcher = threading.Thread(target=self._watch, args=(monitor,), name="aici-link", daemon=True)
        self._watcher.start()
        self._hello = group.hello()
        self._socket.connect(target.endpoint)
        self._send(frames.encode(self._hello))

    @property
    def fds(self) -> list[int]:
        """Descriptors for the event loop of an owner that does not call `LinkGroup.wait`. After an event and after each
        `send`, call `receive(0)` until nothing is left: a descriptor of ZeroMQ tells of a change once."""
        return [int(self._socket.getsockopt(zmq.FD)), self._lost_fd]

    def wait_ready(self, timeout_s: float = CONNECT_S) -> None:
        """Wait until the peer has said its Hello. Raises LinkLostError, with the reason in plain words."""
        if not self.is_ready(timeout_s):
            raise self._lose(LinkLostError(f"{self.address.endpoint} has not answered within {timeout_s:g} s"))

    def is_ready(self, timeout_s: float = 0.0) -> bool:
        """Return whether the peer has said its Hello by now, or within `timeout_s`. Raises as `wait_ready`."""
        try:
            frame = None if self._is_ready else self._next(timeout_s)
        except frames.FrameError as error:
            raise self._lose(LinkLostError(f"{self.address.endpoint}: {error.message}")) from error
        if frame is None:
            return self._is_ready
        try:
            greeting = _decode_greeting(frame[0])
            if isinstance(greeting, frames.Refused):
                raise greeting.failure.error()
            hello = self._group.check_hello(frame[0], answers=self._hello.nonce, peer=self.address.endpoint)
            if hello.role != self._to:
                raise UnavailableError(
                    f"a {hello.role} listens at {self.address.endpoint}, and this is the address of a {self._to}",
                    hint="--stages takes what `aici stage` prints, --nodes what `aici node join` prints, "
                    "and --engines what `aici engine` prints",
                )
        except AiciError as error:
            raise self._lose(LinkLostError(error.message, hint=error.hint)) from error
        self.peer_name, self._is_ready = hello.name, True
        return True

    def send(self, message: msgspec.Struct, body: frames.Buffer = b"") -> None:
        """Send a frame; never waits. The body is copied. Raises LinkLostError if the connection is lost by now.

        Call `wait_ready` first.
        """
        if not self._is_ready:
            raise ValueError("wait_ready comes before send")
        if self.lost is not None:
            raise self.lost
        self._send(frames.encode(message), body)

    def _send(self, header: bytes, body: frames.Buffer = b"") -> None:
        try:
            for piece in frames.pieces(header, body):
                self._socket.send(piece, zmq.NOBLOCK)
        except zmq.Again:  # there is no bound on what is queued: the connection is gone
            raise self._lose(self._broken()) from None

    def receive(self, timeout_s: float | None = None) -> Received[Message] | None:
        """Return the next frame; `None` after `timeout_s`. Raises LinkLostError when a lost connection is empty.

        A peer's frame that cannot be read ends the connection.
        """
        try:
            frame = self._next(timeout_s)
            if frame is None:
                return None
            return Received(self._decode(frame[0]), frame[1])
        except frames.FrameError as error:
            raise self._lose(LinkLostError(f"{self.address.endpoint}: {error.message}")) from error

    def _next(self, timeout_s: float | None) -> tuple[bytearray, bytearray] | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                while True:
                    piece = self._socket.recv(zmq.NOBLOCK, copy=False)
                    if (frame := self._reader.add(piece.buffer)) is not None:
                        return frame
            except zmq.Again:
                pass
            if self.lost is not None:
                raise self.lost
            if deadline is not None and time.monotonic() >= deadline:
                return None
            self._poller.poll(milliseconds_until(deadline))

    def close(self) -> None:
        """Close the connection. `on_lost` is not called any more. Idempotent."""
        if self._lost_fd < 0:
            return
        self._on_lost = None
        linger_ms = _LINGER_MS if self.lost is None else 0
        self._lose(LinkLostError(f"the connection to {self.address.endpoint} was closed"))
        self._group.remove(self, self._socket, self._lost_fd)
        self._socket.disable_monitor()
        self._watcher.join()
        if self.lost is not None:
            self.lost.__traceback__ = None  # its frames would keep the owner's objects
        self._socket.close(linger_ms)
        os.close(self._lost_fd)
        self._lost_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _lose(self, why: LinkLostError) -> LinkLostError:
        """Note the first reason, and return it."""
        with self._lock:
            if self.lost is not None:
                return self.lost
            self.lost = why
        if (on_lost := self._on_lost) is not None:  # another thread may close the link
            on_lost(why)
        os.eventfd_write(self._lost_fd, 1)
        return why

    def _watch(self, monitor: "zmq.Socket[bytes]") -> None:
        """Follow the events of the connection until the socket is closed."""
        is_connected = is_up = False
        with monitor:
            while True:
                event = recv_monitor_message(monitor)
                match event["event"]:
                    case zmq.EVENT_CONNECTED:
                        is_connected = True
                    case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                        is_up = True
                    case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                        self._lose(self._refused())
                    case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                        self._lose(self._not_a_stage())
                    case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                        self._lose(self._silent() if event["value"] == errno.EAGAIN else self._wrong_key())
                    case zmq.EVENT_CLOSED if not is_connected:
                        self._lose(self._unreachable())
                    case zmq.EVENT_DISCONNECTED:
                        self._lose(self._broken() if is_up else self._wrong_key())
                    case zmq.EVENT_MONITOR_STOPPED:
                        return

    def _broken(self) -> LinkLostError:
        return LinkLostError(f"the connection to {self.address.endpoint} is lost")

    def _refused(self) -> LinkLostError:
        return LinkLostError(
            f"{self.address.endpoint} refused this {self._group.role}: the cluster tokens differ",
            hint="copy the token file of the one machine to the other",
        )

    def _not_a_stage(self) -> LinkLostError:
        return LinkLostError(
            f"{self.address.endpoint} does not answer as a stage or a node does",
            hint="check the port; and start both sides with --insecure, or both without it"
            if self._group.insecure or self.address.key is not None
            else "the address has no key: copy the whole address, tcp://HOST:PORT#KEY",
        )

    def _wrong_key(self) -> LinkLostError:
        if self._group.insecure:
            return self._not_a_stage()
        return LinkLostError(
            f"{self.address.endpoint} has another key than its address says",
            hint="it was started anew since, or something else listens there: take the address that it prints now",
        )

    def _silent(self) -> LinkLostError:
        return LinkLostError(f"{self.address.endpoint} took the connection, and did not answer")

    def _unreachable(self) -> LinkLostError:
        """Connect once more, without ZeroMQ, to learn the reason."""
        target = self.address.resolved()
        try:
            socket.create_connection((target.host, target.port), timeout=min(1.0, self._connect_s)).close()
            why = "the connection could not be made"
        except OSError as error:
            why = error.strerror or "no answer"
        hint = "start the process there, or correct the address"
        return LinkLostError(f"no connection to {self.address.endpoint}: {why}", hint=hint)


def set_heartbeats(socket_: "zmq.Socket[bytes]", heartbeats: Heartbeats) -> None:
    socket_.setsockopt(zmq.HEARTBEAT_IVL, round(heartbeats.interval_s * 1000))
    socket_.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(heartbeats.timeout_s * 1000))
    socket_.setsockopt(zmq.SNDBUF, heartbeats.send_buffer_bytes)


def milliseconds_until(deadline: float | None) -> int | None:
    """Return how long a poller waits, rounded up; `deadline` is a time of `time.monotonic`."""
    return None if deadline is None else max(0, math.ceil((deadline - time.monotonic()) * 1000))


def set_up(socket_: "zmq.Socket[bytes]") -> None:
    """Set the common options of both ends."""
    socket_.linger = _LINGER_MS
    socket_.ipv6 = True
    socket_.sndhwm = 0
    socket_.rcvhwm = 0
    socket_.setsockopt(zmq.MAXMSGSIZE, frames.PIECE_BYTES + _NOISE_BYTES)


def monitor_of(socket_: "zmq.Socket[bytes]", context: Context, events: int) -> "zmq.Socket[bytes]":
    """Return a socket that receives the events of another socket."""
    endpoint = f"inproc://aici-monitor-{secrets.token_hex(8)}"
    socket_.monitor(endpoint, events)
    monitor = context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # with a bound, ZeroMQ's own thread would wait for whoever reads the events
    monitor.connect(endpoint)
    return monitor
