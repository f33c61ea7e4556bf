"""Length-prefixed messages over a stream socket: u32 little-endian, then the bytes."""

import socket
import struct

_HEADER = struct.Struct("<I")
EMPTY = _HEADER.pack(0)


def send(sock: socket.socket, message: bytes) -> None:
    """Send a message."""
    sock.sendall(_HEADER.pack(len(message)) + message)


def receive(sock: socket.socket) -> bytes | None:
    """Receive a message; None means that the peer is gone."""
    header = _exactly(sock, _HEADER.size)
    return None if header is None else _exactly(sock, _HEADER.unpack(header)[0])


def _exactly(sock: socket.socket, length: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < length:
        try:
            part = sock.recv(min(length - len(parts), 1 << 20))
        except ConnectionResetError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
