"""A hostile guest harms itself alone: in every test a neighbour runs and notices nothing.

One module holds all attacks; the argument selects the attack and the callback.
"""

import itertools
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from aici_base.errors import ControllerError
from aici_base.ids import SeqId
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.wire import Mid, MidOp, PostOp, PreOp
from tests.runtime.support import wat

PATIENCE_S = 20.0
PHASES = ("pre", "mid", "post", "create", "prompt")
_MEMORY = 8 * 65536
"""Pages of a guest of `wat`."""

_numbers = itertools.count(1)

_WILD = [("-1", "1"), ("0", "-1"), (str(_MEMORY - 1), "2"), (str(_MEMORY), "1"), ("-4", "100"), ("0x7fffffff", "8")]
_WILD_CALLS = {
    "read_blob": "(drop (call $read_blob (i32.const 100) (i32.const {at}) (i32.const {length})))",
    "tokenize": "(drop (call $tokenize (i32.const {at}) (i32.const {length})))",
    "storage_cmd": "(drop (call $storage_cmd (i32.const {at}) (i32.const {length})))",
    "return_process_result": "(call $return (i32.const {at}) (i32.const {length}))",
    "random_get": "(drop (call $random_get (i32.const {at}) (i32.const {length})))",
    "fd_write": """(i32.store (i32.const 0) (i32.const {at})) (i32.store (i32.const 4) (i32.const {length}))
        (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))""",
    "iovecs of fd_write": "(drop (call $fd_write (i32.const 1) (i32.const {at}) (i32.const 64) (i32.const 8)))",
    "sum of fd_write": "(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const {at})))",
    "clock_time_get": "(drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const {at})))",
    "return_logit_bias": "(call $bias (i32.const {at}))",
}

_GARBAGE = {
    "": "invalid JSON",
    "{": "invalid JSON",
    "[" * 5000: "invalid JSON",
    "null": "invalid result",
    '"Go"': "invalid result",
    '{"Splice":{"backtrack":1e99,"ff_tokens":[]}}': "backtrack",
    '{"Splice":{"backtrack":-1,"ff_tokens":[]}}': "backtrack",
    '{"Splice":{"backtrack":99999999999999999999,"ff_tokens":[]}}': "backtrack",
    '{"Splice":{"backtrack":0,"ff_tokens":[-1]}}': "ff_token out of range",
    '{"Splice":{"backtrack":0,"ff_tokens":[true]}}': "ff_token out of range",
    '{"Splice":{"backtrack":0,"ff_tokens":["1"]}}': "ff_token out of range",
    '{"Splice":{"backtrack":0,"ff_tokens":{}}}': "ff_tokens",
    '{"Splice":{"backtrack":0,"ff_tokens":[1],"backtrack":"x"}}': "backtrack",
    '{"Splice":{}}': "backtrack",
    '{"SampleWithBias":{},"Splice":{}}': "invalid result",
    '{"SampleWithBias":null}': "invalid result",
}

_GROWN = "(drop (memory.grow (i32.const 1000))) (memory.fill (i32.const 0) (i32.const 48) (i32.const 66000000))"
_MUCH = {
    "a result": "(call $return (i32.const 0) (i32.const 66000000))",
    "a command": "(drop (call $storage_cmd (i32.const 0) (i32.const 66000000)))",
    "a list of lists": """(loop $more (i32.store (i32.mul (local.get $k) (i32.const 4)) (i32.const 0x5d5b2c5d))
        (br_if $more (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 16000000))))
        (i32.store8 (i32.const 0) (i32.const 0x5b))
        (drop (call $storage_cmd (i32.const 0) (i32.const 64000000)))""",
    "a log": "(call $log (i32.const 64) (i32.const 66000000))",
    "text to tokenize": "(drop (call $tokenize (i32.const 0) (i32.const 50000000)))",
    "randomness": "(drop (call $random_get (i32.const 0) (i32.const 66000000)))",
}
_ENDS = {"a trap": (wat.TRAP, "unreachable"), "exit": ("(call $exit (i32.const 0))", "proc_exit: 0"),
         "stop": ("(call $stop)", "*** aici_host_stop()"), "the stack": ("(call $deep)", "call stack exhausted"),
         "no text": ("""(memory.fill (i32.const 0x8000) (i32.const 0xff) (i32.const 100))
            (call $return (i32.const 0x8000) (i32.const 100))""", "invalid JSON"),
         "no answer": ("", "aici_host_return_process_result not called")}  # fmt: skip
_LOOPS = ("a loop", "its log", "its variables")


