"""Guests in a shared process see and do the same as guests in processes of their own."""

import base64
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS, POOL_EMPTIED_MAX, POOL_GUESTS_MAX, owner_id
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

if TYPE_CHECKING:
    from concurrent.futures import Future

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


SPINS = wat.Module()
"""Spins in mid with the argument `mid`, and at the start with the argument `create`."""
_LENGTH = "(call $read_blob (call $module_arg) (i32.const 0x8000) (i32.const 0))"
SPINNING = SPINS.build(
    create=f"(if (i32.eq {_LENGTH} (i32.const 6)) (then {wat.SPIN})) (i32.const 7)",
    mid=f"(if (i32.eq {_LENGTH} (i32.const 3)) (then {wat.SPIN})) {SPINS.answer(wat.SAMPLE)}",
)


def start(runtime: Runtime, wasm: bytes, arg: str = "", user: str = "one") -> tuple[SeqId, "Future[None]"]:
    number = next(_numbers)
    module_id = runtime.mk_module(wasm).module_id
    started = runtime.instantiate(req_id=f"r{number}", prompt=[], module_id=module_id, module_arg=arg, user=user)
    return SeqId(number), started


def bind(runtime: Runtime, wasm: bytes, arg: str = "", user: str = "one") -> SeqId:
    number, started = start(runtime, wasm, arg, user)
    started.result()
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


def test_many_guests_share_as_many_processes_as_were_asked_for(runtime: Runtime) -> None:
    many = [bind(runtime, wat.plain()) for _ in range(20)]
    assert len(pools(runtime)) == 2
    assert not [p for p in descendants(runtime.pid) if command(p) == "aicirt-seq"]
    assert mid(runtime, *many) == dict.fromkeys(many, "")


def test_guests_that_start_at_once_wait_for_each_other(runtime: Runtime) -> None:
    """Each start takes some milliseconds, and all together far longer than a guest waits for one start."""
    count = "(i32.store (i32.const 0x20000) (i32.add (i32.load (i32.const 0x20000)) (i32.const 1)))"
    loop = f"(loop $again {count} (br_if $again (i32.lt_u (i32.load (i32.const 0x20000)) (i32.const 8000000))))"
    wasm = wat.Module().build(create=f"{loop} (i32.const 7)")
    free(runtime, bind(runtime, wasm))
    for _, started in [start(runtime, wasm, str(number)) for number in range(32)]:
        started.result()
    assert [command(pid) for pid in descendants(runtime.pid)].count("aicirt-seq") < 8  # none, but on a busy machine


def test_guests_of_two_users_or_modules_share_no_process(runtime: Runtime) -> None:
    three = [bind(runtime, wat.plain()), bind(runtime, wat.plain(), user="two"), bind(runtime, SPINNING)]
    assert len(pools(runtime)) == 3
    assert mid(runtime, *three) == dict.fromkeys(three, "")


def test_users_with_the_same_number_share_no_process(runtime: Runtime) -> None:
    one, other = "user-2289854", "user-8022000"
    assert owner_id(one) == owner_id(other)
    two = [bind(runtime, wat.plain(), user=user) for user in (one, other)]
    assert len(pools(runtime)) == 2
    assert mid(runtime, *two) == dict.fromkeys(two, "")


