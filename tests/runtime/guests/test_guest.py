"""A guest checks the module again, although the registry has: functions are called without any further check."""

import threading
from pathlib import Path

import pytest
import wasmtime

from aici_runtime.guests.guest import Guest, GuestError, GuestTimeoutError, load_module
from aici_runtime.guests.wasmtime_engine import new_engine


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ('(module (memory (export "memory") 1))', "aici_init missing"),
        ("(module)", "memory missing"),
        ('(module (memory (export "memory") 2000))', "memory minimum size"),
        ('(module (import "env" "nope" (func)) (memory (export "memory") 1))', "unknown import: `env::nope`"),
        ('(module (memory (export "memory") 1) (func (export "aici_init") (param f64)))', "aici_init is not a"),
        ('(module (memory (export "memory") 1) (func $f (unreachable)) (start $f))', "unreachable"),
    ],
)
def test_modules_that_are_no_guests(tmp_path: Path, module: str, text: str) -> None:
    with pytest.raises(GuestError) as caught:
        _guest(tmp_path, module)
    assert text in str(caught.value)


def test_memory_is_seen_as_it_is_now(tmp_path: Path) -> None:
    """Keep a view of the memory while the guest writes and grows the memory."""
    guest = _guest(
        tmp_path,
        _exporting(mid="(drop (memory.grow (i32.const 1))) (i32.store8 (i32.const 70000) (i32.const 65))"),
    )
    guest.memory.write(65533, b"abc")
    assert guest.memory.read(65533, 3) == b"abc"
    with pytest.raises(GuestError, match="pointer out of range: 0xfffe"):
        guest.memory.read(65534, 3)
    guest.call("aici_mid_process")
    assert guest.memory.read(65533, 4) == b"abc\0"
    assert guest.memory.read(70000, 1) == b"A"
    assert guest.memory.size_bytes() == 2 << 16
    with pytest.raises(GuestError, match="pointer out of range"):
        guest.memory.write((2 << 16) - 1, b"ab")
    assert guest.memory.read(2**32 - 1, 0) == b""


def test_an_interruption_that_is_too_late_stops_nothing(tmp_path: Path) -> None:
    guest = _guest(tmp_path, _exporting(mid="(loop $forever (br $forever))", pre="(loop)"))
    guest.interrupt()
    guest.call("aici_pre_process")
    trapped = threading.Event()

    def interrupt() -> None:
        while not trapped.wait(0.01):
            guest.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(GuestTimeoutError):
        guest.call("aici_mid_process")
    trapped.set()
    thread.join()
    guest.call("aici_pre_process")


def _guest(tmp_path: Path, text: str) -> Guest:
    engine = new_engine()
    code = tmp_path / "code"
    code.write_bytes(bytes(wasmtime.Module(engine, wasmtime.wat2wasm(text)).serialize()))
    module = load_module(engine, code)
    return Guest(engine=engine, linker=wasmtime.Linker(engine), module=module, memory_max_bytes=64 << 20)


def _exporting(*, mid: str = "", pre: str = "") -> str:
    return f"""(module (memory (export "memory") 1)
        (func (export "aici_init")) (func (export "aici_create") (result i32) (i32.const 1))
        (func (export "aici_init_prompt") (param i32)) (func (export "aici_pre_process") (param i32) {pre})
        (func (export "aici_mid_process") (param i32) {mid}) (func (export "aici_post_process") (param i32)))"""
