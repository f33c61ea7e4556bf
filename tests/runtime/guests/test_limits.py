"""Every limit holds, and guest and user get the documented message. Limits of time: `test_guests.TestTime`."""

import base64
import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aici_base.errors import ControllerError, QuotaError, UsageError
from aici_base.ids import SeqId
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.memory.worker_slots import WorkerSlotTable, owner_id
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import wat
from tests.runtime.support.processes import PATIENCE_S, bind, one, wait_until
from tests.runtime.support.raw import RawEngine

_numbers = itertools.count(1000)


def start(runtime: Runtime, wasm: bytes) -> str:
    req_id = f"l{next(_numbers)}"
    module_id = runtime.mk_module(wasm).module_id
    runtime.instantiate(req_id=req_id, prompt=[], module_id=module_id, module_arg="").result(PATIENCE_S)
    return req_id


def step(runtime: Runtime, wasm: bytes) -> tuple[str, str]:
    """Return error and log of the first mid."""
    seq_id = SeqId(next(_numbers))
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, start(runtime, wasm))], freed=[])
    runtime.send_mid([MidOp(seq_id)])
    entry = runtime.recv_mid().seqs[seq_id]
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[seq_id])
    return entry.error, entry.logs


@pytest.fixture(scope="module")
def small(byte_level: Path, cache_dir: Path) -> Iterator[Runtime]:
    flags = ("--wasm-max-memory=2", "--wasm-max-table=100", "--wasm-max-log=1", "--wasm-max-forks=3")
    config = RuntimeConfig(tokenizer=byte_level, cache_dir=cache_dir, extra_args=flags)
    with Runtime(config) as runtime:
        runtime.wait_ready()
        yield runtime


class TestOfAGuest:
    def test_memory_that_it_begins_with(self, small: Runtime) -> None:
        text = "memory minimum size of 33 pages exceeds memory limits (--wasm-max-memory: 2 MB)"
        with pytest.raises(ControllerError, match=rf"(?s)^Error \(setup\): .*{re.escape(text)}"):
            start(small, wat.Module().build().replace(b"\x05\x03\x01\x00\x08", b"\x05\x03\x01\x00\x21"))

    def test_memory_that_it_asks_for(self, small: Runtime) -> None:
        """The guest gets -1, and goes on."""
        module = wat.Module()
        grow = "(if (i32.ne (memory.grow (i32.const {})) (i32.const {})) (then (unreachable)))"
        body = grow.format(24, 8) + grow.format(1, -1)  # 32 pages are 2 MiB
        assert step(small, module.build(mid=body + module.answer(wat.SAMPLE)))[0] == ""

    def test_tables(self, small: Runtime) -> None:
        assert start(small, wat.Module().build(extra="(table 100 funcref)"))
        text = "table minimum size of 101 elements exceeds table limits (--wasm-max-table: 100)"
        with pytest.raises(ControllerError, match=rf"(?s)^Error \(setup\): .*{re.escape(text)}"):
            start(small, wat.Module().build(extra="(table 101 funcref)"))

    def test_the_log_keeps_its_end(self, small: Runtime) -> None:
        module = wat.Module()
        lines = "".join(module.log(f"{n:09}\n") for n in range(200))
        error, logs = step(small, module.build(mid=lines + module.answer(wat.SAMPLE)))
        assert error == ""
        assert logs.endswith("000000199\n")
        assert len(logs) <= 1024

    def test_forks(self, small: Runtime) -> None:
        parent = SeqId(next(_numbers))
        small.post_pre_process(post_ops=[], pre_ops=[PreOp(parent, start(small, wat.plain()))], freed=[])
        children = [SeqId(next(_numbers)) for _ in range(3)]
        small.send_mid([MidOp(parent), *(MidOp(child, parent) for child in children)])
        errors = [small_error.error for small_error in small.recv_mid().seqs.values()]
        assert errors == ["", "", "", "Worker: too many forks (max=3)"]
        small.post_pre_process(post_ops=[], pre_ops=[], freed=[parent, *children])