def test_pools_take_the_places_of_no_guests(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(extra_args=(*POOL, "--max-instances=3"))
    for number in range(4):
        free(runtime, bind(runtime, wat.plain(), user=f"user {number}"))
        assert wait_until(lambda number=number: used_slots(runtime.pid) == number + 1, 10)
    three = [bind(runtime, wat.plain()) for _ in range(3)]
    assert mid(runtime, *three) == dict.fromkeys(three, "")


def test_a_start_may_use_the_whole_stack_of_a_guest(runtime: Runtime) -> None:
    """A module that recurses 20,000 times, in a thread of the pool, beside another guest."""
    deep = """(func $deep (param $n i32) (result i32) (if (result i32) (local.get $n)
        (then (i32.add (i32.const 1) (call $deep (i32.sub (local.get $n) (i32.const 1))))) (else (i32.const 0))))"""
    create = f"(if (i32.eq {_LENGTH} (i32.const 4)) (then (drop (call $deep (i32.const 20000))))) (i32.const 7)"
    wasm = wat.Module().build(create=create, extra=deep)
    two = [bind(runtime, wasm), bind(runtime, wasm, "deep")]
    assert len(pools(runtime)) == 1
    assert mid(runtime, *two) == dict.fromkeys(two, "")


def test_a_guest_whose_asker_has_died_leaves(runtime: Runtime) -> None:
    """The pool reads the request only after the death of the side process."""
    free(runtime, bind(runtime, wat.plain()))
    (pool,) = pools(runtime)
    (side,) = [pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-side"]
    os.kill(pool, signal.SIGSTOP)
    _, started = start(runtime, wat.plain())
    assert wait_until(lambda: used_slots(runtime.pid) == 2, 10)
    os.kill(side, signal.SIGKILL)
    assert wait_until(lambda: side not in descendants(runtime.pid), 10)
    os.kill(pool, signal.SIGCONT)
    with pytest.raises(AiciError):
        started.result()
    assert wait_until(lambda: pool not in pools(runtime), 10)
    assert wait_until(lambda: used_slots(runtime.pid) == 0, 10)


def test_guests_of_named_modules_share_processes(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(extra_args=(f"--pooled={sha256(wat.plain()).hexdigest()}",))
    two = [bind(runtime, wat.plain()), bind(runtime, SPINNING)]
    assert len(pools(runtime)) == 1
    assert [command(p) for p in descendants(runtime.pid)].count("aicirt-seq") == 1
    assert mid(runtime, *two) == dict.fromkeys(two, "")


def test_a_guest_with_hidden_state_has_its_own_process(runtime: Runtime) -> None:
    body = "(table 2 funcref) (func $f (table.set (i32.const 0) (ref.null func)))"
    fixed = wat.Module().build(extra=body)
    alone, other = bind(runtime, fixed), bind(runtime, wat.plain())
    assert [command(p) for p in descendants(runtime.pid)].count("aicirt-seq") == 1
    assert mid(runtime, alone, other) == {alone: "", other: ""}


def test_forks_share_variables_and_nothing_else(runtime: Runtime) -> None:
    module = wat.Module()
    append = module.store('{"WriteVar":{"name":"n","value":"00","op":"Append"}}')
    count = "(global.set $steps (i32.add (global.get $steps) (i32.const 1)))(call $allow (global.get $steps))"
    wasm = module.build(mid=append + count + module.answer(wat.SAMPLE))
    parent, stranger = bind(runtime, wasm), bind(runtime, wasm)
    child = SeqId(next(_numbers))
    mid(runtime, parent)
    runtime.send_mid([MidOp(parent), MidOp(child, parent), MidOp(stranger)])
    logs = [entry.logs for entry in runtime.recv_mid().seqs.values()]
    assert sorted(logs) == [f'{{"WriteVar":{{"version":{n}}}}}' for n in (1, 2, 3)]
    assert [runtime.mask_rows(3)[row, 0] for row in range(3)] == [2, 2, 1]
    runtime.post_pre_process(post_ops=[PostOp(child, [TokenId(1)])], pre_ops=[], freed=[])
    assert mid(runtime, child) == {child: ""}
    assert runtime.mask_rows(1)[0, 0] == 3
    free(runtime, parent)
    assert mid(runtime, child, stranger) == {child: "", stranger: ""}


def test_runaways_take_time_and_nothing_else(runtime: Runtime) -> None:
    good = [bind(runtime, SPINNING) for _ in range(4)]
    bad = [bind(runtime, SPINNING, "mid") for _ in range(3)]
    answers = mid(runtime, *bad, *good)
    assert [answers[seq_id] for seq_id in good] == [""] * 4
    assert all(answers[seq_id].startswith("Worker: timeout") for seq_id in bad)
    assert mid(runtime, *good) == dict.fromkeys(good, "")


def test_a_killed_pool_takes_its_guests_along_and_is_replaced(runtime: Runtime) -> None:
    four = [bind(runtime, wat.plain(), user=user) for user in ("one", "two") * 2]
    os.kill(pools(runtime)[0], signal.SIGKILL)
    answers = mid(runtime, *four)
    assert sorted(answers.values()) == ["", "", "Worker: died", "Worker: died"]
    lost = [seq_id for seq_id, error in answers.items() if error]
    free(runtime, *lost)
    again = [bind(runtime, wat.plain(), user=user) for user in ("one", "two")]
    assert len(pools(runtime)) == 2
    assert set(mid(runtime, *again, *(set(four) - set(lost))).values()) == {""}


def test_a_start_that_runs_away_is_ended(start_runtime: Callable[..., Runtime]) -> None:
    """Meanwhile the guests of the pool go on. The pool gets no further guest, and ends with its last."""
    runtime = start_runtime(extra_args=(*POOL, "--templates=0"), max_init_time_ms=500)
    good = bind(runtime, SPINNING)
    (pool,) = pools(runtime)
    _, started = start(runtime, SPINNING, "create")
    while not started.done():
        assert mid(runtime, good) == {good: ""}
    with pytest.raises(ControllerError, match="timeout"):
        started.result()
    assert mid(runtime, good) == {good: ""}
    other = bind(runtime, SPINNING)
    assert mid(runtime, good, other) == {good: "", other: ""}
    assert len(pools(runtime)) == 2
    free(runtime, good)
    assert wait_until(lambda: pool not in pools(runtime), 10)
    assert wait_until(lambda: used_slots(runtime.pid) == 2, 10)  # those of the other guest and its pool


def test_guests_live_on_when_the_side_process_dies(runtime: Runtime) -> None:
    first = bind(runtime, wat.plain())
    (pool,) = pools(runtime)
    (side,) = [pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-side"]
    os.kill(side, signal.SIGKILL)
    assert wait_until(lambda: side not in descendants(runtime.pid), 10)
    second = bind(runtime, wat.plain())
    assert mid(runtime, first, second) == {first: "", second: ""}
    free(runtime, first)
    assert wait_until(lambda: pool not in pools(runtime), 10)
    assert mid(runtime, second) == {second: ""}


def test_the_processor_time_of_a_pool_is_shared_out(runtime: Runtime) -> None:
    two = [bind(runtime, wat.plain()) for _ in range(2)]
    used = dict.fromkeys(two, 0.0)
    ops = [MidOp(seq_id) for seq_id in two]

    def is_told() -> bool:
        runtime.send_turn(post_ops=[], pre_ops=[], asked=two, ops=ops, freed=[])
        for seq_id, used_s in runtime.recv_turn().cpu_s.items():
            used[seq_id] += used_s
        return all(used.values())

    assert wait_until(is_told, 10)
    assert max(used.values()) < 20 * min(used.values())


def test_emptied_instances_take_no_memory_from_guests(start_runtime: Callable[..., Runtime]) -> None:
    """The pool has room for so many more."""
    runtime = start_runtime(extra_args=(*POOL, "--wasm-max-memory=64"))
    free(runtime, bind(runtime, wat.plain()))
    limits = Path(f"/proc/{pools(runtime)[0]}/limits").read_text().splitlines()
    (data,) = [int(line.split()[3]) for line in limits if line.startswith("Max data size")]
    assert data >= (POOL_GUESTS_MAX + POOL_EMPTIED_MAX) * (64 << 20)


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


def test_a_late_guest_that_leaves_is_ended(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(extra_args=(*POOL, "--templates=0"), max_step_time_ms=50, late_steps=1000)
    late, good = bind(runtime, SPINNING, "mid"), bind(runtime, SPINNING)
    mid(runtime, late)
    free(runtime, late)
    assert wait_until(lambda: used_slots(runtime.pid) == 2, 10)  # those of the other guest and the pool
    assert mid(runtime, good) == {good: ""}


@pytest.mark.parametrize("forks", [True, False])
def test_a_pool_with_a_late_guest_is_not_given_up(start_runtime: Callable[..., Runtime], forks: bool) -> None:
    """A pool with a late guest forks none until the late guest has run out of time."""
    flags = ("--placement=pool", "--pool-size=1", "--templates=0")
    runtime = start_runtime(extra_args=flags, max_step_time_ms=100, max_pre_step_time_ms=100, late_steps=10)
    good, bad = bind(runtime, SPINNING), bind(runtime, SPINNING, "mid")
    assert mid(runtime, bad) == {bad: ""}  # late
    if forks:
        other = SeqId(next(_numbers))
        runtime.send_mid([MidOp(good), MidOp(other, good)])
        assert {entry.error for entry in runtime.recv_mid().seqs.values()} == {""}
    else:
        other = bind(runtime, SPINNING)
    assert mid(runtime, good, other) == {good: "", other: ""}
