"""Late guests under patience: the steps of other guests go on, and a late answer is not lost."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.wire import Mid, MidOp, PostOp, PostPre, Pre, PreOp, SeqResult, Splice
from tests.runtime.support import wat
from tests.support.processes import command, descendants

LATE, OTHER = SeqId(1), SeqId(2)
COUNTER = "(global $n (mut i64) (i64.const 0))"
# About a second of a processor: the other guests must be in time on a busy machine, too.
SLOWLY = """(global.set $n (i64.const 1200000000)) (loop $again
  (global.set $n (i64.sub (global.get $n) (i64.const 1))) (br_if $again (i64.ne (global.get $n) (i64.const 0))))"""
_ONCE = f"(if (i32.eqz (global.get $steps)) (then (global.set $steps (i32.const 1)) {SLOWLY}))"
ALLOW = "(call $allow (i32.const 24))"
PLAIN = {TokenId(1), TokenId(2)}


@pytest.fixture
def runtime(start_runtime: Callable[..., Runtime]) -> Runtime:
    return start_runtime(max_pre_step_time_ms=200, max_step_time_ms=200, late_steps=500)


def begin(runtime: Runtime, late: bytes) -> PostPre:
    for req_id, wasm in (("late", late), ("other", wat.plain())):
        module_id = runtime.mk_module(wasm).module_id
        runtime.instantiate(req_id=req_id, prompt=[TokenId(1)], module_id=module_id, module_arg="").result()
    return runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(LATE, "late"), PreOp(OTHER, "other")], freed=[])


def mid(runtime: Runtime, *seq_ids: SeqId) -> tuple[Mid, list[set[TokenId]]]:
    runtime.send_mid([MidOp(seq_id) for seq_id in seq_ids])
    answer = runtime.recv_mid()
    rows = runtime.mask_rows(len(seq_ids))
    allowed = [
        {TokenId(k) for k in range(runtime.vocab_size) if rows[row, k >> 3] >> (k & 7) & 1}
        for row in range(len(seq_ids))
    ]
    return answer, allowed


def in_time(answer: Mid, seq_id: SeqId) -> bool:
    return answer.seqs[seq_id].result is None


def masks(runtime: Runtime, *seq_ids: SeqId) -> list[set[TokenId]]:
    """Run steps until all guests are in time once. On a busy machine, any process may wait for longer than a step."""
    while True:
        answer, allowed = mid(runtime, *seq_ids)
        late = [seq_id for seq_id in seq_ids if not in_time(answer, seq_id)]
        assert not any(answer.seqs[seq_id].error for seq_id in seq_ids)
        if not late:
            return allowed
        runtime.post_pre_process(post_ops=[PostOp(seq_id, [], 1) for seq_id in late], pre_ops=[], freed=[])


def rounds(runtime: Runtime, done: Callable[[SeqResult[Pre]], bool], posts: Sequence[PostOp] = ()) -> SeqResult[Pre]:
    """Run steps of the other guests until `done`."""
    while True:
        pre = runtime.post_pre_process(post_ops=posts, pre_ops=[], freed=[]).pre
        assert not pre[OTHER].error
        if done(pre[LATE]):
            return pre[LATE]
        assert pre[LATE].result == Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
        answer, (allowed,) = mid(runtime, OTHER)
        assert allowed == PLAIN or not in_time(answer, OTHER)
        posts = [PostOp(OTHER, [TokenId(1)] if in_time(answer, OTHER) else [], 0 if in_time(answer, OTHER) else 1)]


def goes_on(result: SeqResult[Pre]) -> bool:
    return bool(result.error) or result.result is None or not result.result.suspend


def test_a_mask_that_comes_late(runtime: Runtime) -> None:
    module = wat.Module()
    late = module.build(mid=_ONCE + ALLOW + module.answer(wat.SAMPLE), extra=COUNTER)
    begin(runtime, late)
    answer, allowed = mid(runtime, LATE, OTHER)
    assert answer.seqs[LATE].result == Splice(1, (), late=True)
    assert answer.seqs[LATE].logs == ""
    assert allowed[1] == PLAIN or not in_time(answer, OTHER)
    posts = [PostOp(LATE, [], 1), PostOp(OTHER, [], 1)]
    assert rounds(runtime, goes_on, posts).result == Pre(suspend=False, num_forks=1, ff_tokens=())
    # The order of the ops has changed, so a mask in the old row would be wrong.
    assert masks(runtime, OTHER, LATE) == [PLAIN, {TokenId(3), TokenId(4)}]


def test_a_process_that_does_not_run_for_a_while(runtime: Runtime) -> None:
    """The detached worker need not run: on a busy machine, a process may wait for a processor."""
    module = wat.Module()
    begin(runtime, module.build(mid=ALLOW + module.answer(wat.SAMPLE)))
    process = min(pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-seq")
    os.kill(process, signal.SIGSTOP)
    answer, allowed = mid(runtime, LATE, OTHER)
    assert answer.seqs[LATE].result == Splice(1, (), late=True)
    assert allowed[1] == PLAIN or not in_time(answer, OTHER)
    rows = [runtime.post_pre_process(post_ops=[PostOp(LATE, [], 1)], pre_ops=[], freed=[]) for _ in range(2)]
    assert all(told.pre[LATE].result == Pre(suspend=True, num_forks=1, ff_tokens=(), late=True) for told in rows)
    os.kill(process, signal.SIGCONT)
    assert rounds(runtime, goes_on).result == Pre(suspend=False, num_forks=1, ff_tokens=())
    assert masks(runtime, OTHER, LATE) == [PLAIN, {TokenId(3), TokenId(4)}]


@pytest.mark.parametrize(("stops", "forks"), [(False, 1), (True, 0)])
def test_post_and_pre_that_come_late(runtime: Runtime, stops: bool, forks: int) -> None:
    module = wat.Module()
    post = _ONCE + module.log("told\n") + module.answer('{"stop":true}' if stops else wat.NO_STOP)
    pre = module.log("asked\n") + module.answer(wat.PRE_GO)
    begin(runtime, module.build(post=post, pre=pre, extra=COUNTER))
    masks(runtime, LATE, OTHER)
    told = runtime.post_pre_process(
        post_ops=[PostOp(LATE, [TokenId(3)]), PostOp(OTHER, [TokenId(1)])], pre_ops=[], freed=[]
    )
    assert told.post[LATE].result is not None
    assert not told.post[LATE].result.stop
    assert told.pre[LATE].result == Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
    assert told.pre[LATE].logs == ""
    result = rounds(runtime, goes_on)
    assert result.result == Pre(suspend=False, num_forks=forks, ff_tokens=())
    assert result.logs == "told\nasked\n"


def test_patience_has_an_end(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(max_pre_step_time_ms=200, max_step_time_ms=200, late_steps=2)
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    mid(runtime, LATE, OTHER)
    posts = [PostOp(LATE, [], 1), PostOp(OTHER, [], 1)]
    rounds(runtime, goes_on, posts)
    answer, _ = mid(runtime, LATE, OTHER)
    assert answer.seqs[LATE].error.startswith("Worker: timeout")


def test_a_trap_that_comes_late(runtime: Runtime) -> None:
    begin(runtime, wat.Module().build(mid=SLOWLY + wat.TRAP, extra=COUNTER))
    mid(runtime, LATE, OTHER)
    rounds(runtime, goes_on, [PostOp(LATE, [], 1), PostOp(OTHER, [], 1)])
    answer, _ = mid(runtime, LATE, OTHER)
    assert "unreachable" in answer.seqs[LATE].error


def test_news_for_one_that_is_still_computing(runtime: Runtime) -> None:
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    mid(runtime, LATE, OTHER)
    told = runtime.post_pre_process(post_ops=[PostOp(LATE, [TokenId(3)])], pre_ops=[], freed=[])
    assert "still computing" in told.pre[LATE].error
    assert told.pre[OTHER].error == ""


def test_a_late_one_is_freed(runtime: Runtime) -> None:
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    mid(runtime, LATE, OTHER)
    told = runtime.post_pre_process(post_ops=[PostOp(LATE, [], 1)], pre_ops=[], freed=[LATE])
    assert set(told.pre) == {LATE, OTHER}
    assert masks(runtime, OTHER) == [PLAIN]


def test_a_late_one_cannot_be_cloned(runtime: Runtime) -> None:
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    mid(runtime, LATE, OTHER)
    runtime.send_mid([MidOp(LATE), MidOp(SeqId(3), LATE), MidOp(OTHER)])
    answer: Any = runtime.recv_mid().seqs
    assert answer[LATE].result == Splice(1, (), late=True)
    assert "still computing" in answer[SeqId(3)].error
    assert answer[OTHER].error == ""
