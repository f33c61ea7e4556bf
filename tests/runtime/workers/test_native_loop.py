"""The loop in C beside Python: the same requests to two guests of one module give the same answers, masks and words."""

import ctypes
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, cast

import pytest
import wasmtime
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_controllers import guest_loop
from aici_runtime.guests import wasmtime_engine
from aici_runtime.guests.driver import DriverContext, MadeCall
from aici_runtime.guests.driver_v1 import DriverV1
from aici_runtime.guests.guest import Guest
from aici_runtime.guests.host_functions import MAX_RESULT_BYTES, HostFunctions
from aici_runtime.guests.linker import Linker
from aici_runtime.guests.native import host as native_host
from aici_runtime.guests.native import library
from aici_runtime.guests.variables import Variables
from aici_runtime.memory.mask_region import Dtype, MaskRegion
from aici_runtime.memory.worker_slots import SLOT_OFFSETS, WorkerSlotTable, owner_id
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary
from aici_runtime.wire import PostOp, StepOp
from aici_runtime.workers import worker_replies, worker_requests
from aici_runtime.workers.guest_server import GuestServer, split_post_pre, split_turn
from tests.runtime.support import acting
from tests.runtime.support.acting import Act

VOCAB_SIZE = 101
END = b"\xff" * 16
SEQ_ID = SeqId(5)
pytestmark = pytest.mark.skipif(not library.is_supported(), reason="no loop for this kind of machine")


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    guest_loop.build()
    library.open_library.cache_clear()
    assert library.load() is not None


@dataclass(frozen=True)
class Step:
    """A request, and how the guest acts in the callbacks post, pre and mid."""

    request: bytes
    acts: Sequence[Act] = (Act.USUAL, Act.USUAL, Act.USUAL)
    is_detached: bool = False
    is_cancelled: bool = False


def turn(*tokens: int, backtrack: int = 0, **others: Any) -> Step:
    posts = [PostOp(SEQ_ID, [TokenId(token) for token in tokens], backtrack)] if tokens else [None]
    return Step(worker_requests.turn(SEQ_ID, posts[0], 0), **others)


