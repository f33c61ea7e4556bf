"""Templates: a guest forked from a template differs from a fresh guest in nothing but speed."""

import base64
import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socketpair

import pytest

from aici_base.errors import ControllerError, NotFoundError, UnavailableError
from aici_base.ids import SeqId, TokenId
from aici_runtime.channels.envelope import Auth
from aici_runtime.client import Runtime
from aici_runtime.guests.wasmtime_engine import cache_key
from aici_runtime.modules.registry import Registry
from aici_runtime.supervision.templates import Template, TemplateKey, Templates
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import wat
from tests.runtime.support.raw import RawEngine
from tests.support.processes import command, descendants, wait_until

PATIENCE_S = 10.0
_numbers = itertools.count(1)

LOOKS_AT_PROMPT = wat.ECHO
ADMIN = Auth("root", is_admin=True)


def counting(create: str = "", prompt: str = "", extra: str = "") -> bytes:
    """A guest that logs its creation and counts steps in memory."""
    module = wat.Module()
    step = module.log("step ") + "(global.set $steps (i32.add (global.get $steps) (i32.const 1)))"
    return module.build(
        create=module.log("created ") + create + "(i32.const 7)",
        prompt=prompt + module.answer("{}"),
        mid=step + "(call $allow (i32.shl (i32.const 1) (global.get $steps)))" + module.answer(wat.SAMPLE),
        extra=extra,
    )


def begin(runtime: Runtime, wasm: bytes, arg: str = "", prompt: tuple[int, ...] = (1,)) -> SeqId:
    number = next(_numbers)
    module_id = runtime.mk_module(wasm).module_id
    tokens = [TokenId(token) for token in prompt]
    runtime.instantiate(req_id=f"r{number}", prompt=tokens, module_id=module_id, module_arg=arg).result(PATIENCE_S)
    return SeqId(number)


def logs_of(runtime: Runtime, seq_id: SeqId) -> str:
    """Return the log of the start and of the first step."""
    bound = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, f"r{seq_id}")], freed=[]).pre[seq_id]
    runtime.send_mid([MidOp(seq_id)])
    step = runtime.recv_mid().seqs[seq_id]
    assert (bound.error, step.error) == ("", "")
    return bound.logs + step.logs


def named(runtime: Runtime, name: str) -> set[int]:
    return {pid for pid in descendants(runtime.pid) if command(pid) == name}


def templates(runtime: Runtime) -> set[int]:
    """Return the templates, without the fork ready in each."""
    both = named(runtime, "aicirt-template")
    return {pid for pid in both if parent_of(pid) not in both}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def not_again() -> Template:
    raise AssertionError("it is there, or was found to be of no use")


