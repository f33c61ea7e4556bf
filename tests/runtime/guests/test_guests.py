"""Allowed and forbidden behaviour of guests, seen by an engine through the client."""

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from aici_base.errors import AiciError, ControllerError, NotFoundError, UsageError
from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.guests.variables import MAX_BYTES, Variables
from aici_runtime.wire import MidOp, Post, PostOp, Pre, PreOp, Splice
from tests.runtime.support import wat
from tests.runtime.support.tokenizer import BYTE_LEVEL_SIZE
from tests.support.large_module import padded

_numbers = itertools.count(1)
PROMPT = [TokenId(1)]


def instantiate(runtime: Runtime, wasm: bytes, arg: object = "") -> str:
    req_id = f"req-{next(_numbers)}"
    module_id = runtime.mk_module(wasm).module_id
    runtime.instantiate(req_id=req_id, prompt=PROMPT, module_id=module_id, module_arg=arg).result()
    return req_id


@pytest.fixture
def start(runtime: Runtime) -> Iterator[Callable[..., SeqId]]:
    """Bind guests to fresh sequences, and free the guests after the test."""
    started: list[SeqId] = []

    def start(wasm: bytes, arg: object = "") -> SeqId:
        seq_id = SeqId(next(_numbers))
        req_id = instantiate(runtime, wasm, arg)
        runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[])
        started.append(seq_id)
        return seq_id

    yield start
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=started)


def first_pre(runtime: Runtime, wasm: bytes) -> tuple[Pre | None, str]:
    seq_id = SeqId(next(_numbers))
    req_id = instantiate(runtime, wasm)
    answer = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[seq_id])
    return answer.pre[seq_id].result, answer.pre[seq_id].error


def mid(runtime: Runtime, *ids: SeqId) -> dict[SeqId, tuple[Splice | None, str]]:
    runtime.send_mid([MidOp(seq_id) for seq_id in ids])
    return {seq_id: (entry.result, entry.error) for seq_id, entry in runtime.recv_mid().seqs.items()}


def pre_answer(**fields: object) -> str:
    return json.dumps({"num_forks": 1, "suspend": False, "ff_tokens": []} | fields)


class TestPre:
    @pytest.mark.parametrize(
        ("answer", "result"),
        [
            (pre_answer(suspend=True), Pre(True, 1, ())),
            (pre_answer(num_forks=0), Pre(False, 0, ())),
            (pre_answer(num_forks=3), Pre(False, 3, ())),
        ],
    )
    def test_results(self, runtime: Runtime, answer: str, result: Pre) -> None:
        module = wat.Module()
        assert first_pre(runtime, module.build(pre=module.answer(answer))) == (result, "")

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            ("{", "invalid JSON from aici_pre_process"),
            ("{}", "field suspend missing or not bool"),
            (pre_answer(suspend=1), "field suspend missing or not bool"),
            (pre_answer(num_forks=True), "field num_forks missing or not int"),
            (pre_answer(num_forks=-1), "num_forks=-1"),
            (pre_answer(num_forks=17), "too many forks (max=16)"),
            (pre_answer(num_forks=2, suspend=True), "num_forks=2 with suspend=True"),
            (pre_answer(num_forks=2, ff_tokens=[1]), "ff_tokens need num_forks == 1"),
            (pre_answer(ff_tokens=[1, 261]), f"ff_token out of range (261 >= {BYTE_LEVEL_SIZE} at 1)"),
            (pre_answer(ff_tokens=[-1]), "ff_token out of range (-1"),
            (pre_answer(ff_tokens=["a"]), "ff_token out of range (a"),
            (pre_answer(ff_tokens=[1]), "too many ff_tokens rounds from pre_process"),  # without end
        ],
    )
    def test_bad_results(self, runtime: Runtime, answer: str, error: str) -> None:
        module = wat.Module()
        result, text = first_pre(runtime, module.build(pre=module.answer(answer)))
        assert result == Pre(False, 1, ())
        assert text.startswith(f"Error (pre): {error}")

    def test_no_result(self, runtime: Runtime) -> None:
        module = wat.Module()
        _, text = first_pre(runtime, module.build(pre=""))
        assert text == "Error (pre): aici_host_return_process_result not called"

    def forced(self, *, stop: str) -> bytes:
        """The guest forces token 5, then 6, then goes on, and logs the arguments of post."""
        module = wat.Module()
        count = "(global.set $steps (i32.add (global.get $steps) (i32.const 1)))"
        answers = [module.answer(pre_answer(ff_tokens=[5])), module.answer(pre_answer(ff_tokens=[6]))]
        pre = f"""{count} (if (i32.eq (global.get $steps) (i32.const 1)) (then {answers[0]}) (else
            (if (i32.eq (global.get $steps) (i32.const 2)) (then {answers[1]}) (else {module.answer(wat.PRE_GO)}))))"""
        return module.build(pre=pre, post=wat.ECHO + module.answer(stop))

    def test_forced_tokens_come_as_one_batch(self, runtime: Runtime) -> None:
        seq_id = SeqId(next(_numbers))
        req_id = instantiate(runtime, self.forced(stop=wat.NO_STOP))
        answer = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[seq_id])
        assert answer.pre[seq_id].result == Pre(False, 1, (TokenId(5), TokenId(6)))
        assert answer.pre[seq_id].logs == '{"tokens":[5],"backtrack":0}{"tokens":[6],"backtrack":0}'

    def test_a_stop_among_forced_tokens_ends_the_rounds(self, runtime: Runtime) -> None:
        result, _ = first_pre(runtime, self.forced(stop='{"stop":true}'))
        assert result == Pre(False, 0, (TokenId(5),))


