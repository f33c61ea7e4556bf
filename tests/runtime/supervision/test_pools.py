"""Guests in a shared process see and do the same as guests in processes of their own."""

import base64
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS
from aici_runtime.wire import MidOp, PostOp, PreOp
from tests.runtime.protocol.test_both_protocols import (
    CAPABILITIES,
    STOP,
    before,
    few_forks,
    mids,
    play,
    pres,
    seen,
    steps,
)
from tests.runtime.support import scripted, wat
from tests.runtime.support.engines import Engine, TurnEngine, V1Engine, V2Engine
from tests.runtime.support.leak import used_slots
from tests.runtime.support.raw import RawEngine
from tests.runtime.support.scripted import Answer
from tests.support.processes import command, descendants, wait_until

POOL = ("--placement=pool", "--pool-size=2")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def engines(byte_level: Path, cache_dir: Path) -> Iterator[list[tuple[type[Engine], RawEngine, RawEngine]]]:
    """For every protocol, start a runtime of either placement."""
    limits = ("--wasm-max-pre-step-time=5000", "--wasm-max-step-time=5000")
    raws = [
        RawEngine(byte_level, cache_dir, *CAPABILITIES, *limits, *placement)
        for _ in range(2)
        for placement in ((), POOL)
    ]
    try:
        for raw in raws:
            for wasm in (scripted.abi_v1(), scripted.abi_v2()):
                assert raw.side(op="mk_module", binary=base64.b64encode(wasm).decode())["type"] == "ok"
        yield [(V1Engine, raws[0], raws[1]), (TurnEngine, raws[0], raws[1]), (V2Engine, raws[2], raws[3])]
    finally:
        for raw in raws:
            raw.close()


def compare(engines: list[tuple[type[Engine], RawEngine, RawEngine]], wasm: bytes, argument: str) -> None:
    for kind, apart, together in engines:
        one, other = (play(kind, raw, wasm, argument) for raw in (apart, together))
        assert {path: seen(sequence) for path, sequence in one.items()} == {
            path: seen(sequence) for path, sequence in other.items()
        }


@settings(max_examples=20, deadline=None)
@given(st.lists(steps(), max_size=5).filter(few_forks))
def test_random_guests_with_branches(
    engines: list[tuple[type[Engine], RawEngine, RawEngine]], answers: list[Answer]
) -> None:
    compare(engines, scripted.abi_v2(), scripted.argument([*answers, STOP, STOP]))


@settings(max_examples=20, deadline=None)
@given(st.lists(pres, max_size=6).filter(few_forks), st.lists(mids, max_size=5), st.integers(0, 6))
def test_random_guests_with_callbacks(
    engines: list[tuple[type[Engine], RawEngine, RawEngine]], pre: list[Answer], mid: list[Answer], num_posts: int
) -> None:
    go, sample = before(), Answer({"SampleWithBias": {}}, [2])
    posts = [Answer({"stop": False})] * num_posts + [Answer({"stop": True})] * 3
    argument = scripted.argument([*pre, *[go] * num_posts, *[before(0)] * 3], [*mid, *[sample] * 20], posts)
    compare(engines, scripted.abi_v1(), argument)


def bind(runtime: Runtime, wasm: bytes) -> SeqId:
    number = next(_numbers)
    module_id = runtime.mk_module(wasm).module_id
    runtime.instantiate(req_id=f"r{number}", prompt=[], module_id=module_id, module_arg="").result()
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(number), f"r{number}")], freed=[])
    return SeqId(number)


def mid(runtime: Runtime, *seq_ids: SeqId) -> dict[SeqId, str]:
    runtime.send_mid([MidOp(seq_id) for seq_id in seq_ids])
    return {seq_id: entry.error for seq_id, entry in runtime.recv_mid().seqs.items()}


def free(runtime: Runtime, *seq_ids: SeqId) -> None:
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=seq_ids)


