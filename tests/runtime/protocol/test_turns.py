"""`turn_process`: post, pre and mid of the named sequences. Equivalence with the other commands:
test_both_protocols."""

import base64
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import RuntimeDiedError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.guests.native import library
from aici_runtime.wire import MidOp, Patience, PostOp, Pre, PreOp, SeqResult, Splice, Turn
from tests.runtime.protocol.test_late import COUNTER, SLOWLY
from tests.runtime.support import wat
from tests.runtime.support.raw import RawEngine
from tests.support.processes import command, descendants, wait_until

ONE, OTHER = SeqId(1), SeqId(2)
GO_ON = Pre(suspend=False, num_forks=1, ff_tokens=())
LATE = Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
PLAIN = {TokenId(1), TokenId(2)}
POOL = ("--placement=pool", "--pool-size=1")


def begin(runtime: Runtime, one: bytes) -> None:
    for req_id, wasm in (("one", one), ("other", wat.plain())):
        module_id = runtime.mk_module(wasm).module_id
        runtime.instantiate(req_id=req_id, prompt=[TokenId(1)], module_id=module_id, module_arg="").result()
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(ONE, "one"), PreOp(OTHER, "other")], freed=[])


def turn(
    runtime: Runtime, *asked: SeqId, ops: tuple[SeqId, ...] = (ONE, OTHER), told: tuple[SeqId, ...] = ()
) -> tuple[Turn, dict[SeqId, set[TokenId]]]:
    """Return the answers, with pre of silent guests filled in, and the tokens allowed by the masks."""
    posts = [PostOp(seq_id, [TokenId(1)]) for seq_id in told]
    runtime.send_turn(post_ops=posts, pre_ops=[], asked=asked, ops=[MidOp(seq_id) for seq_id in ops], freed=[])
    answer = runtime.recv_turn()
    rows = runtime.mask_rows(len(ops))
    allowed = {
        seq_id: {TokenId(k) for k in range(runtime.vocab_size) if rows[row, k >> 3] >> (k & 7) & 1}
        for row, seq_id in enumerate(ops)
        if seq_id in answer.mid
    }
    silent = SeqResult(GO_ON, "", (), "", 0)
    return answer._replace(pre={seq_id: silent for seq_id in asked if seq_id in answer.mid} | answer.pre), allowed


def test_only_who_is_named_is_asked(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    begin(runtime, wat.echo())
    answer, allowed = turn(runtime, OTHER, ops=(OTHER, ONE), told=(OTHER,))
    assert answer.pre == {OTHER: SeqResult(GO_ON, "", (), "", 0)}
    assert answer.post == {}
    assert answer.mid[ONE].logs == '{"fork_group":[1]}', "of the other callbacks, it has not heard"
    assert allowed[OTHER] == PLAIN
    answer, _ = turn(runtime, ONE, ops=(ONE,), told=(ONE,))
    said = [part[ONE].logs for part in (answer.post, answer.pre, answer.mid)]
    assert said == ['{"tokens":[1],"backtrack":0}', "{}", '{"fork_group":[1]}']


@pytest.fixture(scope="module")
def two(byte_level: Path, cache_dir: Path) -> Iterator[RawEngine]:
    """Bind sequences 1 and 2. The first command selects the protocol of the runtime."""
    raw = RawEngine(byte_level, cache_dir)
    try:
        module_id = raw.side(op="mk_module", binary=base64.b64encode(wat.plain()).decode())["data"]["module_id"]
        for name in ("one", "other"):
            raw.side(op="instantiate", req_id=name, prompt=[1], module_id=module_id, module_arg="")
        fresh = [{"id": 1, "req_id": "one"}, {"id": 2, "req_id": "other"}]
        told = raw.call(op="turn_process", post_ops=[], pre_ops=fresh, asked=[], ops=[{"id": 2}], freed=[])
        assert told["data"]["pre_seqs"].keys() == {"1"}
        assert told["data"]["seqs"].keys() == {"2"}, "who is fresh may be asked at once, and said nothing before"
        yield raw
    finally:
        raw.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"asked": [1, 7]}, "invalid id 7"),
        ({"asked": [1, 1]}, "duplicate id 1"),
        ({"asked": "1"}, "field asked missing or not list"),
        ({"ops": [{"id": 7}]}, "invalid id 7"),
        ({"ops": [{"id": 1}, {"id": 1}]}, "duplicate id 1"),
        ({"ops": [{"id": 3, "clone_id": 1}]}, "cannot clone 1 before it has answered pre"),
        ({"post_ops": [{"id": 2, "tokens": [1]}]}, "a post op for 2, which is not asked"),
        ({"pre_ops": [{"id": 3, "req_id": "nobody"}]}, "invalid req_id nobody"),
        ({"pre_ops": [{"id": 2, "req_id": "nobody"}]}, "duplicate id 2"),
        ({"freed": None}, "field freed missing or not list"),
    ],
)
def test_what_is_refused_changes_nothing(two: RawEngine, changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"post_ops": [], "pre_ops": [], "asked": [1], "ops": [{"id": 1}, {"id": 2}], "freed": []}
    refused = two.call(op="turn_process", **fields | {"freed": [1]} | changes)
    assert (refused["type"], refused.get("error")) == ("error", message)
    assert two.call(op="turn_process", **fields)["data"]["seqs"].keys() == {"1", "2"}


