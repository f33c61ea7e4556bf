"""Turns with `patience`: nobody waits for a hurried guest, and the guest loses nothing but time.

The limits of the runtimes here are minutes, so a turn that waited would not end within the time of a test.
"""

import os
from collections import Counter
from collections.abc import Callable

import pytest

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, Patience, PostOp, Pre, PreOp, Splice, Turn
from tests.runtime.protocol.test_late import COUNTER, SLOWLY
from tests.runtime.support import wat
from tests.runtime.support.processes import wait_until
from tests.support.processes import command, descendants

ONE, OTHER = SeqId(1), SeqId(2)
NOW = Patience(most_s=60.0, hurried_s=0.0, hurried=(ONE,))
LATE = Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
ONCE = f"(if (i32.eqz (global.get $steps)) (then (global.set $steps (i32.const 1)) {SLOWLY}))"


@pytest.fixture
def runtime(start_runtime: Callable[..., Runtime]) -> Runtime:
    return start_runtime(max_pre_step_time_ms=60_000, max_step_time_ms=60_000, late_steps=10)


def begin(runtime: Runtime, one: bytes) -> None:
    for seq_id, req_id, wasm in ((ONE, "one", one), (OTHER, "other", wat.plain())):
        module_id = runtime.mk_module(wasm).module_id
        runtime.instantiate(req_id=req_id, prompt=[TokenId(1)], module_id=module_id, module_arg="").result()
        runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[])


def turn(runtime: Runtime, *, asked: tuple[SeqId, ...] = (), ops: tuple[SeqId, ...] = (), patience: Patience) -> Turn:
    mids = [MidOp(seq_id) for seq_id in ops]
    runtime.send_turn(post_ops=[], pre_ops=[], asked=asked, ops=mids, freed=[], patience=patience)
    return runtime.recv_turn()


def allowed(runtime: Runtime, row: int, rows: int) -> set[int]:
    bits = runtime.mask_rows(rows)
    return {token for token in range(runtime.vocab_size) if bits[row, token >> 3] >> (token & 7) & 1}


@pytest.mark.parametrize("patience", [NOW, Patience(most_s=0.0, hurried_s=60.0)])
def test_a_turn_without_wait(runtime: Runtime, patience: Patience) -> None:
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    assert turn(runtime, ops=(ONE,), patience=patience).mid[ONE].result == Splice(1, (), late=True)
    for _ in range(5):
        # The guest is late now, so no turn with patience waits.
        assert turn(runtime, asked=(ONE,), patience=Patience(60.0, 60.0)).pre[ONE].result == LATE


def test_a_hurried_guest_loses_nothing_but_time(runtime: Runtime) -> None:
    module = wat.Module()
    begin(runtime, module.build(mid=ONCE + "(call $allow (i32.const 24))" + module.answer(wat.SAMPLE), extra=COUNTER))
    answer = turn(runtime, ops=(ONE, OTHER), patience=NOW)
    assert answer.mid[ONE].result == Splice(1, (), late=True)
    assert answer.mid[OTHER].result is None
    assert allowed(runtime, 1, 2) == {1, 2}
    wait_until(lambda: turn(runtime, asked=(ONE,), patience=NOW).pre[ONE].result != LATE)
    # The order of the ops has changed, so a mask in the old row would be wrong.
    assert turn(runtime, ops=(OTHER, ONE), patience=NOW).mid[ONE].result is None
    assert [allowed(runtime, row, 2) for row in range(2)] == [{1, 2}, {3, 4}]


def test_a_hurried_guest_in_time(runtime: Runtime) -> None:
    """The masks of hurried guests travel in the replies, whatever the kind of turn."""
    module = wat.Module()
    begin(runtime, module.build(mid="(call $allow (i32.const 24))" + module.answer(wat.SAMPLE)))
    patience = Patience(60.0, 60.0, (ONE,))
    for asked in ((), (ONE,)):
        answer = turn(runtime, asked=asked, ops=(OTHER, ONE), patience=patience)
        assert answer.mid[ONE].result is None
        assert not answer.mid[ONE].error
        assert [allowed(runtime, row, 2) for row in range(2)] == [{1, 2}, {3, 4}]