class Worker:
    """A guest served by a thread, in C where possible with `is_native`."""

    def __init__(self, module: wasmtime.Module, engine: wasmtime.Engine, dtype: Dtype, *, is_native: bool) -> None:
        masks = MaskRegion(mmap(-1, 1 << 16), dtype=dtype, vocab_size=VOCAB_SIZE)
        self._masks = masks
        self.native = native_host.load(masks, result_max=MAX_RESULT_BYTES) if is_native else None
        vocabulary = LoadedVocabulary({"v1": b"", "v2": b""}, VOCAB_SIZE, TokenId(0), Path())
        host = HostFunctions(vocabulary, lambda text: bytes(4 * len(text)))
        linker = self._linker = Linker(engine, host.on_failure, self.native)  # owns the callbacks
        host.define(linker)
        self.guest = Guest(engine=engine, linker=linker.wasmtime, module=module, memory_max_bytes=1 << 22)
        self.state = host.guest
        self.state.memory, self.state.storage = self.guest.memory, Variables()
        self.state.identify = lambda: (1, 0)
        context = DriverContext(masks, VOCAB_SIZE, TokenId(0), 4, frozenset({"fork", "backtrack", "ff_tokens"}), str)
        self.driver = DriverV1(guest=self.guest, host=host, state=self.state, context=context)
        self.driver.create()
        table = WorkerSlotTable(mask_bytes=max(masks.v1_rows.row_bytes, masks.v2_rows.row_bytes))
        self.slot = table.take(table.guest_half, owner_id("somebody"))
        table.close_descriptor(self.slot)
        lock = threading.Lock() if self.native is None else self.native.new_lock()
        self.server = GuestServer(self.slot, self.guest, self.driver, self.state, masks, lock, self.native)
        self.num_in_python = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self.server.serve_usual()
            request = self.slot.wait_request()
            if request == END:
                return
            self.num_in_python += 1
            self.server.is_busy = True
            self.slot.send_response(self.server.answer(request))

    def close(self) -> None:
        self.slot.send_request(END)
        self._thread.join()
        self.guest.close()

    def ask(self, step: Step) -> tuple[object, ...]:
        """Return everything that the request has changed."""
        for at, act in zip(acting.ORDERS_AT.values(), step.acts, strict=True):
            self.guest.memory.write(at, act.to_bytes(4, "little"))
        number = SLOT_OFFSETS[3]
        words = memoryview(self.slot.mask(0).obj).cast("B").cast("I")
        words[SLOT_OFFSETS[2] // 4] = words[number // 4] + 1 if step.is_cancelled else 0
        self.slot.send_request(step.request, detached=step.is_detached)
        response = self.slot.wait_response(time.monotonic() + 60)
        assert response is not None
        *stable, mid_started = (words[at // 4] for at in (*SLOT_OFFSETS[2:6], SLOT_OFFSETS[0], SLOT_OFFSETS[9]))
        return (
            *(re.sub(rb'"micros":\d+', b"", part) for part in _parts(step.request[0], response)),
            bytes(self.slot.mask(self._masks.v2_rows.row_bytes)),
            stable,
            mid_started != 0,
            self.guest.memory.read(0, 0x30000),
            self.driver.has_failed,
            self.server.is_busy,
            (bytes(self.state._log), self.state.written),
        )


def _parts(op: int, response: bytes) -> list[bytes]:
    """Return the parts of a response, without their lengths: those depend on the digits of the times."""
    post_pre, mid = b"", b""
    if op == worker_requests.TURN:
        post_pre, mid = split_turn(response)
    elif op in (worker_requests.MID, worker_requests.STEP):
        mid = response
    else:
        post_pre = response
    reply = worker_replies.decode(mid) if mid else worker_replies.WorkerReply(b"", 0, ())
    return [*(split_post_pre(post_pre) if post_pre else ()), reply.result, bytes(reply.num_masks), *reply.unwritten]


@pytest.fixture(scope="module")
def compiled() -> tuple[wasmtime.Module, wasmtime.Engine]:
    engine = wasmtime_engine.new_engine()
    return wasmtime.Module(engine, acting.module()), engine


ACTS = st.one_of(st.just(Act.USUAL), st.sampled_from(Act))
TOKENS = st.lists(st.integers(0, VOCAB_SIZE - 1).map(TokenId), max_size=3)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    op = draw(st.sampled_from(("turn", "turn", "post", "pre", "mid", "step")))
    seq_id = SeqId(draw(st.integers(0, 2**31)))
    post = PostOp(seq_id, draw(TOKENS), draw(st.integers(0, 3)))
    request = {
        "turn": worker_requests.turn(seq_id, draw(st.sampled_from((post, None))), 0),
        "post": worker_requests.post_pre(seq_id, post),
        "pre": worker_requests.post_pre(seq_id, None),
        "mid": worker_requests.mid(0, [seq_id, SeqId(7)]),
        "step": worker_requests.step(StepOp(seq_id, tokens=post.tokens), 0, [seq_id]),
    }[op]
    rarely = st.integers(0, 9).map(lambda number: number == 0)
    acts = tuple(draw(ACTS) if draw(st.booleans()) else Act.USUAL for _ in range(3))
    return Step(request, acts, draw(rarely), draw(rarely))


@pytest.mark.parametrize("dtype", ["bool", "f32", "bf16"])
@settings(deadline=None, max_examples=40)
@given(script=st.lists(steps(), min_size=1, max_size=8))
def test_the_same_requests_have_the_same_answers(
    compiled: tuple[wasmtime.Module, wasmtime.Engine], dtype: Dtype, script: list[Step]
) -> None:
    with (
        closing(Worker(*compiled, dtype, is_native=False)) as python,
        closing(Worker(*compiled, dtype, is_native=True)) as native,
    ):
        for step in script:
            assert native.ask(step) == python.ask(step)


def test_the_usual_requests_need_no_python(compiled: tuple[wasmtime.Module, wasmtime.Engine]) -> None:
    requests = [worker_requests.post_pre(SEQ_ID, PostOp(SEQ_ID, [TokenId(1)])), worker_requests.mid(0, [SEQ_ID])]
    with closing(Worker(*compiled, "bool", is_native=True)) as worker:
        for step in (turn(), turn(3), *map(Step, requests), turn(3, acts=(Act.USUAL, Act.USUAL, Act.NO_MASK))):
            worker.ask(step)
        assert worker.num_in_python == 0
        worker.ask(turn(3, acts=(Act.USUAL, Act.USUAL, Act.LOG)))
        assert worker.num_in_python == 1
        worker.ask(turn(3))
        assert worker.num_in_python == 1, "the loop serves the guest again"


def test_forks_share_no_buffer() -> None:
    """What a guest returns passes through buffers, which every fork of the spawner inherits."""
    host = native_host.load(MaskRegion(mmap(-1, 1 << 16), dtype="bool", vocab_size=VOCAB_SIZE), result_max=64)
    assert host is not None
    child = os.fork()
    if child == 0:
        ctypes.memset(host.struct.result, 7, 64)
        os._exit(0)
    os.waitpid(child, 0)
    assert host.result(host.struct.result, 64) == bytes(64)


def test_an_interrupt_ends_the_call_and_no_later_one(compiled: tuple[wasmtime.Module, wasmtime.Engine]) -> None:
    with closing(Worker(*compiled, "bool", is_native=True)) as worker:
        worker.ask(turn(3))
        with worker.server.lock:
            assert not worker.server.is_busy
            worker.guest.interrupt()
        assert b"error" in cast("bytes", worker.ask(turn(3))[0])
        assert not worker.driver.has_failed
        assert worker.num_in_python == 0


def test_the_time_of_a_call_in_c_is_told(compiled: tuple[wasmtime.Module, wasmtime.Engine]) -> None:
    """Of a callback that Python answers, most of the time has passed before."""
    with closing(Worker(*compiled, "bool", is_native=True)) as worker:
        worker.driver.made.append(
            MadeCall(error=None, trap=None, result=b"{}", mask=None, log=b"", written=[], elapsed_ns=2_000_000_000)
        )
        assert int(re.findall(rb'"micros":(\d+)', worker.driver.pre())[0]) >= 2_000_000