class TestStarts:
    @pytest.mark.parametrize("prompt", [LOOKS_AT_PROMPT, ""], ids=["looks at its prompt", "does not"])
    def test_from_the_second_on_they_are_forks_of_one(self, start_runtime: Callable[..., Runtime], prompt: str) -> None:
        runtime = start_runtime()
        wasm = counting(prompt=prompt)
        logs = []
        for number in range(4):
            before = named(runtime, "aicirt-seq")
            seq_id = begin(runtime, wasm, prompt=(number, 7))
            (worker,) = named(runtime, "aicirt-seq") - before
            assert ({parent_of(worker)} == templates(runtime)) == (number > 0)
            logs.append(logs_of(runtime, seq_id))
        seen = [f'{{"prompt":[{number},7]}}' if prompt else "" for number in range(4)]
        assert logs == [f"created {text}step " for text in seen]

    def test_each_has_a_memory_of_its_own(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime()
        wasm = counting()
        ids = [begin(runtime, wasm) for _ in range(3)]
        pre_ops = [PreOp(seq_id, f"r{seq_id}") for seq_id in ids]
        runtime.post_pre_process(post_ops=[], pre_ops=pre_ops, freed=[])
        for steps, seq_id in enumerate(ids, 1):
            for _ in range(steps):
                runtime.send_mid([MidOp(seq_id)])
                assert runtime.recv_mid().seqs[seq_id].error == ""
        runtime.send_mid([MidOp(seq_id) for seq_id in ids])
        assert runtime.recv_mid().seqs[ids[0]].error == ""
        masks = [int.from_bytes(bytes(row), "little") for row in runtime.mask_rows(3).tolist()]
        assert masks == [1 << steps + 1 for steps in (1, 2, 3)]

    def test_argument_and_module_must_be_the_same(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime()
        wasm, other = counting(prompt="(call $echo (call $module_arg))"), counting()
        for module, arg in ((wasm, "a"), (wasm, "b"), (other, "a")):
            begin(runtime, module, arg)
        assert templates(runtime) == set()
        assert logs_of(runtime, begin(runtime, wasm, "b")) == "created bstep "
        assert len(templates(runtime)) == 1

    def test_many_at_once(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime()
        wasm = counting(prompt=LOOKS_AT_PROMPT)
        with ThreadPoolExecutor(16) as pool:
            ids = list(pool.map(lambda number: begin(runtime, wasm, prompt=(number,)), range(40)))
        assert len(templates(runtime)) == 1
        for number, seq_id in enumerate(ids):
            assert logs_of(runtime, seq_id) == f'created {{"prompt":[{number}]}}step '

    def test_a_prompt_may_be_the_end_of_a_fork(self, start_runtime: Callable[..., Runtime]) -> None:
        """The init limit holds for the fork, and the template goes on."""
        runtime = start_runtime(max_init_time_ms=300)
        longer = "(call $read_blob (call $process_arg) (i32.const 0) (i32.const 0))"
        wasm = counting(prompt=f"(if (i32.gt_u {longer} (i32.const 20)) (then {wat.SPIN}))")
        begin(runtime, wasm)
        begin(runtime, wasm)
        before = templates(runtime)
        with pytest.raises(ControllerError, match="instantiate: timeout"):
            begin(runtime, wasm, prompt=(1, 2, 3, 4, 5, 6))
        begin(runtime, wasm)
        assert templates(runtime) == before != set()
        assert wait_until(lambda: len(named(runtime, "aicirt-seq")) == 3, PATIENCE_S)


class TestLaterProtocol:
    @pytest.fixture
    def raw(self, byte_level: Path, cache_dir: Path) -> Iterator[RawEngine]:
        engine = RawEngine(byte_level, cache_dir, "--proto=v2", "--wasm-max-step-time=5000")
        yield engine
        engine.close()

    @staticmethod
    def upload(raw: RawEngine, wasm: bytes) -> str:
        return str(raw.side(op="mk_module", binary=base64.b64encode(wasm).decode())["data"]["module_id"])

    def test_the_log_of_the_start_comes_with_each_reply(self, raw: RawEngine) -> None:
        module_id = self.upload(raw, counting(prompt=LOOKS_AT_PROMPT))
        for number in range(4):
            reply = raw.side(op="instantiate", req_id=f"r{number}", prompt=[number], module_id=module_id)["data"]
            assert (reply["logs"], reply["error"]) == (f'created {{"prompt":[{number}]}}', "")

    def test_a_fork_that_fails_says_so_in_each_step_and_the_template_goes_on(self, raw: RawEngine) -> None:
        longer = "(call $read_blob (call $process_arg) (i32.const 0) (i32.const 0))"
        wasm = counting(prompt=f"(if (i32.gt_u {longer} (i32.const 20)) (then {wat.TRAP}))")
        request = {"op": "instantiate", "module_id": self.upload(raw, wasm)}
        for req_id in ("a", "b"):
            assert raw.side(**request, req_id=req_id, prompt=[1])["data"]["error"] == ""
        before = {pid for pid in descendants(raw.process.pid) if command(pid) == "aicirt-template"}
        reply = raw.side(**request, req_id="bad", prompt=[1, 2, 3, 4, 5, 6])
        assert reply["type"] == "ok"
        assert reply["data"]["result"] is None
        assert reply["data"]["error"].startswith("Error (setup): created ")
        op = {"id": 1, "req_id": "bad", "backtrack": 0, "tokens": [], "sampled": None}
        step = raw.call(op="mid_process", ops=[op], freed=[])["data"]["seqs"]["1"]
        assert "Previous WASM Error" in step["error"]
        assert raw.side(**request, req_id="good", prompt=[1])["data"]["error"] == ""
        after = {pid for pid in descendants(raw.process.pid) if command(pid) == "aicirt-template"}
        assert before & after  # the process of the template itself


class TestNone:
    def test_a_module_may_refuse(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime()
        wasm = counting(extra='(global (export "aici_no_template") i32 (i32.const 0))')
        for _ in range(3):
            begin(runtime, wasm)
        assert templates(runtime) == set()

    def test_the_runtime_may_be_told_to_keep_none(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime(extra_args=("--templates=0",))
        wasm = counting()
        for _ in range(3):
            begin(runtime, wasm)
        assert templates(runtime) == set()

    def test_a_guest_that_takes_more_memory_than_all_may(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime(extra_args=("--template-memory=1",))
        wasm = counting(create="(drop (memory.grow (i32.const 16)))")
        for _ in range(3):
            begin(runtime, wasm)
        assert templates(runtime) == set()

    def test_a_guest_that_does_not_come_up(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime()
        module = wat.Module()
        wasm = module.build(create=module.log("no ") + wat.TRAP)
        for _ in range(3):
            with pytest.raises(ControllerError, match="no "):
                begin(runtime, wasm)
        assert templates(runtime) == set()


class TestEnds:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
    def test_without_its_template_a_guest_starts_afresh(
        self, start_runtime: Callable[..., Runtime], number: signal.Signals
    ) -> None:
        runtime = start_runtime(max_init_time_ms=1000)
        wasm = counting(prompt=LOOKS_AT_PROMPT)
        begin(runtime, wasm)
        older = begin(runtime, wasm)
        assert wait_until(lambda: len(named(runtime, "aicirt-template")) == 2, PATIENCE_S)
        (template,) = templates(runtime)
        (ready,) = named(runtime, "aicirt-template") - {template}
        for pid in {signal.SIGKILL: [template], signal.SIGSTOP: [template, ready]}[number]:
            os.kill(pid, number)
        if number == signal.SIGKILL:  # its end ends the fork, too
            assert wait_until(lambda: named(runtime, "aicirt-template") == set(), PATIENCE_S)
        assert logs_of(runtime, begin(runtime, wasm, prompt=(5,))) == 'created {"prompt":[5]}step '
        assert wait_until(lambda: named(runtime, "aicirt-template") == set(), PATIENCE_S)
        assert (
            logs_of(runtime, older) == 'created {"prompt":[1]}step '
        )  # the running guest does not depend on the template
        begin(runtime, wasm)
        assert len(templates(runtime)) == 1

    def test_with_the_fork_that_it_has_ready(self, start_runtime: Callable[..., Runtime]) -> None:
        """Otherwise the template would fork for ever where no fork can live."""
        runtime = start_runtime()
        wasm = counting(prompt=LOOKS_AT_PROMPT)
        for _ in range(2):
            begin(runtime, wasm)
        assert wait_until(lambda: len(named(runtime, "aicirt-template")) == 2, PATIENCE_S)
        (ready,) = named(runtime, "aicirt-template") - templates(runtime)
        os.kill(ready, signal.SIGKILL)
        assert wait_until(lambda: named(runtime, "aicirt-template") == set(), PATIENCE_S)
        assert logs_of(runtime, begin(runtime, wasm, prompt=(5,))) == 'created {"prompt":[5]}step '

    def test_those_used_least_go_first(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime(extra_args=("--templates=2",))
        wasm = counting()
        kept = {}
        for arg in "abc":
            before = templates(runtime)
            begin(runtime, wasm, arg)
            begin(runtime, wasm, arg)
            assert wait_until(lambda: len(templates(runtime) - before) == 1, PATIENCE_S)  # noqa: B023
            (kept[arg],) = templates(runtime) - before
            begin(runtime, wasm, "a")
        assert wait_until(lambda: templates(runtime) == {kept["a"], kept["c"]}, PATIENCE_S)

    def test_with_the_module(self, start_runtime: Callable[..., Runtime], cache_dir: Path) -> None:
        runtime = start_runtime()
        wasm = counting(create="(nop)")
        begin(runtime, wasm)
        begin(runtime, wasm)
        module_id = runtime.mk_module(wasm).module_id
        Registry(cache_dir / "modules", cache_key=cache_key()).remove(module_id, ADMIN)
        with pytest.raises(NotFoundError):
            runtime.instantiate(req_id="gone", prompt=[], module_id=module_id, module_arg="").result(PATIENCE_S)
        assert wait_until(lambda: named(runtime, "aicirt-template") == set(), PATIENCE_S)

    def test_with_the_side_process(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime()
        wasm = counting(prompt=LOOKS_AT_PROMPT)
        begin(runtime, wasm)
        seq_id = begin(runtime, wasm)
        (side,) = named(runtime, "aicirt-side")
        os.kill(side, signal.SIGKILL)
        assert wait_until(lambda: named(runtime, "aicirt-template") == set(), PATIENCE_S)
        assert logs_of(runtime, seq_id) == 'created {"prompt":[1]}step '

    def test_with_the_side_process_while_it_is_made(self, start_runtime: Callable[..., Runtime]) -> None:
        runtime = start_runtime(max_init_time_ms=60_000)
        module_id = runtime.mk_module(wat.Module().build(create=wat.SPIN + "(i32.const 0)")).module_id
        endless = [runtime.instantiate(req_id=f"r{n}", prompt=[], module_id=module_id, module_arg="") for n in range(2)]
        assert wait_until(lambda: len(templates(runtime)) == 1, PATIENCE_S)
        (side,) = named(runtime, "aicirt-side")
        os.kill(side, signal.SIGKILL)
        for future in endless:
            assert isinstance(future.exception(PATIENCE_S), UnavailableError)
        assert wait_until(lambda: named(runtime, "aicirt-template") == set(), PATIENCE_S)


class TestKeeping:
    """The choice of templates to keep, without a runtime."""

    @pytest.fixture
    def make(self) -> Iterator[Callable[..., Template]]:
        made: list[Template] = []

        def make(memory_bytes: int = 0) -> Template:
            ours, theirs = socketpair()
            theirs.close()
            sleeper = subprocess.Popen(["sleep", "1000"])
            made.append(Template(ours, os.pidfd_open(sleeper.pid), memory_bytes))
            sleepers.append(sleeper)
            return made[-1]

        sleepers: list[subprocess.Popen[bytes]] = []
        yield make
        for template, sleeper in zip(made, sleepers, strict=True):
            template.end()
            assert sleeper.wait(PATIENCE_S) == -signal.SIGKILL

    def test_a_pair_must_have_been_seen(self, make: Callable[..., Template]) -> None:
        kept = Templates(limit=2, memory_max_bytes=100)
        pair = TemplateKey.of("module", "arg")
        assert kept.find(pair, make) is None
        first = kept.find(pair, make)
        assert first is not None
        assert kept.find(pair, make) is first
        kept.drop(pair, first)
        second = kept.find(pair, make)
        assert second not in (None, first)
        kept.drop(pair, first)
        assert kept.find(pair, make) is second

    def test_memory_is_bounded(self, make: Callable[..., Template]) -> None:
        kept = Templates(limit=10, memory_max_bytes=100)
        pairs = [TemplateKey.of("module", str(number)) for number in range(3)]
        for pair in pairs:
            kept.find(pair, make)
            assert kept.find(pair, lambda: make(40)) is not None
        assert kept.find(pairs[0], not_again) is None
        large = TemplateKey.of("large", "")
        kept.find(large, make)
        for _ in range(2):
            assert kept.find(large, lambda: make(101)) is None
        assert kept.find(pairs[2], not_again) is not None

    def test_one_makes_it_and_the_others_wait(self, make: Callable[..., Template]) -> None:
        kept = Templates(limit=2, memory_max_bytes=100)
        pair = TemplateKey.of("module", "arg")
        kept.find(pair, make)
        all_there = threading.Barrier(8)

        def find(_: int) -> Template | None:
            all_there.wait(PATIENCE_S)
            return kept.find(pair, make)

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(find, range(8)))) == 1

    def test_what_could_not_be_made_counts_as_never_seen(self, make: Callable[..., Template]) -> None:
        kept = Templates(limit=2, memory_max_bytes=100)
        pair = TemplateKey.of("module", "arg")
        kept.find(pair, make)
        assert kept.find(pair, lambda: None) is None
        assert kept.find(pair, not_again) is None
        assert kept.find(pair, make) is not None

    def test_what_is_refused_is_not_tried_again(self, make: Callable[..., Template]) -> None:
        kept = Templates(limit=2, memory_max_bytes=100)
        pair = TemplateKey.of("module", "arg")
        kept.find(pair, make)
        kept.refuse(pair)
        for _ in range(3):
            assert kept.find(pair, not_again) is None

    def test_a_module_removed_while_a_template_is_made(self, make: Callable[..., Template]) -> None:
        kept = Templates(limit=2, memory_max_bytes=100)
        first, second = TemplateKey.of("first", ""), TemplateKey.of("second", "")
        for pair in (first, second):
            kept.find(pair, make)
        kept.find(first, make)

        def make_slowly() -> Template:
            kept.drop_modules(lambda module_id: module_id == "first")
            return make()

        assert kept.find(second, make_slowly) is not None
        assert kept.find(first, not_again) is None
