"""The frame and the envelope of messages: both channels, both synchronizations, both versions."""

import json
import os
import random
import signal
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.wire.support.engine import SIDES, Engine, Side, data, error
from tests.wire.support.mailbox import FutexBox, SemaphoreBox, until

PONG = {"type": "ok", "data": {"pong": 1}}
PING_FRAME = bytes.fromhex("0d0000007b226f70223a2270696e67227d")


@pytest.mark.parametrize("side", SIDES)
class TestEnvelope:
    def test_ping(self, either: Engine, side: Side) -> None:
        assert either.ask(b'{"op":"ping"}', side) == PONG

    def test_rid_is_echoed(self, either: Engine, side: Side) -> None:
        assert either.ask(b'{"op":"ping","$rid":"a\\"\\u00e9"}', side) == PONG | {"$rid": 'a"é'}
        refused = either.ask(b'{"op":"nope","$rid":"c"}', side)
        assert (error(refused), refused["$rid"]) == ("bad op", "c")

    @pytest.mark.parametrize(
        "payload", [b"{", b"[]", b"1", b"null", b'"x"', b"\xff", b'{"op":"ping"}x', b'{"op":\xff}']
    )
    def test_what_is_no_object(self, either: Engine, side: Side, payload: bytes) -> None:
        response = either.ask(payload, side)
        assert (response["type"], set(response)) == ("json-error", {"type", "error"})
        assert either.ask(b'{"op":"ping"}', side) == PONG

    @pytest.mark.parametrize("payload", [b'{"op":"nope"}', b"{}", b'{"op":7}', b'{"op":null}', b'{"op":""}'])
    def test_bad_op(self, either: Engine, side: Side, payload: bytes) -> None:
        assert error(either.ask(payload, side)) == "bad op"

    def test_unknown_fields_and_odd_identities_are_ignored(self, either: Engine, side: Side) -> None:
        auth: Any
        for auth in (None, 5, [], {}, {"user": "x"}, {"user": 1, "is_admin": 2}, {"user": "x", "is_admin": True}):
            assert either.ask({"op": "ping", "$auth": auth, "more": [1]}, side) == PONG

    def test_deep_nesting_is_an_answer_too(self, either: Engine, side: Side) -> None:
        either.ask(b'{"op":"ping","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", side)
        assert either.ask(b'{"op":"ping"}', side) == PONG

    def test_as_long_as_the_mailbox_is(self, either: Engine, side: Side) -> None:
        box = either.boxes[f"cmd{side}"]
        room = box.room if isinstance(box, FutexBox) else len(box.memory) - 4
        assert either.ask(b'{"op":"ping"}'.ljust(room), side) == PONG


def test_the_empty_message(engine: Engine) -> None:
    """Semaphores can carry an empty message, but an empty message is not JSON."""
    for side in SIDES:
        assert engine.ask(b"", side)["type"] == "json-error"


@pytest.mark.parametrize("side", SIDES)
class TestBytes:
    def test_semaphores(self, engine: Engine, side: Side) -> None:
        """The receiver clears the length, and both sides leave the semaphores as they were."""
        command, response = engine.boxes[f"cmd{side}"], engine.boxes[f"resp{side}"]
        assert isinstance(command, SemaphoreBox)
        assert isinstance(response, SemaphoreBox)
        until(lambda: [command.writable.value, command.readable.value, response.readable.value] == [1, 0, 0])
        command.send_frame(PING_FRAME)
        payload = response.receive()
        assert json.loads(payload) == PONG
        assert response.memory[: 4 + len(payload)] == struct.pack("<I", len(payload)) + payload
        assert command.memory[4 : len(PING_FRAME)] == PING_FRAME[4:]
        until(lambda: command.memory[:4] == bytes(4))
        until(lambda: [command.writable.value, command.readable.value] == [1, 0])
        assert [response.writable.value, response.readable.value] == [1, 0]

    @pytest.mark.parametrize("length", [0xFFFFFFFF, 1 << 20, (1 << 20) - 3])
    def test_a_length_that_lies(self, engine: Engine, side: Side, length: int) -> None:
        command = engine.boxes[f"cmd{side}"]
        assert isinstance(command, SemaphoreBox)
        command.send_frame(struct.pack("<I", length) + b'{"op":"ping"}')
        assert engine.receive(side)["type"] == "json-error"
        engine.is_well()


class TestFutex:
    @pytest.mark.parametrize("side", SIDES)
    def test_halves(self, futex: Engine, side: Side) -> None:
        """A request is in the first half of `cmd`, a response in the second half of `resp`; the other halves stay
        empty."""
        command, response = futex.boxes[f"cmd{side}"], futex.boxes[f"resp{side}"]
        half = len(command.memory) // 2
        futex.send(b'{"op":"ping"}', side)
        payload = response.receive()
        assert json.loads(payload) == PONG
        assert response.memory[half : half + 4 + len(payload)] == bytes(4) + payload
        assert response.memory[:64] == bytes(64)
        until(lambda: command.memory[:17] == bytes(4) + b'{"op":"ping"}')
        assert command.memory[half : half + 64] == bytes(64)

    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("length", [1 << 19, 0xFFFFFFFE])
    def test_a_length_that_lies(self, futex: Engine, side: Side, length: int) -> None:
        command = futex.boxes[f"cmd{side}"]
        assert isinstance(command, FutexBox)
        until(lambda: command.memory[:4] == bytes(4))  # a request is answered before its word is cleared
        command.set_word(length)
        assert futex.receive(side)["type"] == "json-error"
        futex.is_well()

    def test_wake_ups_without_a_message(self, futex: Engine) -> None:
        """Upstream's runtime panics on a spurious wake-up."""
        for side in SIDES:
            command = futex.boxes[f"cmd{side}"]
            assert isinstance(command, FutexBox)
            for _ in range(20):
                command.wake()
        futex.is_well()


class TestSideChannel:
    def test_many_at_once(self, either: Engine) -> None:
        """Any number of requests may be outstanding, and every request is answered exactly once."""
        rids = [f"n{k}" for k in range(40)]
        answered: list[str] = []
        for rid in rids:
            either.send({"op": "ping" if len(rid) % 2 else "get_tags", "$rid": rid}, "-side")
        while len(answered) < len(rids):
            answered.append(either.receive("-side")["$rid"])
        assert sorted(answered) == sorted(rids)

    def test_the_main_channel_does_not_wait_for_it(self, either: Engine) -> None:
        for k in range(8):
            either.send({"op": "get_tags", "$rid": str(k)}, "-side")
        assert either.ask({"op": "ping"}) == PONG
        assert sorted(int(either.receive("-side")["$rid"]) for _ in range(8)) == list(range(8))


class TestWakeUps:
    def test_none_is_lost(self, either: Engine) -> None:
        """Use both channels at the same time at full speed, with pauses in which the other side sleeps."""

        def talk(side: Side) -> int:
            chance = random.Random(side)
            for _ in range(300):
                assert either.ask(b'{"op":"ping"}', side) == PONG
                if chance.random() < 0.05:
                    time.sleep(0.002)
            return 300

        with ThreadPoolExecutor(2) as pool:
            assert sum(pool.map(talk, SIDES)) == 600

    def test_interrupted_waits_go_on(self, either: Engine) -> None:
        """Upstream's runtime aborts if a signal interrupts its wait."""
        for _ in range(10):
            os.killpg(either.process.pid, signal.SIGSTOP)
            os.killpg(either.process.pid, signal.SIGCONT)
        either.is_well()
        os.killpg(either.process.pid, signal.SIGSTOP)
        either.send(b'{"op":"ping"}')
        os.killpg(either.process.pid, signal.SIGCONT)
        assert either.receive() == PONG


def test_tokens(either: Engine) -> None:
    reply = data(either.call("tokens"))
    assert reply["vocab_size"] == 261
    if either.version == "v2":
        assert reply == {"vocab_size": 261, "eos_token_id": 0}


def test_an_answer_that_does_not_fit(engine: Engine) -> None:
    """The answer is `msg too large`, and the next request works."""
    response: Any = engine.ask({"op": "ping", "$rid": "x" * ((1 << 20) - 40)})
    assert response["type"] in ("error", "json-error")
    assert engine.ask({"op": "ping"}) == PONG
