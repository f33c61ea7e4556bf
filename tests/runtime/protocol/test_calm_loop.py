"""Turns in C beside Python: the same turns get the same answers, masks and requests. Threads answer for the workers."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from enum import Enum, auto
from mmap import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_controllers import guest_loop
from aici_runtime import turn_message
from aici_runtime.channels.channel import Channels
from aici_runtime.channels.envelope import ChannelRequest, RequestError
from aici_runtime.channels.mailbox import Side
from aici_runtime.channels.semaphore_mailbox import SemaphoreMailbox, SemaphoreNames
from aici_runtime.flags import Limits
from aici_runtime.guests.driver import encode_result
from aici_runtime.guests.native import library
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.modules.registry import Registry
from aici_runtime.protocol.guest_sequences import GuestSequence
from aici_runtime.protocol.stepper import Stepper
from aici_runtime.recordings.trace import NoTrace
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.turn_message import TurnFields
from aici_runtime.wire import MidOp, Patience, Post, PostOp, Pre, PreOp
from aici_runtime.workers import worker_replies, worker_requests

VOCAB_SIZE = 64
ROW_BYTES = VOCAB_SIZE // 8
IDS = [SeqId(k) for k in (1, 3, 4, 7, 2**31)]
END = b"\xff" * 16
LIMITS = Limits(
    forks=4, memory_bytes=0, pre_step_s=60.0, step_s=60.0, timeout_steps=None, init_s=60.0, compile_s=60.0,
    log_bytes=0, table_elements=0,
)  # fmt: skip
pytestmark = pytest.mark.skipif(not library.is_supported(), reason="no loop for this kind of machine")


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    guest_loop.build()
    library.open_library.cache_clear()
    assert library.load() is not None


class Act(Enum):
    """What a worker does with a request."""

    USUAL = auto()
    QUICK = auto()
    LOGS = auto()
    FAILS = auto()
    SPLICES = auto()
    LEADING_ZERO = auto()
    TEN_DIGITS = auto()
    TWO_MASKS = auto()
    STOPS = auto()
    FORCES = auto()
    LONGER = auto()
    GARBAGE = auto()
    DIES = auto()
    WAITS = auto()


def reply(act: Act, op: int, seq_id: SeqId) -> bytes:
    """Return the reply of a worker; empty for none."""
    said: dict[str, Any] = {"result": None, "error": "", "storage": [], "logs": "", "micros": seq_id % 999_999_999}
    said |= {
        Act.QUICK: {"micros": 0},
        Act.LOGS: {"logs": "a log"},
        Act.FAILS: {"error": "it broke"},
        Act.SPLICES: {"result": {"backtrack": 1, "ff_tokens": [5]}},
        Act.TEN_DIGITS: {"micros": 10**9},
    }.get(act, {})

    def encoded(**changes: Any) -> bytes:
        result = encode_result(**said | changes)
        return result.replace(b'"micros":', b'"micros":0') if act is Act.LEADING_ZERO else result

    mid = worker_replies.encode(encoded(), 2 if act is Act.TWO_MASKS else 1, ())
    stops, forced = act is Act.STOPS, [7] if act is Act.FORCES else []
    pre = encoded(result={"suspend": False, "num_forks": int(not stops), "ff_tokens": forced})
    post_pre = b""
    if op == worker_requests.TURN and stops:
        post_pre, mid = bytes(4) + pre, b""
    whole = (len(post_pre).to_bytes(4, "little") + post_pre if op == worker_requests.TURN else b"") + mid
    if op in (worker_requests.PRE, worker_requests.POST):
        post = encoded(result={"stop": stops}) if op == worker_requests.POST else b""
        whole = len(post).to_bytes(4, "little") + post + pre
    return {Act.DIES: b"", Act.GARBAGE: b"\xee" * 40, Act.LONGER: whole + b"}"}.get(act, whole)


class Worker:
    """Answers in a thread, as `acts` says, and notes the requests. Other requests are answered usually."""

    def __init__(self, seq_id: SeqId, handle: WorkerHandle) -> None:
        self.handle = handle
        self.acts: list[Act] = []
        self.requests: list[bytes] = []
        self.may_answer, self.has_answered = threading.Event(), threading.Event()
        """Of a worker that waits."""
        self._seq_id = seq_id
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        slot = self.handle.slot
        while (request := slot.wait_request()) != END:
            if self.handle.dead:
                continue
            self.requests.append(request)
            act = self.acts.pop() if self.acts else Act.USUAL
            if act is Act.WAITS:
                self.may_answer.wait(60)
            answer = reply(act, request[0], self._seq_id)
            if answer:
                slot.put_mask(bytes([self._seq_id % 251, len(self.requests) % 251]) * (ROW_BYTES // 2))
                slot.send_response(answer)
                self.has_answered.set()
            else:
                self.die()

    def die(self) -> None:
        self.handle.dead = True
        self.handle.slot.mark_dead()

    def close(self) -> None:
        self.handle.slot.send_request(END)
        self._thread.join()


class Supervisor:
    """Has no process to end, and no guest to bind: the workers are threads."""

    def release(self, worker: WorkerHandle) -> None:
        worker.released = True

    def bind(self, req_ids: Sequence[str]) -> None:
        raise RequestError(f"invalid req_id {req_ids}")


class CountingMailbox(SemaphoreMailbox):
    """Counts the messages that Python receives."""

    num_received = 0

    def receive(self, busy_wait_ms: int = 0, accept: Callable[[bytes], None] | None = None) -> bytes:
        message = super().receive(busy_wait_ms, accept)
        self.num_received += 1
        return message


class Recorder:
    """Stands for a recording, with which the stepper serves every turn in Python."""

    def before(self, request: ChannelRequest, registry: Registry) -> ChannelRequest:
        return request

    def record(self, side: Side, message: bytes, response: bytes | None, command: object = None) -> None:
        pass


class Runtime:
    """A stepper in a thread, with five bound sequences. `is_native`: calm turns are served in C."""

    def __init__(self, *, is_native: bool, limits: Limits = LIMITS) -> None:
        self._channels = Channels(f"/aicitest-{os.getpid()}-{os.urandom(4).hex()}-", "semaphore", 1 << 16)
        self._engine = [self._channels.create("cmd", ""), self._channels.create("resp", "")]
        self.received = CountingMailbox.attach(SemaphoreNames.of(self._channels.prefix, "cmd", ""), 1 << 16)
        responses = self._channels.attach("resp", "")
        self._ends = [*self._engine, self.received, responses]
        self.masks = mmap(-1, 1 << 12)
        self._table = WorkerSlotTable(mask_bytes=ROW_BYTES)
        nobody: Any = None
        supervisor: Any = Supervisor()
        stepper = Stepper(
            table=self._table,
            supervisor=supervisor,
            masks=MaskRegion(self.masks, dtype="bool", vocab_size=VOCAB_SIZE),
            vocabulary=nobody,
            limits=limits,
            proto="v1",
            trace=NoTrace() if is_native else Recorder(),
        )
        # The loop leaves a turn to Python once a second, to tell of processor time: not in these tests.
        stepper._sequences._cpu_told_at = time.monotonic() + 1e6
        self.workers: dict[SeqId, Worker] = {}
        for seq_id in IDS:
            slot = self._table.take(self._table.guest_half, seq_id)
            self._table.close_descriptor(slot)
            handle = WorkerHandle(slot, -1)
            stepper._sequences.add(seq_id, GuestSequence("r", handle))
            self.workers[seq_id] = Worker(seq_id, handle)
        self._thread = threading.Thread(target=stepper.serve, args=(self.received, responses, 0))
        self._thread.start()

    def ask(self, message: bytes) -> bytes:
        self._engine[0].send(message)
        return self._engine[1].receive()

    def close(self) -> None:
        self._engine[0].send(b'{"op": "stop"}')
        self._thread.join()
        for worker in self.workers.values():
            worker.close()
        for end in self._ends:
            end.close()
        self._channels.unlink()


@contextmanager
def both() -> Iterator[tuple[Runtime, Runtime]]:
    with closing(Runtime(is_native=False)) as python, closing(Runtime(is_native=True)) as native:
        yield python, native


def usual(ids: Sequence[SeqId] = IDS, **changes: Any) -> bytes:
    """Return a turn in which each guest hears of a token."""
    posts = [PostOp(seq_id, [TokenId(seq_id % 1000)]) for seq_id in ids]
    fields = TurnFields(posts, [], list(ids), [MidOp(seq_id) for seq_id in ids], [])
    return turn_message.encode(fields._replace(**changes))


@st.composite
def turns(draw: st.DrawFn) -> bytes:
    """Draw a turn. Most are calm."""
    ids = draw(st.permutations(IDS))[: draw(st.integers(0, len(IDS)))]
    asked = [seq_id for seq_id in ids if draw(st.integers(0, 3))]
    with_mask = [seq_id for seq_id in ids if seq_id not in asked or draw(st.integers(0, 3))]
    told = draw(st.permutations([seq_id for seq_id in asked if draw(st.integers(0, 3))]))
    numbers = st.integers(0, 2**32 - 1)
    posts = [PostOp(seq_id, [TokenId(draw(numbers))], draw(st.integers(0, 2))) for seq_id in told]
    waits = st.one_of(st.none(), st.builds(Patience, st.floats(0, 60), st.floats(0, 60), st.just(frozenset())))
    fields = TurnFields(posts, [], asked, [MidOp(seq_id) for seq_id in with_mask], [], draw(waits))
    odd = draw(st.integers(0, 19))
    changes: dict[int, dict[str, Any]] = {
        0: {"ops": [*fields.ops, MidOp(SeqId(99))]},
        1: {"ops": [*fields.ops, *fields.ops[:1]]},
        2: {"asked": [*asked, *asked[:1]]},
        3: {"asked": [*asked, SeqId(99)]},
        4: {"ops": fields.ops[1:]},
        5: {"asked": asked[1:]},
        6: {"post_ops": [*posts, *posts[:1]]},
        7: {"post_ops": [PostOp(op.id, [*op.tokens, TokenId(2)], op.backtrack) for op in posts]},
        8: {"post_ops": [PostOp(op.id, [], op.backtrack) for op in posts]},
        9: {"freed": draw(st.lists(st.sampled_from(IDS), max_size=1))},
        10: {"pre_ops": [PreOp(SeqId(50), "nobody")]},
        11: {"patience": Patience(60.0, 60.0, frozenset(ids[:1]))},
    }
    message = turn_message.encode(fields._replace(**changes.get(odd, {})))
    return message[: -draw(st.integers(1, 60))] if odd == 12 else message


ACTS = st.one_of(*[st.just(Act.USUAL)] * 5, st.just(Act.QUICK), st.sampled_from([*Act][:-1]))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(turns(), st.lists(ACTS, min_size=5, max_size=5), st.integers(0, 40)), min_size=1, max_size=12)
)
def test_the_same_turns_have_the_same_answers(script: list[tuple[bytes, list[Act], int]]) -> None:
    num_messages = 0
    with both() as sides:
        for message, acts, dying in script:
            for side in sides:
                for (seq_id, worker), act in zip(side.workers.items(), acts, strict=True):
                    worker.acts = [act]
                    if dying < len(IDS) and seq_id == IDS[dying]:
                        worker.die()
            told = [side.ask(message) for side in sides]
            assert sides[0].received.num_received == (num_messages := num_messages + 1), "the reference is Python"
            assert told[0] == told[1]
            seen = [
                (side.masks[:], {seq_id: worker.requests[:] for seq_id, worker in side.workers.items()})
                for side in sides
            ]
            assert seen[0] == seen[1]


def test_calm_turns_need_no_python() -> None:
    with closing(Runtime(is_native=True)) as side:
        for _ in range(20):
            assert turn_message.is_turn(side.ask(usual()))
        assert side.received.num_received == 0
        side.workers[IDS[1]].acts = [Act.LOGS]
        assert b"a log" in side.ask(usual())
        assert side.received.num_received == 1
        side.ask(usual(freed=IDS[:1]))
        assert side.received.num_received == 2
        side.ask(usual(IDS[1:]))
        assert side.received.num_received == 2, "served in C again, without the sequence that was freed"
        assert [len(worker.requests) for worker in side.workers.values()] == [22, 23, 23, 23, 23]


def test_a_guest_that_hears_of_a_last_token_needs_no_python() -> None:
    last = IDS[:2]
    with closing(Runtime(is_native=True)) as side:
        for ops in ([], [MidOp(seq_id) for seq_id in IDS[2:]]):
            side.workers[IDS[0]].acts = [Act.STOPS]
            turn = turn_message.decode_answer(side.ask(usual(ops=ops)) if ops else side.ask(usual(last, ops=[])), ops)
            assert [turn.post[seq_id].result for seq_id in last] == [Post(stop=True), Post(stop=False)]
            assert [turn.pre[seq_id].result for seq_id in last] == [Pre(False, 0, ()), Pre(False, 1, ())]
            assert turn.mid.keys() == {op.id for op in ops}
        assert side.received.num_received == 0
        side.workers[IDS[0]].acts = [Act.FORCES]
        assert b'"ff_tokens":[7]' in side.ask(usual(last, ops=[]))
        assert side.received.num_received == 1


def test_a_worker_that_dies_at_rest_is_not_waited_for() -> None:
    with closing(Runtime(is_native=True)) as side:
        side.ask(usual())
        side.workers[IDS[2]].die()
        assert b"Worker: died" in side.ask(usual())
        assert turn_message.is_turn(side.ask(usual(IDS[:2])))


def test_a_late_worker_is_left_out_until_its_answer_is_there() -> None:
    one, worker_id = [IDS[0]], IDS[0]
    soon = Patience(0.01, 60.0, frozenset())
    with closing(Runtime(is_native=True, limits=replace(LIMITS, timeout_steps=1000))) as side:
        worker = side.workers[worker_id]
        side.ask(usual(one))
        worker.acts = [Act.WAITS]
        worker.has_answered.clear()
        assert b'"late":true' in side.ask(usual(one, patience=soon))
        assert side.received.num_received == 1
        worker.may_answer.set()
        assert worker.has_answered.wait(60)
        num_requests = len(worker.requests)
        assert b'"late"' not in side.ask(usual(one, post_ops=[], patience=soon))
        assert len(worker.requests) == num_requests, "the mask is that of the late answer"
        assert b"late" not in side.ask(usual(one))