@cache
def arsenal() -> tuple[bytes, dict[str, int]]:
    """Return the module, and the number of every attack."""
    module = wat.Module()
    append = '{"WriteVar":{"name":"a","value":"00","op":"Append"}}'
    bodies = {
        "a loop": wat.SPIN,
        "its log": f"(loop $forever {module.log('again')} (br $forever))",
        "its variables": f"(loop $forever (drop (call $storage_cmd {module.text(append)})) (br $forever))",
        "forks": module.answer('{"num_forks":1000000,"suspend":false,"ff_tokens":[]}'),
        **{f"much {name}": _GROWN + body for name, body in _MUCH.items()},
        **{name: body for name, (body, _) in _ENDS.items()},
        **{f"garbage {text}": module.answer(text) for text in _GARBAGE},
        **{
            f"{name} {at} {length}": body.format(at=at, length=length)
            for name, body in _WILD_CALLS.items()
            for at, length in _WILD
        },
    }
    functions = "".join(f"(func $do{k} (local $k i32) {body})" for k, body in enumerate(bodies.values()))
    choice = "".join(
        f"(if (i32.eq (i32.load8_u (i32.const 0x7001)) (i32.const {k + 33})) (then (call $do{k})))"
        for k in range(len(bodies))
    )
    acts = f"""(func $acts (param $phase i32) (result i32)
        (if (i32.ne (i32.load8_u (i32.const 0x7000)) (i32.add (local.get $phase) (i32.const 48)))
          (then (return (i32.const 0))))
        {choice} (i32.const 1))"""

    def unless_acting(phase: int, answer: str) -> str:
        return f"(if (i32.eqz (call $acts (i32.const {phase}))) (then {module.answer(answer)}))"

    read = "(drop (call $read_blob (call $module_arg) (i32.const 0x7000) (i32.const 2)))"
    wasm = module.build(
        pre=unless_acting(0, wat.PRE_GO),
        mid=unless_acting(1, wat.SAMPLE),
        post=unless_acting(2, wat.NO_STOP),
        create=read + "(call $acts (i32.const 3))",
        prompt=unless_acting(4, "{}"),
        extra=functions + acts + "(func $deep (call $deep))",
    )
    return wasm, {name: k for k, name in enumerate(bodies)}


class Neighbour:
    """A neighbour, served well in every step, and the attackers beside the neighbour."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._arsenal = runtime.mk_module(arsenal()[0]).module_id
        self.seq_id = self.begin(runtime.mk_module(wat.plain()).module_id, "")
        self._post_pre([], [PreOp(self.seq_id, f"h{self.seq_id}")])

    def begin(self, module_id: str, arg: str) -> SeqId:
        seq_id = SeqId(next(_numbers))
        future = self._runtime.instantiate(req_id=f"h{seq_id}", prompt=[], module_id=module_id, module_arg=arg)
        while not future.done() and hasattr(self, "seq_id"):
            self.mid()
        future.result(PATIENCE_S)
        return seq_id

    def mid(self, *ops: MidOp) -> Mid:
        self._runtime.send_mid([MidOp(self.seq_id), *ops])
        answer = self._runtime.recv_mid()
        own = answer.seqs[self.seq_id]
        assert own.error == ""
        if own.result is not None:
            assert own.result.late  # generous, for a busy machine
            return answer
        assert [k for k in range(64) if self._runtime.mask_rows(1)[0, k >> 3] >> (k & 7) & 1] == [1, 2]
        return answer

    def _post_pre(self, post_ops: list[PostOp], pre_ops: list[PreOp]) -> dict[SeqId, str]:
        answer = self._runtime.post_pre_process(post_ops=post_ops, pre_ops=pre_ops, freed=[])
        assert answer.pre[self.seq_id].error == ""
        self._suspended = {s for s, entry in answer.pre.items() if entry.result is not None and entry.result.suspend}
        return {
            s: next((entry.error for entry in (answer.post.get(s), answer.pre[s]) if entry and entry.error), "")
            for s in answer.pre
        }

    def error_of(self, what: str, phase: str) -> str:
        """Serve both until the attacker has failed or has finished."""
        arg = f"{PHASES.index(phase)}{chr(33 + arsenal()[1][what])}"
        seq_id = self.begin(self._arsenal, arg)
        binding, posts, deadline = (
            [PreOp(seq_id, f"h{seq_id}")],
            [PostOp(self.seq_id, [])],
            time.monotonic() + PATIENCE_S,
        )
        has_been_in_mid = False
        while time.monotonic() < deadline:
            errors = self._post_pre(posts, binding)
            binding, posts = [], [PostOp(self.seq_id, [])]
            if errors[seq_id] or (has_been_in_mid and seq_id not in self._suspended):
                return errors[seq_id]
            if seq_id in self._suspended:
                self.mid()
                continue
            entry = self.mid(MidOp(seq_id)).seqs[seq_id]
            if entry.error:
                return entry.error
            has_been_in_mid = entry.result is None
            posts.append(PostOp(seq_id, [], 0 if has_been_in_mid else 1))
        raise AssertionError("it never ended")


@pytest.fixture(scope="module")
def runtime(byte_level: Path, cache_dir: Path) -> Iterator[Runtime]:
    limits = RuntimeConfig(
        tokenizer=byte_level, cache_dir=cache_dir, max_pre_step_time_ms=40, max_step_time_ms=40, max_init_time_ms=300,
        late_steps=10,
    )  # fmt: skip
    with Runtime(limits) as runtime:
        runtime.wait_ready()
        yield runtime


@pytest.fixture
def neighbour(runtime: Runtime) -> Iterator[Neighbour]:
    neighbour = Neighbour(runtime)
    yield neighbour
    neighbour.mid()
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[SeqId(n) for n in range(next(_numbers))])


@pytest.mark.parametrize("name", _WILD_CALLS)
def test_wild_pointers(neighbour: Neighbour, name: str) -> None:
    """Nothing outside of the guest's memory is read or written: the process lives and reports the error."""
    for at, length in _WILD:
        if at == "0" and ("{length}" not in _WILD_CALLS[name] or name == "read_blob"):
            continue  # the pointer is good, and the write ends with the data
        error = neighbour.error_of(f"{name} {at} {length}", "mid")
        assert "pointer out of range" in error or "a result of 4294967295 bytes is too large" in error, (
            at,
            length,
            error,
        )