def test_it_is_of_the_earlier_protocol(byte_level: Path, cache_dir: Path) -> None:
    raw = RawEngine(byte_level, cache_dir, "--proto=v2")
    try:
        refused = raw.call(op="turn_process", post_ops=[], pre_ops=[], asked=[], ops=[], freed=[])
        assert "turn_process is not of the protocol" in refused["error"]
    finally:
        raw.close()


@pytest.mark.parametrize(("phase", "placement"), [("post", ()), ("mid", ()), ("mid", POOL)])
def test_a_time_that_is_over(start_runtime: Callable[..., Runtime], phase: str, placement: Any) -> None:
    what = "mid_process" if phase == "mid" else "pre_process and post_process"
    runtime = start_runtime(max_pre_step_time_ms=100, max_step_time_ms=200, extra_args=placement)
    begin(runtime, wat.Module().build(**{phase: wat.SPIN}))  # type: ignore[arg-type]
    answer, allowed = turn(runtime, ONE, OTHER, told=(ONE, OTHER))
    [error] = {result.error for result in (answer.pre[ONE], answer.mid.get(ONE, answer.pre[ONE])) if result.error}
    limit_ms = 100 if phase == "post" else 200
    assert error.startswith(f"Worker: timeout; {what} took more than {limit_ms} ms")
    assert answer.pre[OTHER].result == GO_ON
    if placement:
        # The guest had to wait for another guest, and mid was cancelled.
        answer, allowed = turn(runtime, OTHER, ops=(OTHER,))
    assert OTHER in answer.mid
    assert (ONE in answer.mid) == (phase == "mid" and not placement)
    assert allowed[OTHER] == PLAIN


@pytest.mark.parametrize("phase", ["post", "mid"])
def test_a_turn_that_comes_late(start_runtime: Callable[..., Runtime], phase: str) -> None:
    """A late guest answers everything once it has finished, as if asked just then."""
    runtime = start_runtime(max_pre_step_time_ms=200, max_step_time_ms=200, late_steps=500)
    module = wat.Module()
    slowly = {phase: f"(if (i32.eqz (global.get $steps)) (then (global.set $steps (i32.const 1)) {SLOWLY}))"}
    bodies = {
        "post": module.log("told ") + module.answer(wat.NO_STOP),
        "pre": module.log("asked ") + module.answer(wat.PRE_GO),
        "mid": module.log("sampled") + "(call $allow (i32.const 24))" + module.answer(wat.SAMPLE),
    }
    bodies = {name: slowly.get(name, "") + body for name, body in bodies.items()}
    begin(runtime, module.build(extra=COUNTER, **bodies))  # type: ignore[arg-type]
    answer, allowed = turn(runtime, ONE, OTHER, told=(ONE, OTHER))
    while answer.pre[ONE].result != GO_ON:
        assert allowed[OTHER] == PLAIN
        assert answer.pre[ONE].result == LATE
        assert answer.pre[ONE].logs == ""
        assert ONE not in answer.mid
        # The order of the ops has changed, so a mask in the old row would be wrong.
        answer, allowed = turn(runtime, ONE, OTHER, ops=(OTHER, ONE))
    assert answer.pre[ONE].logs == "told asked "
    assert answer.mid[ONE].logs == "sampled"
    assert allowed == {OTHER: PLAIN, ONE: {TokenId(3), TokenId(4)}}
    answer, _ = turn(runtime, ONE, told=(ONE,))
    assert answer.post[ONE].logs + answer.pre[ONE].logs + answer.mid[ONE].logs == "told asked sampled"


