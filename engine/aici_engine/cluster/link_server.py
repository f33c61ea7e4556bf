"""The listening end of links: one port, one ROUTER socket, peers that have proved the cluster token."""

import errno
import hmac
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Self, TypeAlias

import msgspec
import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from aici_base.errors import AiciError, UnavailableError
from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.link import (
    CONNECT_S,
    WAN,
    LinkGroup,
    Message,
    milliseconds_until,
    monitor_of,
    set_heartbeats,
    set_up,
)

_MAX_QUEUED_PIECES: Final = 4096
_DOMAIN: Final = b"aici"
_LOG_PAUSE_S: Final = 10.0
_MOST_WAITING: Final = 64
"""Between two lines about refused connections: strangers must not fill the log."""

_log = logging.getLogger(__name__)


class KeyPair(NamedTuple):
    """A CURVE key pair, 32 bytes each. Whoever has the secret can answer under the public key."""

    public: bytes
    secret: bytes

    @classmethod
    def new(cls) -> Self:
        public, secret = zmq.curve_keypair()
        return cls(z85.decode(public), z85.decode(secret))


@dataclass(eq=False, slots=True)
class Peer:
    """A connection that a driver, a stage or a node has made to this process. `role`, `name`: what the peer says."""

    identity: bytes
    fd: str
    reader: frames.FrameReader = field(repr=False)
    role: str = ""
    name: str = ""


class PeerJoined(NamedTuple):
    peer: Peer


class PeerFrame(NamedTuple, Generic[Message]):
    """A frame of a peer. `body` is aligned, writable, and the receiver's own."""

    peer: Peer
    message: Message
    body: bytearray


class PeerLost(NamedTuple):
    """The connection is lost; no frame of this peer follows."""

    peer: Peer


PeerEvent: TypeAlias = PeerJoined | PeerFrame[Message] | PeerLost


