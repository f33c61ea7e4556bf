"""Messages between rank 0 of a tensor parallel stage and the other ranks, over a socket pair.

A message has 8 bytes of length, then msgpack. Both ends are processes of one stage, so nothing is checked.
"""

import socket
from typing import Any, TypeAlias

import msgspec

from aici_engine.config import Dtype
from aici_engine.step_input import StepInput

Buffer: TypeAlias = bytes | bytearray | memoryview


class RankSettings(msgspec.Struct, frozen=True, array_like=True):
    """What a rank loads. `parent`: the process of rank 0. `store`: the file by which the ranks find each other."""

    parent: int
    num_ranks: int
    store: str
    first: int
    last: int
    embedding: bool
    head: bool
    dtype: Dtype
    device: str
    num_threads: int
    config: dict[str, Any]
    generation_config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...]]]


class MakeStorage(msgspec.Struct, frozen=True, array_like=True, tag=0):
    num_pages: int
    page_size: int


class RunStep(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`num_states`: rows of states, which follow by a broadcast; -1 for a range with the embedding."""

    step: StepInput
    num_states: int


class ReadTensor(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Asks rank 0 for a tensor. The answer is its bytes."""

    name: str


class RankReady(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Comes twice: when the process runs, and when its share is loaded."""


_encoder = msgspec.msgpack.Encoder()
_settings = msgspec.msgpack.Decoder(RankSettings)
_to_rank = msgspec.msgpack.Decoder(MakeStorage | RunStep)
_from_rank = msgspec.msgpack.Decoder(ReadTensor | RankReady)


def send(to: socket.socket, message: msgspec.Struct) -> None:
    send_bytes(to, _encoder.encode(message))


def send_bytes(to: socket.socket, content: Buffer) -> None:
    to.sendall(len(content).to_bytes(8, "little"))
    to.sendall(content)


def receive_bytes(source: socket.socket) -> bytearray | None:
    """Return the next message; None if the other end is gone."""
    length = bytearray(8)
    if not _fill(source, length):
        return None
    content = bytearray(int.from_bytes(length, "little"))
    return content if _fill(source, content) else None


def receive_settings(source: socket.socket) -> RankSettings | None:
    content = receive_bytes(source)
    return None if content is None else _settings.decode(content)


def receive_order(source: socket.socket) -> MakeStorage | RunStep | None:
    content = receive_bytes(source)
    return None if content is None else _to_rank.decode(content)


def receive_from_rank(source: socket.socket) -> ReadTensor | RankReady | None:
    content = receive_bytes(source)
    return None if content is None else _from_rank.decode(content)


def _fill(source: socket.socket, content: bytearray) -> bool:
    view = memoryview(content)
    while view:
        try:
            count = source.recv_into(view)
        except ConnectionError:
            return False
        if not count:
            return False
        view = view[count:]
    return True