def test_patience_has_an_end_and_who_is_late_cannot_be_told_anything(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(max_pre_step_time_ms=200, max_step_time_ms=200, late_steps=2)
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    turn(runtime, ONE, OTHER)
    # Asked for a mask alone, the guest answers as under `mid_process`.
    answer, _ = turn(runtime, OTHER)
    assert answer.mid[ONE].result == Splice(1, (), late=True)
    while not (answer.mid[ONE].error if ONE in answer.mid else answer.pre[ONE].error):
        answer, allowed = turn(runtime, ONE, OTHER)
        assert allowed[OTHER] == PLAIN
    assert answer.mid[ONE].error.startswith("Worker: timeout; mid_process took more than 200 ms")


def test_news_for_one_that_is_still_computing(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(max_pre_step_time_ms=200, max_step_time_ms=200, late_steps=500)
    begin(runtime, wat.Module().build(mid=wat.SPIN))
    turn(runtime, ONE, OTHER)
    answer, _ = turn(runtime, ONE, OTHER, told=(ONE,))
    assert "still computing" in answer.pre[ONE].error
    assert answer.mid.keys() == {OTHER}


def test_who_says_much_before_is_asked_for_its_mask_later(start_runtime: Callable[..., Runtime]) -> None:
    """A mid result has the same room in a turn as alone."""
    runtime = start_runtime()
    module = wat.Module()
    begin(runtime, module.build(pre=module.log("x" * 20_000) + module.answer(wat.PRE_GO)))
    answer, _ = turn(runtime, ONE, OTHER)
    assert answer.pre[ONE].result == GO_ON
    assert len(answer.pre[ONE].logs) == 20_000
    assert answer.mid.keys() == {OTHER}
    answer, _ = turn(runtime, OTHER)
    assert answer.mid.keys() == {ONE, OTHER}


def test_a_worker_that_dies(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    begin(runtime, wat.plain())
    for pid in descendants(runtime.pid):
        if command(pid) == "aicirt-seq":
            os.kill(pid, signal.SIGKILL)
    answer, _ = turn(runtime, ONE, OTHER, told=(ONE,))
    assert {answer.pre[ONE].error, answer.post[ONE].error, answer.pre[OTHER].error} == {"Worker: died"}
    assert not answer.mid


@pytest.mark.parametrize("native", ["", "off"])
def test_a_turn_of_calm_guests(
    start_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    monkeypatch.setenv("AICI_NATIVE", native)
    runtime = start_runtime()
    begin(runtime, wat.echo())
    num_usual = 0
    for _ in range(3):  # at times, an answer tells of processor time, too
        runtime.send_calm([OTHER], [TokenId(1)], None)
        if runtime.recv_calm() is None:
            assert runtime.recv_turn().mid.keys() == {OTHER}
        else:
            num_usual += 1
    assert (num_usual > 0) == (native != "off" and library.is_supported())
    rows = runtime.mask_rows(1)
    assert {TokenId(k) for k in range(runtime.vocab_size) if rows[0, k >> 3] >> (k & 7) & 1} == PLAIN
    runtime.send_calm([ONE, OTHER], [TokenId(1), TokenId(2)], Patience(9.0, 9.0))
    assert runtime.recv_calm() is None, "the first guest logs"
    answer = runtime.recv_turn()
    assert answer.mid.keys() == {ONE, OTHER}
    assert [answer.mid[seq_id].logs != "" for seq_id in (ONE, OTHER)] == [True, False]
    runtime.send_calm([OTHER], [TokenId(1)], Patience(9.0, 9.0, [OTHER]))
    if runtime.recv_calm() is None:
        assert runtime.recv_turn().mid.keys() == {OTHER}
    os.kill(runtime.pid, signal.SIGKILL)
    runtime.wait_ended(10)
    with pytest.raises(RuntimeDiedError):
        runtime.send_calm([OTHER], [TokenId(1)], None)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.skipif(not library.is_supported(), reason="no loop for this kind of machine")
@pytest.mark.parametrize("placement", [(), POOL])
def test_guests_keep_off_the_core_of_the_engine(
    start_runtime: Callable[..., Runtime], placement: tuple[str, ...]
) -> None:
    cores = os.sched_getaffinity(0)
    runtime = start_runtime(extra_args=placement)
    begin(runtime, wat.plain())
    name = "aicirt-pool" if placement else "aicirt-seq"
    guests = [pid for pid in descendants(runtime.pid) if command(pid) == name]
    assert guests
    mine = max(cores)

    def cores_of_all() -> set[frozenset[int]]:
        return {frozenset(os.sched_getaffinity(pid)) for pid in (*guests, runtime.pid)}

    def are_kept_off() -> bool:
        runtime.send_calm([ONE, OTHER], [TokenId(1), TokenId(1)], None)
        if runtime.recv_calm() is None:
            runtime.recv_turn()
        return cores_of_all() == {frozenset(cores - {mine})}

    os.sched_setaffinity(0, {mine})
    try:
        assert wait_until(are_kept_off, 10)
    finally:
        os.sched_setaffinity(0, cores)
    runtime.ping()
    assert cores_of_all() == {frozenset(cores)}, "other messages than calm turns have all cores"


def test_without_the_loop_in_c(start_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_NATIVE", "off")
    runtime = start_runtime()
    begin(runtime, wat.plain())
    answer, allowed = turn(runtime, ONE, OTHER, told=(ONE,))
    assert allowed == {ONE: PLAIN, OTHER: PLAIN}
    assert not any(said.logs or said.error for said in answer.mid.values())