class StageServer(Generic[Message]):
    """Listens for peers. A context manager; used by one thread.

    `listen`: an address without a key; port 0 takes a free port. `keys`: the key pair; a new one if not given, and then
    the address changes with every start. `decode`: of the peers' messages (`frames.decoder`). `max_body_bytes`: the
    most bytes of a body; may change at any time, and holds for the next frames.

    Raises UsageError for an address that does not go with `insecure` of the group, UnreachableError for an unknown
    host, and UnavailableError if the address is taken.
    """

    def __init__(
        self,
        group: LinkGroup,
        listen: StageAddress,
        decode: Callable[[frames.Buffer], Message],
        *,
        max_body_bytes: int,
        keys: KeyPair | None = None,
        handshake_s: float = CONNECT_S,
    ) -> None:
        target = listen.resolved()
        group.check_address(target)
        self.max_body_bytes = max_body_bytes
        self._group = group
        self._decode = decode
        self._peers: dict[bytes, Peer] = {}
        self._leaving: list[Peer] = []
        """Peers that are gone, with frames that may still wait to be read."""
        self._waiting: list[tuple[bytes, zmq.Frame]] = []
        """Greetings that wait until the peers in `_leaving` are announced as lost."""
        self._events: deque[PeerEvent[Message]] = deque()
        self._num_refused = 0
        self._log_at = 0.0
        self._socket = group.context.socket(zmq.ROUTER)
        set_up(self._socket)
        set_heartbeats(self._socket, WAN)  # whoever connects has a ping of its own, and notices sooner if it wants to
        self._socket.rcvhwm = _MAX_QUEUED_PIECES
        self._socket.router_mandatory = True
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, round(handshake_s * 1000))
        keys = keys or KeyPair.new()
        if not group.insecure:
            _authenticate_in(group)
            self._socket.zap_domain = _DOMAIN
            self._socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an answer, nobody may connect
            self._socket.curve_server = True
            self._socket.curve_publickey, self._socket.curve_secretkey = map(z85.encode, keys)
        self._monitor = monitor_of(self._socket, group.context, zmq.EVENT_DISCONNECTED)
        try:
            self._socket.bind(target.endpoint)
        except zmq.ZMQError as error:
            self._socket.close()
            self._monitor.close()
            raise UnavailableError(
                f"cannot listen at {listen.endpoint}: {os.strerror(error.errno or 0)}",
                hint="choose another port, or port 0"
                if error.errno == errno.EADDRINUSE
                else "choose an address of this machine, and a port that this user may take",
            ) from error
        port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        host = socket.gethostname() if listen.is_wildcard else listen.host
        self.address = StageAddress(host, port, None if group.insecure else keys.public)
        """Where peers connect to. If the server listens at all addresses, this machine's name is the host."""
        self._poller = zmq.Poller()
        for item in (self._socket, self._monitor):
            self._poller.register(item, zmq.POLLIN)
        group.add(self, self._socket, self._monitor)

    @property
    def fds(self) -> list[int]:
        """See `StageLink.fds`."""
        return [int(item.getsockopt(zmq.FD)) for item in (self._socket, self._monitor)]

    def receive(self, timeout_s: float | None = None) -> PeerEvent[Message] | None:
        """Return the next event; `None` after `timeout_s`.

        A frame that cannot be read, or is too large, ends its peer: the peer hears why, and PeerLost comes.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._read_pieces()
            if self._events:
                return self._events.popleft()
            if self._leaving:
                self._drop(self._leaving.pop(0))
                continue
            ready = self._poller.poll(milliseconds_until(deadline))
            if not ready and deadline is not None and time.monotonic() >= deadline:
                return None
            if any(item is self._monitor for item, _ in ready):
                self._read_monitor()

    def send(self, peer: Peer, message: msgspec.Struct, body: frames.Buffer = b"") -> None:
        """Send a frame; never waits. The body is copied. A peer that is gone is no error: PeerLost follows."""
        try:
            for piece in frames.pieces(frames.encode(message), body):
                self._socket.send_multipart((peer.identity, piece))
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            self._leave(peer)

    def _read_pieces(self) -> None:
        while self._waiting and not (self._leaving or self._events):
            self._take(*self._waiting.pop(0))
        while not self._events:
            try:
                identity, *rest = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if len(rest) == 1:
                self._take(identity.bytes, rest[0])

    def _take(self, identity: bytes, piece: zmq.Frame) -> None:
        peer = self._peers.get(identity)
        try:
            if peer is None:
                self._read_monitor()
                if self._leaving and len(self._waiting) < _MOST_WAITING:
                    self._waiting.append((identity, piece))
                else:
                    self._greet(identity, piece)
                return
            peer.reader.max_body_bytes = self.max_body_bytes
            if (frame := peer.reader.add(piece.buffer)) is not None:
                self._events.append(PeerFrame(peer, self._decode(frame[0]), frame[1]))
        except AiciError as error:
            stranger = peer or Peer(identity, "", frames.FrameReader(0))
            self._log_refusal(error)
            self.send(stranger, frames.Refused(frames.Failure.of(error)))
            self._drop(stranger)

    def _log_refusal(self, error: AiciError) -> None:
        self._num_refused += 1
        if (now := time.monotonic()) >= self._log_at:
            _log.warning("a connection is refused: %s (%d since the last such line)", error, self._num_refused)
            self._num_refused, self._log_at = 0, now + _LOG_PAUSE_S

    def _greet(self, identity: bytes, piece: zmq.Frame) -> None:
        """Take the first piece of a connection, which is the whole of a Hello."""
        frame = frames.FrameReader(0).add(piece.buffer)
        if frame is None:
            raise frames.FrameError("a connection did not begin with a greeting")
        hello = self._group.check_hello(frame[0], answers=b"", peer=str(piece.get("Peer-Address")))
        self._read_monitor()  # the number of the descriptor may have been that of a connection that has ended since
        peer = Peer(identity, str(piece.get("__fd")), frames.FrameReader(0), hello.role, hello.name)
        self._peers[identity] = peer
        self._events.append(PeerJoined(peer))
        self.send(peer, self._group.hello(answers=hello.nonce))

    def _read_monitor(self) -> None:
        """Note which peers are gone."""
        while self._monitor.poll(0):
            fd = str(int(recv_monitor_message(self._monitor)["value"]))
            staying = (peer for peer in self._peers.values() if peer.fd == fd and peer not in self._leaving)
            if (peer := next(staying, None)) is not None:
                self._leave(peer)

    def _leave(self, peer: Peer) -> None:
        """The peer is gone; what the peer has sent before may still wait to be read."""
        if peer.identity in self._peers and peer not in self._leaving:
            self._leaving.append(peer)

    def _drop(self, peer: Peer) -> None:
        if self._peers.pop(peer.identity, None) is not None:
            self._events.append(PeerLost(peer))

    def close(self) -> None:
        """Stop to listen, and close all connections. Idempotent."""
        if self._socket.closed:
            return
        self._group.remove(self, self._socket, self._monitor)
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _authenticate_in(group: LinkGroup) -> None:
    """Start the thread that decides who may connect to the servers of a group, unless the thread runs already."""
    if group.authenticates:
        return
    handler = group.context.socket(zmq.REP)
    handler.linger = 0
    handler.bind("inproc://zeromq.zap.01")
    client_key = group.token.client_keys()[0]
    threading.Thread(target=_authenticate, args=(handler, client_key), name="aici-zap", daemon=True).start()
    group.authenticates = True


def _authenticate(handler: "zmq.Socket[bytes]", client_key: bytes) -> None:
    """Answer ZeroMQ's questions whether a client may connect (ZAP, RFC 27), until the context ends."""
    allowed = z85.decode(client_key)
    with handler:
        while True:
            try:
                _, request, _, _, _, mechanism, *credentials = handler.recv_multipart()
            except zmq.ContextTerminated:
                return
            fine = mechanism == b"CURVE" and len(credentials) == 1 and hmac.compare_digest(credentials[0], allowed)
            status = (b"200", b"OK") if fine else (b"400", b"unknown key")
            handler.send_multipart((b"1.0", request, *status, b"", b""))
