"""Modules prepared for moving guests, and moves of whole guests."""

from collections.abc import Callable
from pathlib import Path

import pytest
import wasmtime

from aici_base.errors import UsageError
from aici_runtime.guests import snapshot
from aici_runtime.guests.guest import Guest, GuestError, load_module
from aici_runtime.guests.movable import MOVABLE, global_name, prepare
from aici_runtime.guests.wasmtime_engine import new_engine

_EXPORTS = """(memory (export "memory") 1)
    (func (export "aici_init")) (func (export "aici_create") (result i32) (i32.const 1))
    (func (export "aici_init_prompt") (param i32)) (func (export "aici_mid_process") (param i32) {mid})
    (func (export "aici_pre_process") (param i32)) (func (export "aici_post_process") (param i32))"""


def module(more: str = "", mid: str = "") -> bytes:
    return bytes(wasmtime.wat2wasm(f"(module {more} {_EXPORTS.format(mid=mid)})"))


def names(wasm: bytes) -> list[str]:
    return [export.name for export in wasmtime.Module(new_engine(), wasm).exports if export.name.startswith("aici.")]


@pytest.mark.parametrize(
    ("more", "num_globals"),
    [
        ("", 0),
        ("(global (mut i32) (i32.const 1)) (global i32 (i32.const 2)) (global (mut f64) (f64.const 0.5))", 2),
        ("(global (mut i64) (i64.const -1)) (global (mut f32) (f32.const 1))", 2),
        ('(data (i32.const 8) "abc") (table 2 funcref) (elem (i32.const 0) $f $f) (func $f)', 0),
        ('(import "env" "aici_host_stop" (func)) (global (mut i32) (i32.const 300))', 1),
    ],
)
def test_modules_that_are_prepared(more: str, num_globals: int) -> None:
    assert names(prepare(module(more))) == [MOVABLE, *map(global_name, range(num_globals))]


def test_a_number_that_looks_like_an_instruction_changes_nothing() -> None:
    number = "(func (drop (i32.const 1916)))"  # as LEB128 the first two bytes of table.copy
    assert b"\xfc\x0e" in module(number)
    assert names(prepare(module(number))) == [MOVABLE]


def test_an_instruction_may_be_written_longer() -> None:
    body = b"\x00\x41\x00\x41\x00\x41\x00"
    short, longer = (body + copy + b"\x0b" for copy in (b"\xfc\x0e\x00\x00", b"\xfc\x8e\x80\x00\x80\x00\x00"))
    wasm = module("(table 2 funcref) (func (table.copy (i32.const 0) (i32.const 0) (i32.const 0)))")
    at = wasm.index(bytes([len(short)]) + short)
    patched = wasm[:at] + bytes([len(longer)]) + longer + wasm[at + 1 + len(short) :]
    section = wasm.rindex(b"\x0a", 0, at)
    patched = patched[: section + 1] + bytes([wasm[section + 1] + 3]) + patched[section + 2 :]
    wasmtime.Module.validate(new_engine(), patched)
    assert prepare(patched) == patched


@pytest.mark.parametrize(
    "more",
    [
        "(table 2 funcref) (func $f (table.set (i32.const 0) (ref.null func)))",
        "(table 2 funcref) (func $f (table.copy (i32.const 0) (i32.const 1) (i32.const 1)))",
        "(table 2 funcref) (elem func $f) (func $f)",
        '(data "passive")',
        "(func $f) (start $f)",
        "(global (mut v128) (v128.const i64x2 0 0))",
        "(global (mut funcref) (ref.null func))",
        '(import "env" "g" (global i32))',
    ],
)
def test_modules_that_stay(more: str) -> None:
    wasm = (
        module(more) if "import" not in more else bytes(wasmtime.wat2wasm(f'(module {more} (memory (export "m") 1))'))
    )
    assert prepare(wasm) == wasm


def test_nobody_else_says_that_a_module_is_prepared() -> None:
    with pytest.raises(UsageError, match=r"the export prefix aici\. is reserved for the runtime"):
        prepare(module('(func (export "aici.movable"))'))


_COUNTS = '(global $count (mut i32) (i32.const 1)) (data (i32.const 5000) "data")'
_COUNT = """(global.set $count (i32.add (global.get $count) (i32.const 1)))
    (i32.store (i32.const 8) (global.get $count)) (i32.store (i32.const 5000) (i32.const 0))
    (drop (memory.grow (i32.const 2))) (i32.store8 (i32.const 196000) (i32.const 65))"""
_GROWS = '(func (export "grow") (param i32) (drop (memory.grow (i32.const 1))))'
_TRAPS = '(func (export "trap") (param i32) unreachable)'


def starter(folder: Path, wasm: bytes) -> Callable[[], Guest]:
    """Return a function that instantiates the prepared module."""
    engine, code = new_engine(), folder / "code"
    code.write_bytes(bytes(wasmtime.Module(engine, prepare(wasm)).serialize()))

    def start() -> Guest:
        return Guest(
            engine=engine,
            linker=wasmtime.Linker(engine),
            module=load_module(engine, code),
            memory_max_bytes=64 << 20,
            max_table_elements=10,
        )

    return start


def test_what_moves_is_the_whole_guest(tmp_path: Path) -> None:
    """Grown memory, globals, and zeroed memory with other contents in a new instance."""
    start = starter(tmp_path, module(_COUNTS, _COUNT))
    old, new = start(), start()
    old.call("aici_mid_process")
    pages, values = {page: bytes(old.memory.page(page)) for page in old.memory.pages()}, old.globals()
    size_bytes = old.memory.size_bytes()
    old.call("aici_mid_process")
    new.take_over(size_bytes, pages, values)
    assert new.memory.size_bytes() == 3 << 16
    assert (new.memory.read(8, 4), new.memory.read(5000, 4), new.memory.read(196000, 1)) == (
        b"\2\0\0\0",
        bytes(4),
        b"A",
    )
    new.call("aici_mid_process")
    assert new.memory.read(8, 4) == old.memory.read(8, 4) == b"\3\0\0\0"
    assert new.globals() == old.globals()


def state(guest: Guest) -> tuple[list[bytes], bytes]:
    return guest.globals(), guest.memory.read(0, guest.memory.size_bytes())


def test_an_emptied_instance_becomes_the_guest_of_a_snapshot(tmp_path: Path) -> None:
    """The instance keeps nothing of the guest that was there, or it is refused."""
    start = starter(tmp_path, module(f"{_COUNTS} {_GROWS} {_TRAPS}", _COUNT))
    first, grown, failed, used = (start() for _ in range(4))
    first.call("aici_mid_process")
    expected = state(first)
    with (tmp_path / "snapshot").open("w+b") as file:
        snapshot.write(first, file.fileno())
        for guest in (grown, failed, used):
            snapshot.start_from(guest, file.fileno())
            guest.memory.write(100, b"secret")
            guest.memory.write(5000, b"secret")
            guest.set_globals([b"\7\0\0\0"])
        assert used.empty()
        assert state(used)[1] == bytes(used.memory.size_bytes())
        assert not used.is_initialized
        snapshot.start_from(used, file.fileno())
        assert used.is_initialized
        assert state(used) == expected
        for guest in (first, used):
            guest.call("aici_mid_process")
        assert state(used) == state(first)

        assert grown.find("grow", "i", "")
        grown.call("grow")
        assert not grown.empty()
        assert not first.empty()  # it has not started from a snapshot

        assert failed.find("trap", "i", "")
        with pytest.raises(GuestError):
            failed.call("trap")
        assert not failed.empty()
        used.end()
        assert not used.empty()