@pytest.mark.parametrize("phase", ["pre", "mid", "post"])
@pytest.mark.parametrize("inside", _LOOPS)
def test_loops(neighbour: Neighbour, phase: str, inside: str) -> None:
    error = neighbour.error_of(inside, phase)
    too_large = ("Worker: result too large; ",) if inside == "its variables" else ()  # everything written so far
    assert error.startswith(("Worker: timeout; ", *too_large)), error


@pytest.mark.parametrize("phase", ["create", "prompt"])
@pytest.mark.parametrize("inside", _LOOPS)
def test_loops_while_it_starts(neighbour: Neighbour, phase: str, inside: str) -> None:
    with pytest.raises(ControllerError, match="instantiate: timeout; the controller took more than 300 ms"):
        neighbour.error_of(inside, phase)


@pytest.mark.parametrize("extra", [f"(func $s {wat.SPIN}) (start $s)", f'(func (export "_initialize") {wat.SPIN})'])
def test_loops_before_all(runtime: Runtime, neighbour: Neighbour, extra: str) -> None:
    module_id = runtime.mk_module(wat.Module().build(extra=extra)).module_id
    with pytest.raises(ControllerError, match="instantiate: timeout; the controller took more than 300 ms"):
        neighbour.begin(module_id, "")


def test_garbage_for_a_result(neighbour: Neighbour) -> None:
    for text, words in _GARBAGE.items():
        assert words in (error := neighbour.error_of(f"garbage {text}", "mid")), (text, error)
        for phase in ("pre", "post"):
            assert neighbour.error_of(f"garbage {text}", phase).startswith(f"Error ({phase}): "), (text, phase)


@pytest.mark.parametrize("what", _MUCH)
def test_much_of_everything(neighbour: Neighbour, what: str) -> None:
    """Pass all of the memory in a single call. A host call cannot be interrupted, so the process is killed."""
    error = neighbour.error_of(f"much {what}", "mid")
    assert error.startswith(("Error (mid): ", "Worker: timeout; ", "Worker: died")), error


@pytest.mark.parametrize("phase", ["pre", "mid", "post"])
def test_ends(neighbour: Neighbour, phase: str) -> None:
    for what, (_, words) in _ENDS.items():
        error = neighbour.error_of(what, phase)
        assert error.startswith(f"Error ({phase}): "), what
        assert words in error


def test_forks_without_end(runtime: Runtime, neighbour: Neighbour) -> None:
    """The guest's requests are refused, and the engine's requests come to an end."""
    assert neighbour.error_of("forks", "pre") == "Error (pre): too many forks (max=16)"
    alive, failed = [neighbour.seq_id], list[SeqId]()
    while not failed:
        children = [SeqId(next(_numbers)) for _ in alive]
        ops = [MidOp(seq_id) for seq_id in alive if seq_id != neighbour.seq_id]
        ops += [MidOp(child, parent) for child, parent in zip(children, alive, strict=True)]
        entries = neighbour.mid(*ops).seqs
        refused = {child: error for child in children if (error := entries[child].error)}
        # On a busy machine, a parent may be late, and is not forked before its answer is there.
        failed = [child for child, error in refused.items() if not error.endswith("it is still computing")]
        assert {refused[child] for child in failed} <= {"Worker: too many forks (max=16)"}
        alive += [child for child in children if child not in refused]
    assert len(alive) == 16
