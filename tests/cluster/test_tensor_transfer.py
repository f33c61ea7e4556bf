"""Tensors on their way to a stage: bounded, checked, over a real link."""

import hashlib
import os
import re

import pytest

from aici_base.errors import UnavailableError
from aici_engine.cluster.frames import Buffer, FrameError, NeedTensors, PiecesTaken, TensorDigest, TensorPiece
from aici_engine.cluster.link_server import PeerFrame
from aici_engine.cluster.tensor_transfer import TENSOR_PIECE_BYTES, TensorReceiver, TensorSender
from tests.cluster.link_ends import Ends

SIZES = {"empty": 0, "one": 1, "piece": TENSOR_PIECE_BYTES, "large": 5 * TENSOR_PIECE_BYTES + 3}


def model() -> dict[str, bytes]:
    return {name: os.urandom(size) for name, size in SIZES.items()}


def digests(tensors: dict[str, bytes]) -> list[TensorDigest]:
    return [
        TensorDigest(name, "U8", (len(data),), len(data), hashlib.sha256(data).digest())
        for name, data in tensors.items()
    ]


def test_tensors_arrive_over_a_link(ends: Ends) -> None:
    tensors, kept = model(), dict[str, bytearray]()
    server, peer, link = ends.joined()
    receiver = TensorReceiver(digests(tensors), keep=lambda t, data: kept.update({t.name: data}), max_bytes=1 << 30)
    server.send(peer, receiver.request())
    asked = link.receive(5)
    assert asked is not None
    assert isinstance(asked.message, NeedTensors)
    sender = TensorSender(asked.message, sizes=SIZES, read=tensors.__getitem__, send=link.send)
    sender.start()
    while not sender.is_done:
        event = server.receive(5)
        assert isinstance(event, PeerFrame)
        assert isinstance(event.message, TensorPiece)
        server.send(peer, receiver.take(event.message, event.body))
        answer = link.receive(5)
        assert answer is not None
        assert isinstance(answer.message, PiecesTaken)
        sender.taken(answer.message)
    assert receiver.is_done
    assert kept == tensors


class Wire:
    """Holds what a sender has sent and a receiver has not taken."""

    def __init__(self, tensors: dict[str, bytes]) -> None:
        self.tensors = tensors
        self.read: list[str] = []
        self.under_way: list[tuple[TensorPiece, Buffer]] = []
        self.receiver = TensorReceiver(digests(tensors), keep=lambda *_: None, max_bytes=1 << 30)
        self.sender = TensorSender(self.receiver.request(), sizes=SIZES, read=self.read_tensor, send=self.send)

    def read_tensor(self, name: str) -> bytes:
        self.read.append(name)
        return self.tensors[name]

    def send(self, message: TensorPiece, body: Buffer) -> None:
        self.under_way.append((message, body))


def test_few_pieces_are_under_way_and_tensors_are_read_late() -> None:
    wire = Wire(model())
    wire.sender.start()
    most = 0
    while wire.under_way:
        most = max(most, len(wire.under_way))
        wire.sender.taken(wire.receiver.take(*wire.under_way.pop(0)))
    assert most == wire.receiver.request().window == 4
    assert wire.read == list(SIZES)
    assert wire.sender.is_done
    assert wire.receiver.is_done


def damaged(wire: Wire, damage: str) -> None:
    """Go on from the third piece, with a mistake."""
    piece, body = wire.under_way[2]
    match damage:
        case "byte":
            wire.receiver.take(piece, bytes([body[0] ^ 1]) + body[1:])
        case "order":
            wire.receiver.take(*wire.under_way[3])
        case "name":
            wire.receiver.take(TensorPiece("other", 0), body)
        case "short":
            wire.receiver.take(piece, body[:-1])
        case "long":
            wire.receiver.take(piece, bytes(body) + b"x")
        case "again":
            wire.receiver.take(piece, body)
            wire.receiver.take(piece, body)
        case "too many taken":
            wire.sender.taken(PiecesTaken(5))
        case "not asked for":
            TensorSender(NeedTensors(["other"], 1), sizes=SIZES, read=wire.read_tensor, send=wire.send)


@pytest.mark.parametrize(
    "damage", ["byte", "order", "name", "short", "long", "again", "too many taken", "not asked for"]
)
def test_damage_is_found(damage: str) -> None:
    wire = Wire(model())
    wire.sender.start()
    for early in wire.under_way[:2]:
        wire.receiver.take(*early)
    with pytest.raises(UnavailableError if damage == "byte" else FrameError):
        damaged(wire, damage)


def test_more_than_the_stage_has_room_for_is_refused() -> None:
    wanted = [TensorDigest("huge", "F32", (1 << 50,), 1 << 52, bytes(32))]
    with pytest.raises(UnavailableError, match=re.escape("huge with 4194304.00 GiB, and this stage may use 1.00 GiB")):
        TensorReceiver(wanted, keep=lambda *_: None, max_bytes=1 << 30)