class TestMid:
    @pytest.mark.parametrize(
        ("answer", "result"),
        [
            ('{"Splice":{"backtrack":0,"ff_tokens":[9]}}', Splice(0, (TokenId(9),))),
            ('{"Splice":{"backtrack":4,"ff_tokens":[9]}}', Splice(5, (TokenId(9),))),
        ],
    )
    def test_splice(self, runtime: Runtime, start: Callable[..., SeqId], answer: str, result: Splice) -> None:
        module = wat.Module()
        seq_id = start(module.build(mid=module.answer(answer)))
        assert mid(runtime, seq_id) == {seq_id: (result, "")}

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            ("null", "invalid result of mid_process: None"),
            ('"Go"', "invalid result of mid_process: 'Go'"),
            ("{}", "invalid result of mid_process"),
            ('{"SampleWithBias":{"x":1}}', "invalid result of mid_process"),
            ('{"Splice":{"backtrack":0,"ff_tokens":[]}}', "empty Splice (both backtrack == 0 and ff_tokens == [])"),
            ('{"Splice":{"backtrack":-1,"ff_tokens":[1]}}', "backtrack out of range: -1"),
            ('{"Splice":{"backtrack":18446744073709551615,"ff_tokens":[]}}', "backtrack out of range: 1844"),
            ('{"Splice":{"backtrack":0,"ff_tokens":[3,999]}}', "ff_token out of range (999 >= 261 at 1)"),
            ('{"Splice":[]}', "field backtrack missing"),
        ],
    )
    def test_bad_results(self, runtime: Runtime, start: Callable[..., SeqId], answer: str, error: str) -> None:
        module = wat.Module()
        seq_id = start(module.build(mid=module.answer(answer)))
        result, text = mid(runtime, seq_id)[seq_id]
        assert result is None
        assert text.startswith(f"Error (mid): {error}")

    def test_bits(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        """The `bool` layout has a bit per token. A missing bias allows everything, an empty bias nothing."""
        module = wat.Module()
        silent = start(module.build())
        empty = start(module.build(mid="(call $allow (i32.const 0))" + module.answer(wat.SAMPLE)))
        seqs = [start(wat.plain()), silent, empty]
        mid(runtime, *seqs)
        with runtime.mask_rows(3) as rows:
            assert rows.shape == (3, 36)
            found = [{k for k in range(36 * 8) if rows[i, k >> 3] >> (k & 7) & 1} for i in range(3)]
        assert found == [{1, 2}, set(range(BYTE_LEVEL_SIZE)), set()]


class TestPost:
    def test_stop(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        seq_id = start(module.build(post=module.answer('{"stop":true}')))
        answer = runtime.post_pre_process(post_ops=[PostOp(seq_id, PROMPT)], pre_ops=[], freed=[])
        assert answer.post[seq_id].result == Post(True)

    def test_failure_reads_as_stop(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        seq_id = start(module.build(post=module.answer("{}")))
        answer = runtime.post_pre_process(post_ops=[PostOp(seq_id, PROMPT)], pre_ops=[], freed=[])
        assert answer.post[seq_id].result == Post(True)
        assert answer.post[seq_id].error.startswith("Error (post): field stop missing")
        assert answer.pre[seq_id].error == "Error (pre): Previous WASM Error"


class TestHost:
    def logs(self, runtime: Runtime, module: wat.Module, body: str) -> str:
        seq_id = SeqId(next(_numbers))
        req_id = instantiate(runtime, module.build(pre=body + module.answer(wat.PRE_GO)))
        entry = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[seq_id]).pre[seq_id]
        return entry.logs.replace(f"<{seq_id}>", "<self>") + entry.error

    def test_log_keeps_the_end(self, runtime: Runtime) -> None:
        module = wat.Module()
        line = "0123456789abcdef" * 1024  # 16 KiB
        logs = self.logs(runtime, module, module.log("first") + module.log(line) * 4 + module.log("last"))
        assert 48 * 1024 <= len(logs) <= 64 * 1024
        assert "first" not in logs
        assert logs.endswith("last")

    def test_log_is_lossy_utf8_and_taken_once(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        seq_id = start(module.build(prompt=module.log("é") + module.answer("{}")))
        assert runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[]).pre[seq_id].logs == ""

    def test_tokenize(self, runtime: Runtime) -> None:
        module = wat.Module()
        # "he" and " he" are single tokens, so two tokens have four bytes.
        body = f"(if (i32.ne {module.tokenize('he he')} (i32.const 8)) (then (unreachable)))"
        assert self.logs(runtime, module, body) == ""

    def test_trie_and_ids(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        body = """
          (drop (call $read_blob (call $trie) (i32.const 0x8000) (i32.const 28)))
          (if (i32.ne (i32.load (i32.const 0x8000)) (i32.const 0x558B6FD3)) (then (unreachable)))
          (if (i32.ne (i32.load (i32.const 0x8014)) (i32.const 261)) (then (unreachable)))
          (if (call $eos_token) (then (unreachable)))
          (if (call $read_blob (i32.const 7) (i32.const 0) (i32.const 0)) (then (unreachable)))"""
        prompt = "(if (i32.ne (call $self_seq_id) (i32.const 424242)) (then (unreachable)))" + module.answer("{}")
        bound = "(if (i32.eq (call $self_seq_id) (i32.const 424242)) (then (unreachable)))"
        result, error = first_pre(runtime, module.build(prompt=prompt, pre=body + bound + module.answer(wat.PRE_GO)))
        assert (result, error) == (Pre(False, 1, ()), "")

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ("(drop (call $read_blob (i32.const 20) (i32.const 0) (i32.const 0)))", "invalid blob_id"),
            ("(drop (call $read_blob (i32.const 101) (i32.const 0) (i32.const 0)))", "invalid blob_id"),
            ("(drop (call $read_blob (i32.const 100) (i32.const -1) (i32.const 9)))", "pointer out of range"),
            ("(drop (call $read_blob (i32.const 100) (i32.const 0x7ffff) (i32.const 9)))", "pointer out of range"),
            ("(call $return (i32.const 0) (i32.const -1))", "a result of 4294967295 bytes is too large"),
            ("(call $return (i32.const -1) (i32.const 9))", "pointer out of range"),
            ("(call $log (i32.const 0x7fffffff) (i32.const 5))", "pointer out of range"),
            ("(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 8)))", "fd_write with"),
            ("(drop (call $tokenize (i32.const -4) (i32.const 100)))", "pointer out of range"),
            ("(drop (call $storage_cmd (i32.const 0) (i32.const 3)))", "unexpected character"),
            ("(call $bias (i32.const 0))", "logit_ptr is empty"),
        ],
    )
    def test_wild_calls(self, runtime: Runtime, body: str, text: str) -> None:
        logs = self.logs(runtime, wat.Module(), body)
        assert "FATAL ERROR: " in logs
        assert text in logs

    def test_a_wild_bias(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        seq_id = start(module.build(mid="(call $bias (i32.const 0x7fff0))" + module.answer(wat.SAMPLE)))
        assert "pointer out of range" in mid(runtime, seq_id)[seq_id][1]

    @pytest.mark.parametrize(
        ("body", "error"),
        [("(call $stop)", "*** aici_host_stop()"), ("(call $exit (i32.const 3))", "proc_exit: 3")],
    )
    def test_stops_have_no_backtrace(self, runtime: Runtime, body: str, error: str) -> None:
        module = wat.Module()
        _, text = first_pre(runtime, module.build(pre=module.log("so long") + body))
        assert text == f"Error (pre): so long\n{error}"


class TestStorage:
    def responses(self, runtime: Runtime, *commands: str) -> tuple[str, Sequence[object]]:
        module = wat.Module()
        seq_id = SeqId(next(_numbers))
        body = "".join(module.store(command) for command in commands)
        req_id = instantiate(runtime, module.build(pre=body + module.answer(wat.PRE_GO)))
        entry = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[seq_id]).pre[seq_id]
        assert entry.error == ""
        return entry.logs, entry.storage

    def test_versions(self, runtime: Runtime) -> None:
        read = '{"ReadVar":{"name":"a"}}'

        def write(value: str, op: str, version: str = "null") -> str:
            return f'{{"WriteVar":{{"name":"a","value":"{value}","op":"{op}","when_version_is":{version}}}}}'

        commands = [read, write("aA", "Append"), write("01", "Append"), write("ff", "Set", "1"), write("", "Set", "2")]
        logs, storage = self.responses(runtime, *commands, write("00", "Set", "9"), read)
        assert logs.replace("}{", "}\n{").splitlines() == [
            '{"VariableMissing":{}}',
            '{"WriteVar":{"version":1}}',
            '{"WriteVar":{"version":2}}',
            '{"ReadVar":{"version":2,"value":"aa01"}}',
            '{"WriteVar":{"version":3}}',
            '{"ReadVar":{"version":3,"value":""}}',
            '{"ReadVar":{"version":3,"value":""}}',
        ]
        assert len(storage) == 5  # writes only, refused writes included
        assert storage[0] == {"WriteVar": {"name": "a", "value": "aA", "op": "Append", "when_version_is": None}}

    def test_a_write_with_a_version_needs_the_variable(self, runtime: Runtime) -> None:
        command = '{"WriteVar":{"name":"b","value":"00","op":"Set","when_version_is":1}}'
        assert self.responses(runtime, command)[0] == '{"VariableMissing":{}}'

    def test_forks_share_and_requests_do_not(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        append = module.store('{"WriteVar":{"name":"n","value":"00","op":"Append"}}')
        wasm = module.build(mid=append + module.answer(wat.SAMPLE))
        parent, stranger = start(wasm), start(wasm)
        child, grandchild = SeqId(next(_numbers)), SeqId(next(_numbers))

        def step(*ops: MidOp) -> list[str]:
            runtime.send_mid(ops)
            return sorted(entry.logs for entry in runtime.recv_mid().seqs.values())

        def versions(*numbers: int) -> list[str]:
            return [f'{{"WriteVar":{{"version":{n}}}}}' for n in numbers]

        assert step(MidOp(parent), MidOp(child, parent)) == versions(1, 2)
        assert step(MidOp(grandchild, child), MidOp(child)) == versions(3, 4)
        runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[parent, child])
        assert step(MidOp(grandchild)) == versions(5)  # the variables outlive the first guest
        assert step(MidOp(stranger)) == versions(1)
        runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[grandchild])

    def test_variables_have_a_limit(self) -> None:
        variables = Variables()

        def write(name: str, size: int) -> bytes:
            return variables.execute({"WriteVar": {"name": name, "value": "00" * size, "op": "Set"}})

        write("a", MAX_BYTES - 1)
        with pytest.raises(ValueError, match="bytes of variables"):
            write("b", 1)
        write("a", 5)
        assert write("b", MAX_BYTES - 7) == b'{"WriteVar":{"version":1}}'

    def test_unknown_fields_are_not_passed_on(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        """A value that JSON cannot hold twice would end the worker."""
        module = wat.Module()
        write = '{"WriteVar":{"name":"a","value":"","op":"Set","x":' + "[" * 251 + "]" * 251 + "}}"
        seq_id = start(module.build(mid=module.store(write) + module.answer(wat.SAMPLE)))
        runtime.send_mid([MidOp(seq_id)])
        entry = runtime.recv_mid().seqs[seq_id]
        assert entry.error == ""
        assert entry.storage == ({"WriteVar": {"name": "a", "value": "", "op": "Set", "when_version_is": None}},)

    @pytest.mark.parametrize(
        "command",
        ["[]", "{}", '{"ReadVar":{}}', '{"DropVar":{"name":"a"}}', '{"WriteVar":{"name":"a","value":"0","op":"Set"}}'],
    )
    def test_bad_commands(self, runtime: Runtime, command: str) -> None:
        module = wat.Module()
        _, error = first_pre(runtime, module.build(pre=module.store(command)))
        assert "invalid storage command" in error


class TestFailures:
    @pytest.mark.parametrize(
        ("body", "cause"),
        [
            (wat.TRAP, "unreachable"),
            ("(drop (i32.load (i32.const -4)))", "out of bounds memory access"),
            ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "integer divide by zero"),
            ("(call $deep)", "call stack exhausted"),
        ],
    )
    def test_traps_stick_and_hurt_nobody_else(
        self, runtime: Runtime, start: Callable[..., SeqId], body: str, cause: str
    ) -> None:
        module = wat.Module()
        bad = start(module.build(mid=module.log("before") + body, extra="(func $deep (call $deep))"))
        good = start(wat.plain())
        answers = mid(runtime, bad, good)
        assert answers[good] == (None, "")
        assert answers[bad][1].startswith("Error (mid): before\n")
        assert cause in answers[bad][1]
        assert mid(runtime, bad, good) == {bad: (None, "Error (mid): Previous WASM Error"), good: (None, "")}

    def test_memory_limit(self, runtime: Runtime) -> None:
        module = wat.Module()
        grow = "(if (i32.ne (memory.grow (i32.const {})) (i32.const {})) (then (unreachable)))"
        body = grow.format(1024 - 8, 8) + grow.format(1, -1)  # 64 MiB is fine, a page more is too much
        assert first_pre(runtime, module.build(pre=body + module.answer(wat.PRE_GO)))[1] == ""

    def test_a_module_that_fails_before_its_first_callback(self, runtime: Runtime) -> None:
        with pytest.raises(ControllerError, match=r"(?s)^Error \(setup\): .*unreachable"):
            instantiate(runtime, wat.Module().build(extra="(func $fails (unreachable)) (start $fails)"))

    def test_setup_failure_carries_the_log(self, runtime: Runtime) -> None:
        module = wat.Module()
        with pytest.raises(ControllerError, match=r"(?s)^Error \(setup\): bad regex\n.*unreachable"):
            instantiate(runtime, module.build(prompt=module.log("bad regex") + wat.TRAP))

    def test_slots_come_back(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        """Fail and free more guests than the table has slots."""
        module = wat.Module()
        bad = runtime.mk_module(module.build(create=wat.TRAP)).module_id
        for _ in range(5):
            futures = [
                runtime.instantiate(req_id=f"bad-{next(_numbers)}", prompt=[], module_id=bad, module_arg="")
                for _ in range(60)
            ]
            for future in futures:
                assert isinstance(future.exception(), ControllerError)
        assert mid(runtime, seq_id := start(wat.plain())) == {seq_id: (None, "")}

    def test_errors_keep_their_kind_and_hint(self, runtime: Runtime) -> None:
        unknown = runtime.instantiate(req_id="x", prompt=[], module_id="nope", module_arg="").exception()
        assert isinstance(unknown, NotFoundError)
        assert (unknown.message, bool(unknown.hint)) == ("tag nope not found", True)
        with pytest.raises(UsageError, match="cannot compile the module"):
            runtime.mk_module(b"no")
        with pytest.raises(UsageError, match="msg too large"):
            runtime.mk_module(bytes(8 << 20), is_admin=False)
        assert "nope" not in {tag.tag for tag in runtime.get_tags()}

    def test_a_large_module(self, runtime: Runtime, tmp_path: Path) -> None:
        wasm = padded(wat.plain(), 20 << 20)
        module_id = runtime.mk_module(wasm).module_id
        assert module_id == hashlib.sha256(wasm).hexdigest()
        (tmp_path / "large.wasm").write_bytes(wasm)
        assert runtime.mk_module(tmp_path / "large.wasm").module_id == module_id
        runtime.instantiate(req_id="large", prompt=[], module_id=module_id, module_arg="").result()
        runtime.discard("large")

    @pytest.mark.parametrize("arg", ["\ud800", {"a": 2**70}, [object()]])
    def test_arguments_that_json_cannot_hold(self, runtime: Runtime, arg: object) -> None:
        with pytest.raises(UsageError, match="not JSON"):
            runtime.instantiate(req_id="x", prompt=[], module_id="x", module_arg=arg)

    def test_commands_are_refused_as_a_whole(self, runtime: Runtime) -> None:
        with pytest.raises(AiciError, match="invalid id 4000000000"):
            runtime.post_pre_process(post_ops=[PostOp(SeqId(4_000_000_000), [])], pre_ops=[], freed=[])


class TestTime:
    """A runtime with limits of its own, so that no other test has to wait."""

    @pytest.fixture
    def runtime(self, start_runtime: Callable[..., Runtime]) -> Runtime:
        return start_runtime(max_pre_step_time_ms=20, max_step_time_ms=20, max_init_time_ms=100)

    def test_a_runaway_is_interrupted_and_the_others_answer(
        self, runtime: Runtime, start: Callable[..., SeqId]
    ) -> None:
        module = wat.Module()
        bad, good = start(module.build(mid=module.log("in") + wat.SPIN)), start(wat.plain())
        started = time.monotonic()
        text = "Worker: timeout; mid_process took more than 20 ms (--wasm-max-step-time)"
        assert mid(runtime, bad, good) == {bad: (None, text), good: (None, "")}
        assert 0.2 < time.monotonic() - started < 1.0
        assert mid(runtime, bad, good) == {bad: (None, text), good: (None, "")}

    def test_a_runaway_in_pre(self, runtime: Runtime, start: Callable[..., SeqId]) -> None:
        module = wat.Module()
        seq_id = SeqId(next(_numbers))
        req_id = instantiate(runtime, module.build(pre=wat.SPIN))
        answer = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[seq_id])
        text = "Worker: timeout; pre_process and post_process took more than 20 ms (--wasm-max-pre-step-time)"
        assert (answer.pre[seq_id].result, answer.pre[seq_id].error) == (None, text)

    def test_a_runaway_in_setup(self, runtime: Runtime) -> None:
        module = wat.Module()
        text = r"instantiate: timeout; the controller took more than 100 ms \(--wasm-max-init-time\) to start"
        with pytest.raises(ControllerError, match=text):
            instantiate(runtime, module.build(create=wat.SPIN + "(i32.const 0)"))


class TestDiscard:
    def test_a_discarded_guest_cannot_be_bound(self, runtime: Runtime) -> None:
        req_id = instantiate(runtime, wat.plain())
        runtime.discard(req_id)
        runtime.discard(req_id)
        runtime.get_tags()  # answered after `accept` has taken the discards
        with pytest.raises(AiciError, match=f"invalid req_id {req_id}"):
            runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(next(_numbers)), req_id)], freed=[])

    def test_while_it_starts(self, runtime: Runtime) -> None:
        module_id = runtime.mk_module(wat.plain()).module_id
        req_id = f"req-{next(_numbers)}"
        future = runtime.instantiate(req_id=req_id, prompt=[], module_id=module_id, module_arg="")
        runtime.discard(req_id)
        future.result()
        runtime.get_tags()  # by now `accept` has taken the discard
        with pytest.raises(AiciError, match="invalid req_id"):
            runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(next(_numbers)), req_id)], freed=[])
