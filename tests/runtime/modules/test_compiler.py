"""The compiler process: its limits, and what it says of modules that use what is switched off."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from aici_base.errors import UnavailableError, UsageError
from aici_runtime.modules.compile_failures import CompileFailures
from aici_runtime.modules.compiler import compile_module
from tests.runtime.support import wat
from tests.runtime.support.wasm_maker import BOMBS, ifs_that_join_locals

SLOW = ifs_that_join_locals(4_000, 100)


def refusal_of(wasm: bytes, folder: Path, **limits: float) -> str:
    (folder / "wasm").write_bytes(wasm)
    with pytest.raises(UsageError) as refused:
        compile_module(folder / "wasm", folder / "code", **limits)  # type: ignore[arg-type]
    assert not (folder / "code").exists()
    assert refused.value.hint
    return refused.value.message


def test_a_controller_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "wasm").write_bytes(wat.Module().build())
    compile_module(tmp_path / "wasm", tmp_path / "code")
    assert (tmp_path / "code").stat().st_size > 1_000


def test_the_module_that_cost_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    """990,000 functions without code cost 56 s and 5.2 GB, and were 210 MB of code."""
    message = refusal_of(BOMBS["functions without code"](3_960_000), tmp_path)
    assert message == "the module has 990000 functions: at most 50000 are compiled"


def test_time(tmp_path: Path) -> None:
    assert refusal_of(SLOW, tmp_path, timeout_s=0.5) == "compiling the module took more than 0.5 s"


def test_processor_time(tmp_path: Path) -> None:
    (tmp_path / "wasm").write_bytes(SLOW)
    assert compiler_status(tmp_path, processor_s=1, memory_bytes=2 << 30) == -signal.SIGXCPU


def test_memory(tmp_path: Path) -> None:
    wasm = BOMBS["functions without code"](199_000)
    assert refusal_of(wasm, tmp_path, memory_bytes=320 << 20) == (
        "compiling the module takes more than 320 MiB of memory"
    )


def compiler_status(folder: Path, *, processor_s: int, memory_bytes: int) -> int:
    arguments = [str(folder / "wasm"), str(folder / "code"), str(processor_s), str(memory_bytes)]
    command = [sys.executable, "-m", "aici_runtime.modules.compiler_process", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            return child.wait(120)
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("text", "proposal"),
    [
        ("(module (type (struct (field i32))))", "garbage collection"),
        ("(module (func (param anyref)))", "garbage collection"),
        ("(module (type $f (func)) (func (param (ref $f)) (call_ref $f (local.get 0))))", "typed function references"),
        ("(module (memory 1 1 shared))", "threads"),
        ("(module (memory 1) (func (drop (i32.atomic.load (i32.const 0)))))", "threads"),
        ("(module (memory i64 1))", "memory64"),
        ("(module (memory 1) (memory 1))", "multiple memories"),
        ("(module (func return_call 0))", "tail calls"),
        ("(module (memory 1 (pagesize 1)))", "custom page sizes"),
        ("(module (func (result v128) (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0))))",
         "relaxed SIMD"),
        ("(module (type $f (func)) (type $c (cont $f)))", "stack switching"),
        ("(module (func (result i64 i64) (i64.add128 (i64.const 1) (i64.const 1) (i64.const 1) (i64.const 1))))",
         "wide arithmetic"),
    ],
)  # fmt: skip
def test_proposals_that_are_off_are_named(tmp_path: Path, text: str, proposal: str) -> None:
    message = refusal_of(bytes(wasmtime.wat2wasm(text)), tmp_path)
    assert message == (f"cannot compile the module: the module uses {proposal}: a proposal, which is switched off here")


def test_several_proposals(tmp_path: Path) -> None:
    message = refusal_of(bytes(wasmtime.wat2wasm("(module (memory i64 1) (func return_call 0))")), tmp_path)
    assert "uses tail calls and memory64: proposals, which are switched off" in message


def test_exceptions_are_on(tmp_path: Path) -> None:
    """MicroPython's guest raises errors with them."""
    assert "is not a controller" in refusal_of(bytes(wasmtime.wat2wasm("(module (tag) (func throw 0))")), tmp_path)


def test_a_compiler_that_cannot_work_is_no_fault_of_the_module(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot compile the module"):
        compile_module(tmp_path / "missing", tmp_path / "code")


class TestFailures:
    def test_they_are_remembered_for_an_hour(self) -> None:
        now = 0.0
        failures = CompileFailures(clock=lambda: now)
        failures.check("a")
        failures.note("a", UsageError("no", hint="yes"))
        failures.check("b")
        now = 3_600.0
        with pytest.raises(UsageError, match="no") as refused:
            failures.check("a")
        assert refused.value.hint == "yes"
        now = 3_601.0
        failures.check("a")

    def test_the_oldest_of_a_thousand_is_forgotten(self) -> None:
        failures = CompileFailures()
        for number in range(1_001):
            failures.note(str(number), UsageError(str(number)))
        failures.check("0")
        for number in (1, 1_000):
            with pytest.raises(UsageError, match=f"^{number}$"):
                failures.check(str(number))
