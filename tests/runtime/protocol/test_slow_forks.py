"""Forks that take long: no turn with patience waits, and no guest sees a difference."""

import os
import signal
from collections.abc import Callable, Collection

import pytest

from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, Patience, Pre, PreOp, Splice, Turn
from tests.runtime.support import wat
from tests.runtime.support.leak import used_slots
from tests.runtime.support.processes import members, wait_until

ONE, OTHER = SeqId(1), SeqId(2)
FORKS = tuple(SeqId(10 + k) for k in range(5))
FAMILY = (ONE, *FORKS)
NOW = Patience(most_s=60.0, hurried_s=0.0)
LATE = Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
NOTHING_YET = Splice(1, (), late=True)


@pytest.fixture
def runtime(start_runtime: Callable[..., Runtime]) -> Runtime:
    return start_runtime(max_pre_step_time_ms=60_000, max_step_time_ms=60_000, late_steps=10)


def workers(runtime: Runtime) -> set[int]:
    return {pid for pid, name in members(runtime.pid).items() if name == "aicirt-seq"}


@pytest.fixture
def parent(runtime: Runtime) -> int:
    """Bind ONE, which logs its arguments and allows the tokens 3 and 4, and OTHER. Return the process of ONE."""
    module = wat.Module()
    family = module.build(mid=wat.ECHO + "(call $allow (i32.const 24))" + module.answer(wat.SAMPLE))
    found: list[int] = []
    for seq_id, req_id, wasm in ((ONE, "one", family), (OTHER, "other", wat.plain())):
        module_id = runtime.mk_module(wasm).module_id
        runtime.instantiate(req_id=req_id, prompt=[TokenId(1)], module_id=module_id, module_arg="").result()
        runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[])
        found.extend(workers(runtime))
    return found[0]


def turn(
    runtime: Runtime,
    *ops: MidOp,
    asked: Collection[SeqId] = (),
    freed: Collection[SeqId] = (),
    patience: Patience | None = NOW,
) -> Turn:
    runtime.send_turn(post_ops=[], pre_ops=[], asked=list(asked), ops=ops, freed=list(freed), patience=patience)
    return runtime.recv_turn()


def fork(runtime: Runtime, forks: Collection[SeqId] = FORKS, patience: Patience | None = NOW) -> Turn:
    clones = [MidOp(seq_id, ONE) for seq_id in forks]
    return turn(runtime, MidOp(ONE), *clones, MidOp(OTHER), patience=patience)


def allowed(runtime: Runtime, num_rows: int) -> list[set[int]]:
    bits = runtime.mask_rows(num_rows)
    tokens = range(runtime.vocab_size)
    return [{token for token in tokens if bits[row, token >> 3] >> (token & 7) & 1} for row in range(num_rows)]


def come_up(runtime: Runtime, family: Collection[SeqId]) -> None:
    def all_there() -> bool:
        pre = turn(runtime, asked=family).pre
        return all(pre[seq_id].result != LATE for seq_id in family)

    wait_until(all_there)


def test_a_turn_does_not_wait_for_forks(runtime: Runtime, parent: int) -> None:
    os.kill(parent, signal.SIGSTOP)
    answer = fork(runtime)
    assert [answer.mid[seq_id].result for seq_id in FAMILY] == [NOTHING_YET] * len(FAMILY)
    assert answer.mid[OTHER].result is None
    assert allowed(runtime, 7)[-1] == {1, 2}
    assert {result.result for result in turn(runtime, asked=FAMILY).pre.values()} == {LATE}
    os.kill(parent, signal.SIGCONT)
    come_up(runtime, FAMILY)
    answer = turn(runtime, *(MidOp(seq_id) for seq_id in (OTHER, *reversed(FAMILY))))
    assert allowed(runtime, 7) == [{1, 2}, *[{3, 4}] * 6]
    # The fork group is that of the first command, and every guest was asked once.
    assert {answer.mid[seq_id].logs for seq_id in FAMILY} == {'{"fork_group":[1,10,11,12,13,14]}'}


def test_forks_wait_for_nothing_without_patience(runtime: Runtime, parent: int) -> None:
    answer = fork(runtime, patience=None)
    assert {answer.mid[seq_id].result for seq_id in FAMILY} == {None}
    assert allowed(runtime, 7) == [*[{3, 4}] * 6, {1, 2}]
    assert parent in workers(runtime)


def test_freed_before_they_are_there(runtime: Runtime, parent: int) -> None:
    os.kill(parent, signal.SIGSTOP)
    fork(runtime)
    turn(runtime, asked=FAMILY, freed=[FORKS[0], FORKS[-1]])  # one that the worker is asked for, one that waits
    os.kill(parent, signal.SIGCONT)
    left = (ONE, *FORKS[1:-1])
    come_up(runtime, left)
    turn(runtime, *(MidOp(seq_id) for seq_id in left), patience=None)
    assert allowed(runtime, len(left)) == [{3, 4}] * len(left)
    wait_until(lambda: len(workers(runtime)) == len(left) + 1)
    turn(runtime, freed=[*left, OTHER])
    wait_until(lambda: used_slots(runtime.pid) == 0)


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_parent_that_is_gone(runtime: Runtime, parent: int, is_freed: bool) -> None:
    os.kill(parent, signal.SIGSTOP)
    fork(runtime)
    if is_freed:
        turn(runtime, freed=[ONE])
    else:
        os.kill(parent, signal.SIGKILL)
    family = FORKS if is_freed else FAMILY
    wait_until(lambda: {each.error for each in turn(runtime, asked=family).pre.values()} == {"Worker: died"})
    assert turn(runtime, MidOp(OTHER), freed=FAMILY).mid[OTHER].error == ""
    wait_until(lambda: len(workers(runtime)) == 1)


def test_a_parent_that_never_forks(runtime: Runtime, parent: int) -> None:
    os.kill(parent, signal.SIGSTOP)
    fork(runtime)
    wait_until(lambda: turn(runtime, asked=FAMILY).pre[ONE].error == "Worker: timeout")
    answer = turn(runtime, MidOp(OTHER), asked=FORKS)
    assert {answer.pre[seq_id].error for seq_id in FORKS} == {"Worker: timeout"}
    assert answer.mid[OTHER].error == ""
