"""Snapshots: a guest that starts from a snapshot differs from a fresh guest in nothing but speed."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aici_base.ids import SeqId, TokenId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import wat
from tests.support.processes import command, descendants, wait_until

PATIENCE_S = 10.0
_numbers = itertools.count(1)

SIZE_OF_TRIE = "(call $read_blob (call $trie) (i32.const 0) (i32.const 0))"


def reader(also: str = "", *, create: str = "", extra: str = "") -> bytes:
    """A guest that reads the vocabulary ahead, does `also` there, and logs whether it was read ahead, and its argument.

    $steps counts how often the vocabulary was read; the log says `ahead` if aici_create finds the vocabulary read.
    """
    module = wat.Module()
    read = f"""(drop (memory.grow (i32.const 3))) (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
      (i32.store (i32.const 0x90000) {SIZE_OF_TRIE})"""
    created = f"""(if (global.get $steps) (then {module.log("ahead ")}) (else {module.log("late ")} (call $read)))
      (if (i32.ne (i32.load (i32.const 0x90000)) {SIZE_OF_TRIE}) (then unreachable))
      (if (i32.ne (global.get $steps) (i32.const 1)) (then unreachable))
      (if (i32.load (i32.const 0x90004)) (then unreachable))
      (i32.store (i32.const 0x90004) (i32.const 1))
      (call $echo (call $module_arg))"""
    return module.build(
        create=created + create + "(i32.const 7)",
        prompt=wat.ECHO + module.answer("{}"),
        mid="(call $allow (i32.const 6))" + module.answer(wat.SAMPLE),
        extra=f'(func $read {read}) (func (export "aici_read_vocabulary") {also} (call $read)) {extra}',
    )


def start(runtime: Runtime, wasm: bytes, arg: str = "", prompt: int = 1) -> str:
    """Start a guest and return its log up to the first mask."""
    number = next(_numbers)
    seq_id = SeqId(number)
    module_id = runtime.mk_module(wasm).module_id
    tokens = [TokenId(prompt)]
    runtime.instantiate(req_id=f"r{number}", prompt=tokens, module_id=module_id, module_arg=arg).result(PATIENCE_S)
    bound = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, f"r{number}")], freed=[]).pre[seq_id]
    runtime.send_mid([MidOp(seq_id)])
    step = runtime.recv_mid().seqs[seq_id]
    assert (bound.error, step.error) == ("", "")
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[seq_id])
    return bound.logs + step.logs


def snapshots(cache_dir: Path, runtime: Runtime, wasm: bytes) -> list[Path]:
    module_id = runtime.mk_module(wasm).module_id
    return list((cache_dir / "modules").glob(f"{module_id}-*.memory"))


def has_templates(runtime: Runtime, number: int) -> bool:
    """Whether the runtime comes to have this number of templates: a template forks after it has answered."""
    return wait_until(
        lambda: sum(command(pid) == "aicirt-template" for pid in descendants(runtime.pid)) == number, PATIENCE_S
    )


@pytest.mark.parametrize("placement", ["process", "pool"])
def test_guests_start_with_the_vocabulary_read(
    start_runtime: Callable[..., Runtime], cache_dir: Path, placement: str
) -> None:
    """Fresh, from the template of the module, and from the template of the argument; in two runtimes."""
    wasm = reader(extra=f'(global (export "{placement}") i32 (i32.const 0))')
    for _ in range(2):
        runtime = start_runtime(extra_args=(f"--placement={placement}",))
        for arg, prompt in (("a", 1), ("b", 2), ("c", 3), ("c", 4), ("d", 5), ("c", 6), ("", 7)):
            assert start(runtime, wasm, arg, prompt) == f'ahead {arg}{{"prompt":[{prompt}]}}'
        assert has_templates(runtime, 4 if placement == "process" else 0)  # of the module and of "c", each with a fork
        (found,) = snapshots(cache_dir, runtime, wasm)
        assert found.stat().st_nlink == 1
        runtime.close()


def test_snapshots_are_made_before_the_first_request(start_runtime: Callable[..., Runtime], cache_dir: Path) -> None:
    """After an upload, and for tagged modules when a runtime starts."""
    runtime = start_runtime()
    wasm = reader(extra='(global (export "early") i32 (i32.const 0))')
    module_id = runtime.mk_module(wasm).module_id
    assert wait_until(lambda: bool(snapshots(cache_dir, runtime, wasm)), PATIENCE_S)
    runtime.set_tags(module_id, ["early"])
    (found,) = snapshots(cache_dir, runtime, wasm)
    runtime.close()
    found.unlink()
    start_runtime()
    assert wait_until(found.is_file, PATIENCE_S)


def test_a_guest_does_not_write_to_the_snapshot(start_runtime: Callable[..., Runtime], cache_dir: Path) -> None:
    runtime = start_runtime()
    wasm = reader(create="(memory.fill (i32.const 0x8000) (i32.const 1) (i32.const 0x8000))")
    start(runtime, wasm)
    (found,) = snapshots(cache_dir, runtime, wasm)
    before = found.read_bytes()
    assert start(runtime, wasm).startswith("ahead")
    assert found.read_bytes() == before


FAILS = [
    "(call $stop)",
    wat.TRAP,
    "(drop (call $storage_cmd (i32.const 0) (i32.const 1)))",
    "(if (i32.eq (memory.grow (i32.const 1020)) (i32.const -1)) (then unreachable))",
]
READS = [
    "(drop (call $read_blob (i32.const 1) (i32.const 0) (i32.const 0)))",
    "(drop (call $read_blob (i32.const 4) (i32.const 0) (i32.const 0)))",
    "(drop (call $module_arg))",
    "(drop (call $self_seq_id))",
    "(drop (call $tokenize (i32.const 0) (i32.const 1)))",
    "(drop (call $random_get (i32.const 0) (i32.const 8)))",
    "(drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 0)))",
    "(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))",
]


@pytest.mark.parametrize("also", FAILS + READS)
def test_what_reads_anything_else_has_no_snapshot(
    start_runtime: Callable[..., Runtime], cache_dir: Path, also: str
) -> None:
    """From the second request on, the guest may be a fork of a template, which is forked before it reads anything."""
    runtime = start_runtime()
    wasm = reader(also)
    assert start(runtime, wasm, "a") == 'late a{"prompt":[1]}'
    for arg in "bc":
        assert start(runtime, wasm, arg) == f'{"late" if also in FAILS else "ahead"} {arg}{{"prompt":[1]}}'
    assert snapshots(cache_dir, runtime, wasm) == []
    assert has_templates(runtime, 0 if also in FAILS else 2)


def test_a_guest_with_hidden_state_has_no_snapshot(start_runtime: Callable[..., Runtime], cache_dir: Path) -> None:
    runtime = start_runtime()
    wasm = reader(extra="(table 1 funcref) (func $grow (drop (table.grow (ref.null func) (i32.const 1))))")
    assert start(runtime, wasm) == 'late {"prompt":[1]}'
    assert snapshots(cache_dir, runtime, wasm) == []


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "head", "globals", "folder"])
def test_a_damaged_snapshot_is_not_used(start_runtime: Callable[..., Runtime], cache_dir: Path, damage: str) -> None:
    runtime = start_runtime(extra_args=("--templates=0",))
    wasm = reader(extra=f'(global (export "{damage}") i32 (i32.const 0))')
    assert start(runtime, wasm, "a") == 'ahead a{"prompt":[1]}'
    (found,) = snapshots(cache_dir, runtime, wasm)
    runtime.close()  # it prepares uploaded modules in the background, and would replace what the test writes
    content = found.read_bytes()
    found.unlink()
    if damage == "folder":
        found.mkdir()
    elif damage != "missing":
        changed = {"empty": b"", "short": content[:-1], "head": b"x" + content[1:]}
        found.write_bytes(changed.get(damage, content[:16] + b"\3" + content[17:]))
    log = "ahead" if damage == "missing" else "late"  # a missing snapshot is made again
    assert start(start_runtime(), wasm, "b") == f'{log} b{{"prompt":[1]}}'


def test_a_snapshot_beyond_the_memory_limit_is_not_used(start_runtime: Callable[..., Runtime], cache_dir: Path) -> None:
    wasm = reader()
    runtime = start_runtime()
    start(runtime, wasm)
    (found,) = snapshots(cache_dir, runtime, wasm)
    runtime.close()
    size = os.stat(found).st_size
    with found.open("r+b") as file:  # as if made under a larger limit
        file.seek(8)
        file.write((128 << 20).to_bytes(8, "little"))
        file.truncate(size % 65536 + (128 << 20))
    assert start(start_runtime(), wasm, "a") == 'late a{"prompt":[1]}'


def test_the_snapshot_goes_with_the_module(start_runtime: Callable[..., Runtime], cache_dir: Path) -> None:
    runtime = start_runtime()
    wasm = reader(extra='(global (export "removed") i32 (i32.const 0))')
    start(runtime, wasm)
    (found,) = snapshots(cache_dir, runtime, wasm)
    from aici_runtime.channels.envelope import Auth
    from aici_runtime.guests.wasmtime_engine import cache_key
    from aici_runtime.modules.registry import Registry

    module_id = runtime.mk_module(wasm).module_id
    Registry(cache_dir / "modules", cache_key=cache_key()).remove(module_id, Auth("root", is_admin=True))
    assert not found.exists()