def pools(runtime: Runtime) -> list[int]:
    return sorted(pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-pool")


@pytest.fixture
def runtime(start_runtime: Callable[..., Runtime]) -> Runtime:
    return start_runtime(extra_args=(*POOL, "--templates=0"), max_step_time_ms=100)


def test_guests_move_into_as_many_processes_as_were_asked_for(runtime: Runtime) -> None:
    five = [bind(runtime, wat.plain()) for _ in range(5)]
    assert len(pools(runtime)) == 2
    assert wait_until(lambda: not [p for p in descendants(runtime.pid) if command(p) == "aicirt-seq"], 10)
    assert mid(runtime, *five) == dict.fromkeys(five, "")


def test_a_guest_that_cannot_move_stays(runtime: Runtime) -> None:
    body = "(table 2 funcref) (func $f (table.set (i32.const 0) (ref.null func)))"
    fixed = wat.Module().build(extra=body)
    alone, other = bind(runtime, fixed), bind(runtime, wat.plain())
    assert [command(p) for p in descendants(runtime.pid)].count("aicirt-seq") == 1
    assert mid(runtime, alone, other) == {alone: "", other: ""}


def test_forks_share_variables_and_nothing_else(runtime: Runtime) -> None:
    module = wat.Module()
    append = module.store('{"WriteVar":{"name":"n","value":"00","op":"Append"}}')
    count = "(global.set $steps (i32.add (global.get $steps) (i32.const 1)))(call $allow (global.get $steps))"
    parent = bind(runtime, module.build(mid=append + count + module.answer(wat.SAMPLE)))
    stranger = bind(runtime, wat.plain())
    child = SeqId(next(_numbers))
    mid(runtime, parent)
    runtime.send_mid([MidOp(parent), MidOp(child, parent), MidOp(stranger)])
    logs = [entry.logs for entry in runtime.recv_mid().seqs.values()]
    assert sorted(logs) == ["", *(f'{{"WriteVar":{{"version":{n}}}}}' for n in (2, 3))]
    assert [runtime.mask_rows(3)[row, 0] for row in range(2)] == [2, 2]
    runtime.post_pre_process(post_ops=[PostOp(child, [TokenId(1)])], pre_ops=[], freed=[])
    assert mid(runtime, child) == {child: ""}
    assert runtime.mask_rows(1)[0, 0] == 3
    free(runtime, parent)
    assert mid(runtime, child, stranger) == {child: "", stranger: ""}


def test_runaways_take_time_and_nothing_else(runtime: Runtime) -> None:
    good = [bind(runtime, wat.plain()) for _ in range(4)]
    bad = [bind(runtime, wat.Module().build(mid=wat.SPIN)) for _ in range(3)]
    answers = mid(runtime, *bad, *good)
    assert [answers[seq_id] for seq_id in good] == [""] * 4
    assert all(answers[seq_id].startswith("Worker: timeout") for seq_id in bad)
    assert mid(runtime, *good) == dict.fromkeys(good, "")


def test_a_killed_pool_takes_its_guests_along_and_is_replaced(runtime: Runtime) -> None:
    four = [bind(runtime, wat.plain()) for _ in range(4)]
    os.kill(pools(runtime)[0], signal.SIGKILL)
    answers = mid(runtime, *four)
    assert sorted(answers.values()) == ["", "", "Worker: died", "Worker: died"]
    lost = [seq_id for seq_id, error in answers.items() if error]
    free(runtime, *lost)
    again = [bind(runtime, wat.plain()) for _ in range(2)]
    assert len(pools(runtime)) == 2
    assert set(mid(runtime, *again, *(set(four) - set(lost))).values()) == {""}


def test_a_killed_pool_leaves_nothing(runtime: Runtime) -> None:
    """Not even a slot is left, although no further guest comes for the pool."""
    free(runtime, bind(runtime, wat.plain()))
    os.kill(pools(runtime)[0], signal.SIGKILL)
    assert wait_until(lambda: used_slots(runtime.pid) == 0, 10)


def test_a_guest_that_leaves_gives_back_its_place(runtime: Runtime) -> None:
    keeper = bind(runtime, wat.plain())
    for _ in range(NUM_WORKER_SLOTS // 2 // 8 + 1):
        some = [bind(runtime, wat.plain()) for _ in range(8)]
        assert mid(runtime, keeper, *some) == dict.fromkeys((keeper, *some), "")
        free(runtime, *some)
    assert mid(runtime, keeper) == {keeper: ""}


def test_a_guest_that_leaves_before_its_pool_has_seen_its_request(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(extra_args=(*POOL, "--templates=0"), max_step_time_ms=50, late_steps=100)
    late = bind(runtime, wat.plain())
    (pool,) = pools(runtime)
    os.kill(pool, signal.SIGSTOP)
    assert mid(runtime, late) == {late: ""}
    free(runtime, late)
    os.kill(pool, signal.SIGCONT)
    assert wait_until(lambda: used_slots(runtime.pid) == 1, 10)  # the slot of the pool


@pytest.mark.parametrize("forks", [True, False])
def test_a_pool_with_a_late_guest_is_not_given_up(start_runtime: Callable[..., Runtime], forks: bool) -> None:
    """A pool with a late guest takes no other guest and forks none until the late guest has run out of time."""
    flags = ("--placement=pool", "--pool-size=1", "--templates=0")
    runtime = start_runtime(extra_args=flags, max_step_time_ms=100, max_pre_step_time_ms=100, late_steps=10)
    good, bad = bind(runtime, wat.plain()), bind(runtime, wat.Module().build(mid=wat.SPIN))
    assert mid(runtime, bad) == {bad: ""}  # late
    if forks:
        other = SeqId(next(_numbers))
        runtime.send_mid([MidOp(good), MidOp(other, good)])
        assert {entry.error for entry in runtime.recv_mid().seqs.values()} == {""}
    else:
        other = bind(runtime, wat.plain())
    assert mid(runtime, good, other) == {good: "", other: ""}