def test_a_late_worker_computes_with_what_others_leave(runtime: Runtime) -> None:
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    workers = [pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-seq"]
    before = [os.getpriority(os.PRIO_PROCESS, pid) for pid in workers]
    turn(runtime, ops=(ONE, OTHER), patience=NOW)
    after = [os.getpriority(os.PRIO_PROCESS, pid) for pid in workers]
    lowered = [new for old, new in zip(before, after, strict=True) if new > old]
    assert len(lowered) == 1, "the other worker keeps its priority"


def test_the_end_of_a_late_guest_delays_no_turn(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(max_pre_step_time_ms=50, max_step_time_ms=50, late_steps=2)
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    turn(runtime, ops=(ONE,), patience=NOW)
    wait_until(lambda: turn(runtime, asked=(ONE,), patience=NOW).pre[ONE].result != LATE)
    answer = turn(runtime, ops=(ONE,), patience=NOW)
    assert answer.mid[ONE].error.startswith("Worker: timeout"), answer


def test_a_runtime_that_does_not_wait_for_late_guests_is_not_hurried(start_runtime: Callable[..., Runtime]) -> None:
    """Such a runtime kills late guests."""
    module = wat.Module()
    runtime = start_runtime(max_step_time_ms=60_000)
    begin(runtime, module.build(mid=SLOWLY + "(call $allow (i32.const 24))" + module.answer(wat.SAMPLE), extra=COUNTER))
    assert turn(runtime, ops=(ONE,), patience=NOW).mid[ONE].result is None
    assert allowed(runtime, 0, 1) == {3, 4}


@pytest.mark.parametrize("patience", [{}, {"most_ms": -1, "hurried_ms": 0, "hurried": []}, {"most_ms": 1}, 7])
def test_bad_patience(runtime: Runtime, patience: object) -> None:
    begin(runtime, wat.plain())
    with pytest.raises(AiciError, match="patience"):
        runtime.call(
            {"op": "turn_process", "post_ops": [], "pre_ops": [], "freed": [], "asked": [], "ops": []}
            | {"patience": patience}
        )
    assert turn(runtime, ops=(ONE,), patience=NOW).mid[ONE]


def test_a_hurried_guest_forks(runtime: Runtime) -> None:
    module = wat.Module()
    begin(runtime, module.build(mid=ONCE + "(call $allow (i32.const 24))" + module.answer(wat.SAMPLE), extra=COUNTER))
    turn(runtime, ops=(ONE,), patience=NOW)
    wait_until(lambda: turn(runtime, asked=(ONE,), patience=NOW).pre[ONE].result != LATE)
    turn(runtime, ops=(ONE,), patience=NOW)
    turn(runtime, asked=(ONE,), patience=Patience(60.0, 60.0))
    fork = SeqId(9)
    runtime.send_turn(
        post_ops=[], pre_ops=[], asked=[], ops=[MidOp(ONE), MidOp(fork, ONE)], freed=[], patience=Patience(60.0, 60.0)
    )
    assert not runtime.recv_turn().mid[fork].error


def test_news_of_tokens_after_a_hurried_turn(runtime: Runtime) -> None:
    """Post of a token that was sampled by a mask in the reply."""
    module = wat.Module()
    mid, post = "(call $allow (i32.const 24))" + module.answer(wat.SAMPLE), wat.ECHO + module.answer(wat.NO_STOP)
    begin(runtime, module.build(mid=mid, post=post))
    turn(runtime, ops=(ONE,), patience=Patience(60.0, 60.0, (ONE,)))
    runtime.send_turn(
        post_ops=[PostOp(ONE, [TokenId(3)])], pre_ops=[], asked=[ONE], ops=[], freed=[], patience=Patience(60.0, 60.0)
    )
    assert runtime.recv_turn().post[ONE].logs == '{"tokens":[3],"backtrack":0}'


def test_the_processor_time_of_guests_is_told(runtime: Runtime) -> None:
    """Once a second, also of guests that never answer, and at the end."""
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    used: Counter[SeqId] = Counter()

    def more(**changes: tuple[SeqId, ...]) -> Counter[SeqId]:
        used.update(turn(runtime, patience=NOW, **changes).cpu_s)
        return used

    more(ops=(ONE,))
    # A hurried guest has a low priority: on a busy machine, a second of processor time takes long.
    wait_until(lambda: more(asked=(ONE,))[ONE] > 1.0, patience_s=60.0)
    assert used[ONE] > 3 * used[OTHER], "the guest that spins has used more"
