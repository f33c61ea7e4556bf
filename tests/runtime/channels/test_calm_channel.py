"""The engine's end of usual turns in C beside Python: the same messages are sent, the same answers are understood."""

import os
import signal
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_controllers import guest_loop
from aici_runtime import calm_channel, turn_message
from aici_runtime.channels.channel import Channels, Mailbox
from aici_runtime.guests.native import library
from aici_runtime.guests.native.structures import MAX_OPS
from aici_runtime.memory import shm
from aici_runtime.turn_message import NOT_USUAL, TurnFields, TurnRest
from aici_runtime.wire import MidOp, Patience, PostOp

SIZE = 16384
CORE_AT = 40
WORDS = st.integers(0, 2**32 - 1)
SECONDS = st.floats(0, 1e6)
TOLD = st.dictionaries(WORDS.map(SeqId), WORDS.map(TokenId), max_size=MAX_OPS)
pytestmark = pytest.mark.skipif(not library.is_supported(), reason="no loop for this kind of machine")


class Ends:
    """The engine's channel, and the runtime's ends of the mailboxes."""

    def __init__(self, channels: Channels) -> None:
        self.engine = channels.create("cmd", ""), channels.create("resp", "")
        self.requests, self.responses = channels.attach("cmd", ""), channels.attach("resp", "")
        channel = calm_channel.load(*self.engine)
        assert channel is not None
        self.channel = channel

    def all(self) -> list[Mailbox]:
        return [*self.engine, self.requests, self.responses]


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    guest_loop.build()
    library.open_library.cache_clear()
    channels = Channels(shm.unique_prefix(), "semaphore", SIZE)
    ends = Ends(channels)
    yield ends
    for mailbox in ends.all():
        mailbox.close()
    channels.unlink()


@given(TOLD, st.none() | st.builds(Patience, SECONDS, SECONDS, st.just(())))
def test_the_message_is_that_of_python(ends: Ends, told: dict[SeqId, TokenId], patience: Patience | None) -> None:
    assert ends.channel.send(list(told), list(told.values()), patience)
    posts = [PostOp(seq_id, [token]) for seq_id, token in told.items()]
    expected = TurnFields(posts, [], list(told), list(map(MidOp, told)), [], patience)
    message = ends.requests.receive()
    (core,) = struct.unpack_from("<I", message, CORE_AT)
    assert core in os.sched_getaffinity(0)
    no_core = struct.pack("<I", turn_message.NO_CORE)
    assert message[:CORE_AT] + no_core + message[CORE_AT + 4 :] == turn_message.encode(expected)


@given(st.lists(st.integers(0, NOT_USUAL - 1), max_size=MAX_OPS))
def test_a_usual_answer_is_understood(ends: Ends, micros: list[int]) -> None:
    ends.responses.send(turn_message.encode_answer(micros, None))
    assert ends.channel.receive(len(micros)) == micros


@given(st.lists(WORDS | st.just(NOT_USUAL), max_size=9), st.booleans(), st.integers(0, 10), st.integers(0, 9))
def test_another_answer_is_left_for_python(
    ends: Ends, micros: list[int], has_rest: bool, num_expected: int, num_cut: int
) -> None:
    message = turn_message.encode_answer(micros, TurnRest(mid=b'"1":{}') if has_rest else None)
    message = message[: max(1, len(message) - num_cut)]
    ends.responses.send(message)
    is_usual = not (has_rest or NOT_USUAL in micros or num_cut or num_expected != len(micros))
    assert (ends.channel.receive(num_expected) is not None) == is_usual
    if not is_usual:
        assert ends.engine[1].receive() == message


def test_turns_that_are_not_usual_are_not_sent(ends: Ends) -> None:
    ids, tokens = [SeqId(k) for k in range(MAX_OPS + 1)], [TokenId(0)] * (MAX_OPS + 1)
    assert not ends.channel.send(ids, tokens, None)
    assert not ends.channel.send(ids[:1], tokens[:1], Patience(1.0, 1.0, [SeqId(0)]))
    assert not ends.channel.send(ids[:2], tokens[:1], None)
    assert not ends.channel.send(ids[:1], [TokenId(2**32)], None)
    assert ends.channel.send(ids[:1], tokens[:1], None)
    assert not ends.channel.send(ids[:1], tokens[:1], None), "the runtime has not read the message before"
    ends.requests.receive()


def test_an_answer_about_too_many_is_left_for_python(ends: Ends) -> None:
    message = turn_message.encode_answer([5] * (MAX_OPS + 1), None)
    ends.responses.send(message)
    assert ends.channel.receive(MAX_OPS + 1) is None
    assert ends.channel._receive(ends.channel._at, MAX_OPS + 1, False) == 2, "the code in C keeps to its bounds, too"
    assert ends.engine[1].receive() == message


def test_a_wait_ends_with_the_answer_and_not_with_a_signal(ends: Ends) -> None:
    heard: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    me = threading.main_thread().ident
    assert me is not None

    def answer() -> None:
        signal.pthread_kill(me, signal.SIGUSR1)
        answered.wait(0.1)
        ends.responses.send(turn_message.encode_answer([3], None))

    answered = threading.Event()
    answering = threading.Timer(0.1, answer)
    answering.start()
    try:
        assert ends.channel.receive(1) == [3]
        assert heard == [signal.SIGUSR1]
    finally:
        answering.join()
        signal.signal(signal.SIGUSR1, previous)