class TestOfUsers:
    def test_instances(self, byte_level: Path, cache_dir: Path) -> None:
        """The quota of a user, then the total quota. Forks count; ended guests do not."""
        flags = ("--max-instances=4", "--max-instances-per-user=3", "--wasm-max-forks=9")
        raw = RawEngine(byte_level, cache_dir, *flags)
        try:
            binary = base64.b64encode(wat.plain()).decode()
            module_id = raw.side(op="mk_module", binary=binary)["data"]["module_id"]

            def instantiate(req_id: str, user: str) -> object:
                auth = {"user": user, "is_admin": False}
                fields = {"prompt": [], "module_id": module_id, "$auth": auth}
                return raw.side(op="instantiate", req_id=req_id, **fields).get("error")

            assert [instantiate(f"a{n}", "ann") for n in range(2)] == [None, None]
            raw.call(op="post_pre_process", post_ops=[], pre_ops=[{"id": 1, "req_id": "a0"}], freed=[])
            ops = [{"id": 1}, {"id": 2, "clone_id": 1}, {"id": 3, "clone_id": 1}]
            seqs = raw.call(op="mid_process", ops=ops)["data"]["seqs"]
            own = "too many guests for one user (--max-instances-per-user: 3)"
            assert [seqs[n]["error"] for n in "123"] == ["", "", f"Worker: {own}"]
            refused = raw.side(
                op="instantiate",
                req_id="a2",
                prompt=[],
                module_id=module_id,
                **{"$auth": {"user": "ann", "is_admin": True}},
            )
            assert (refused["error"], refused["is_user_error"]) == (own, True)
            assert refused["hint"] == "wait until others have ended"
            assert instantiate("b0", "bob") is None
            assert instantiate("c0", "cy") == "too many guests (--max-instances: 4)"
            raw.call(op="post_pre_process", post_ops=[], pre_ops=[], freed=[2])
            wait_until(lambda: instantiate("c1", "cy") is None)
        finally:
            raw.close()

    def test_modules_and_their_size(self, start_runtime: Callable[..., Runtime], tmp_path: Path) -> None:
        flags = ("--max-modules=3", "--max-modules-per-user=2", "--max-stored-mb=2")
        runtime = start_runtime(cache_dir=tmp_path, extra_args=flags)
        modules = [wat.Module().build(create=f"(i32.const {n})") for n in range(5)]
        for wasm in modules[:2]:
            runtime.mk_module(wasm, user="ann")
        with pytest.raises(QuotaError, match=r"too many modules for one user \(--max-modules-per-user: 2\)") as refused:
            runtime.mk_module(modules[2], user="ann")
        assert "aici ctrl rm" in refused.value.hint_for("cli")
        assert "aici" not in refused.value.hint_for("http")
        runtime.mk_module(modules[0], user="ann")  # exists already
        runtime.mk_module(modules[2], user="bob")
        with pytest.raises(QuotaError, match=r"too many modules \(--max-modules: 3\)"):
            runtime.mk_module(modules[3], user="cy")

    def test_stored_bytes(self, start_runtime: Callable[..., Runtime], tmp_path: Path) -> None:
        runtime = start_runtime(cache_dir=tmp_path, extra_args=("--max-stored-mb=9", "--max-stored-mb-per-user=1"))
        big = wat.Module().build(extra=f'(data (i32.const 0x40000) "{"x" * 200_000}")')
        assert runtime.mk_module(big, user="ann").wasm_size > 200_000
        bigger = wat.Module().build(extra=f'(data (i32.const 0x40000) "{"x" * 250_000}{"y" * 12_000}")')
        with pytest.raises(QuotaError, match=r"too many MB of modules for one user \(--max-stored-mb-per-user: 1\)"):
            runtime.mk_module(bigger, user="ann")
        runtime.mk_module(bigger, user="bob")

    def test_time_to_compile(self, start_runtime: Callable[..., Runtime], tmp_path: Path) -> None:
        runtime = start_runtime(cache_dir=tmp_path, extra_args=("--wasm-max-compile-time=1",))
        with pytest.raises(UsageError, match=r"compiling the module took more than 0\.001 s") as refused:
            runtime.mk_module(wat.plain())
        assert "--wasm-max-compile-time" in refused.value.hint_for("cli")
        assert "--" not in refused.value.hint_for("http")
        assert list((tmp_path / "modules").glob("*.wasm")) == []


def test_slots_of_both_kinds_have_an_end() -> None:
    table = WorkerSlotTable()
    for half, kind in ((table.guest_half, "guests"), (table.fork_half, "forks")):
        slots = [table.take(half, owner_id(f"user {n}")) for n in range(len(half))]
        assert {slot.index for slot in slots} == set(half)
        with pytest.raises(QuotaError, match=f"all 256 slots for {kind} are taken|too many guests"):
            table.take(half, owner_id("another"))
        table.free(slots[7])
        assert table.take(half, owner_id("another")).index == slots[7].index
        for slot in slots:
            table.free(slot)


def test_a_guest_that_ends_gives_its_place_back(start_runtime: Callable[..., Runtime]) -> None:
    """Also for a guest that does not come up, and for a killed guest."""
    runtime = start_runtime(extra_args=("--max-instances=1",))

    def outcome(wasm: bytes) -> str:
        try:
            bind(runtime, 1, wasm)
        except (ControllerError, QuotaError) as error:
            return type(error).__name__
        return ""

    wait_until(lambda: outcome(wat.Module().build(create=wat.TRAP)) == "ControllerError")
    wait_until(lambda: outcome(wat.plain()) == "")
    assert outcome(wat.plain()) == "QuotaError"
    os.kill(one(runtime, "aicirt-seq"), signal.SIGKILL)
    runtime.send_mid([MidOp(SeqId(1))])
    assert runtime.recv_mid().seqs[SeqId(1)].error == "Worker: died"
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[SeqId(1)])
    wait_until(lambda: outcome(wat.plain()) == "")
