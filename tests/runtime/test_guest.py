"""A guest looks at its module itself, though the registry has: its functions are called without any check."""

from pathlib import Path

import pytest
import wasmtime

from aici_runtime.guest import Guest, GuestError, load_module
from aici_runtime.wasm import new_engine


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
    engine = new_engine()
    code = tmp_path / "code"
    code.write_bytes(bytes(wasmtime.Module(engine, wasmtime.wat2wasm(module)).serialize()))
    with pytest.raises(GuestError) as caught:
        Guest(
            engine=engine,
            linker=wasmtime.Linker(engine),
            module=load_module(engine, code),
            memory_max_bytes=64 << 20,
        )
    assert text in str(caught.value)
