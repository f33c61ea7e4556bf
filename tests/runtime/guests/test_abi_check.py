"""The messages of `aici ctrl build` about modules that are no controllers."""

import pytest
import wasmtime

from aici_runtime.abi import EXPORTS_V1, IMPORTS_V1, IMPORTS_V2, OPTIONAL_EXPORTS
from aici_runtime.guests.abi_check import check_abi
from tests.support.guests import build_test_guest

_TYPES = {"i": "i32", "I": "i64"}


def _module(changes: dict[str, str], *, imports: str = "") -> bytes:
    """Return a controller that traps everywhere. `changes` maps the name of an export to WAT; empty WAT removes the
    export."""
    parts = {"memory": '(memory (export "memory") 1)'}
    for name, (params, results) in {**EXPORTS_V1, **OPTIONAL_EXPORTS}.items():
        signature = "".join(f" (param {_TYPES[p]})" for p in params) + "".join(
            f" (result {_TYPES[r]})" for r in results
        )
        parts[name] = f'(func (export "{name}"){signature} unreachable)'
    parts |= changes
    return bytes(wasmtime.wat2wasm(f"(module {imports} {' '.join(parts.values())})"))


@pytest.mark.parametrize("name", ["anything", "garbage", "vars"])
def test_controllers(name: str) -> None:
    assert check_abi(build_test_guest(name).read_bytes()) == []


@pytest.mark.parametrize("offered", [IMPORTS_V1, IMPORTS_V1 | IMPORTS_V2])
def test_everything_that_the_host_offers_may_be_imported(offered: dict[str, tuple[str, str]]) -> None:
    imports = [
        f'(import "env" "{name}" (func{"".join(f" (param {_TYPES[p]})" for p in params)}'
        f"{''.join(f' (result {_TYPES[r]})' for r in results)}))"
        for name, (params, results) in offered.items()
    ]
    assert check_abi(_module({}, imports=" ".join(imports))) == []


@pytest.mark.parametrize(
    ("changes", "imports", "says"),
    [
        ({"aici_create": ""}, "", ["does not export aici_create"]),
        ({"aici_pre_process": "", "aici_post_process": ""}, "", []),
        ({"aici_pre_process": ""}, "", ["does not export aici_pre_process"]),
        ({"aici_post_process": ""}, "", ["does not export aici_post_process"]),
        (
            {"aici_mid_process": '(func (export "aici_midprocess") (param i32))'},
            "",
            ["does not export aici_mid_process (but exports aici_midprocess)"],
        ),
        (
            {"aici_create": '(func (export "aici_create") (result i64) unreachable)'},
            "",
            ["exports aici_create as () -> (i64); it must be () -> (i32)"],
        ),
        (
            {"aici_init": '(global (export "aici_init") i32 (i32.const 0))'},
            "",
            ["exports aici_init as no function; it must be () -> ()"],
        ),
        (
            {"aici_panic": '(func (export "aici_panic") (param f32))'},
            "",
            ["exports aici_panic as (another type) -> ()"],
        ),
        ({"memory": "(memory 1)"}, "", ["does not export its memory (as `memory`)"]),
        ({"memory": '(memory 1) (func (export "memory"))'}, "", ["exports `memory`, but not as a memory"]),
        (
            {"memory": '(memory (export "memory") 1025)'},
            "",
            ["starts with 1025 pages of memory; the limit is 1024 (64 MiB)"],
        ),
        ({"memory": '(memory (export "memory") 1024)'}, "", []),
        ({"aici_panic": ""}, "", []),
        (
            {},
            '(import "env" "aici_host_tokenise" (func (param i32 i32) (result i32)))',
            ["imports env.aici_host_tokenise, which the runtime does not offer (did you mean env.aici_host_tokenize?)"],
        ),
        ({}, '(import "env" "memory" (memory 1))', ["imports env.memory, which the runtime does not offer"]),
        (
            {},
            '(import "env" "aici_host_eos_token" (func (param i32) (result i32)))',
            ["imports env.aici_host_eos_token as (i32) -> (i32); the runtime offers () -> (i32)"],
        ),
        (
            {},
            '(import "wasi_snapshot_preview1" "fd_write" (func (param i32) (result i32)))',
            ["imports wasi_snapshot_preview1.fd_write as (i32) -> (i32); the runtime offers (i32, i32, i32, i32)"],
        ),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, str], imports: str, says: list[str]) -> None:
    found = check_abi(_module(changes, imports=imports) if "memory" not in imports else _imported_memory(imports))
    assert len(found) == len(says), found
    for line, expected in zip(found, says, strict=True):
        assert line.startswith(expected)


def _imported_memory(imports: str) -> bytes:
    return _module({"memory": '(export "memory" (memory 0))'}, imports=imports)


def test_what_is_no_module() -> None:
    [line] = check_abi(b"\0asm nonsense")
    assert "not a WebAssembly module" in line
    [line] = check_abi(bytes(wasmtime.wat2wasm("(module (memory i64 1))")))
    assert "not a WebAssembly module that aici can run" in line
