"""Flags, exit codes and output; the names of shared objects, and the side that creates and unlinks them."""

import mmap
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import posix_ipc
import pytest

from tests.wire.support import puppet, vocabularies
from tests.wire.support.engine import PATIENT, Binary, Engine, Sync, Version, data, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.mailbox import MIB, SemaphoreBox, exists, unlink
from tests.wire.support.tries import GOLDEN, Trie


@pytest.fixture
def head_only(aicirt: Binary) -> None:
    if "v2" not in aicirt.versions:
        pytest.skip("flags of the later version")


BOXES = ("cmd", "resp", "cmd-side", "resp-side")


class TestRefused:
    def test_no_server(self, aicirt: Binary) -> None:
        done = aicirt.run(f"--tokenizer={aicirt.tokenizer}")
        assert (done.returncode, b"missing --server" in done.stdout + done.stderr) == (1, True)

    def test_a_name_without_a_slash(self, aicirt: Binary) -> None:
        done = aicirt.run(f"--tokenizer={aicirt.tokenizer}", "--name=aici-", "--server")
        assert (done.returncode, b"--name must start with /" in done.stdout + done.stderr) == (1, True)

    @pytest.mark.parametrize("flag", ["--nonsense", "--json-size=x", "--bias-dtype=f64", "--tokenizer=/nowhere"])
    def test_the_rest(self, aicirt: Binary, flag: str) -> None:
        done = aicirt.run(f"--tokenizer={aicirt.tokenizer}", "--server", flag)
        assert done.returncode not in (0, None)
        assert b"Traceback" not in done.stderr

    def test_without_a_terminal_help_is_help(self, aicirt: Binary) -> None:
        done = aicirt.run("--help")
        assert done.returncode == 0
        for flag in ("--tokenizer", "--json-size", "--bin-size", "--wasm-max-forks", "--restricted", "--futex"):
            assert flag.encode() in done.stdout


class TestLogitsSize:
    """A model may have more logits than its tokenizer has tokens."""

    def test_it_pads(self, aicirt: Binary, head_only: None) -> None:
        with Engine(aicirt, "v2", extra=("--logits-size=300", *PATIENT["v2"])) as engine:
            assert data(engine.call("tokens"))["vocab_size"] == 300
            guests = Guests(engine)
            usual = puppet.DEFAULTS["v2"]["mid"]
            trie = Trie(bytes.fromhex(guests.only_mid(puppet.dump(puppet.TRIE) + usual)["logs"]))
            assert (trie.vocab_size, trie.texts(10)[261:]) == (300, [b""] * 39)

    @pytest.mark.parametrize("size", [260, 462])
    def test_within_limits(self, aicirt: Binary, size: int, head_only: None) -> None:
        """Fewer than the vocabulary, or 200 more, is refused."""
        done = aicirt.run(f"--tokenizer={aicirt.tokenizer}", f"--logits-size={size}", "--save-tokenizer=trie")
        assert done.returncode != 0


class TestModule:
    @pytest.fixture
    def wasm(self, tmp_path: Path, version: Version) -> Path:
        path = tmp_path / "guest.wasm"
        name = f"n{fresh()}".encode()
        path.write_bytes(puppet.module(version) + bytes([0, len(name) + 1, len(name)]) + name)
        return path

    def install(self, aicirt: Binary, *flags: str) -> str:
        done = aicirt.run(f"--tokenizer={aicirt.tokenizer}", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1].decode()

    def test_it_prints_the_id(self, aicirt: Binary, wasm: Path, engine: Engine) -> None:
        module_id = self.install(aicirt, f"--module={wasm}", "--tag=installed", "--tag=again")
        assert module_id == engine.upload(wasm.read_bytes())
        tags = {tag["tag"]: tag["module_id"] for tag in data(engine.side("get_tags"))["tags"]}
        assert (tags["installed"], tags["again"]) == (module_id, module_id)
        assert self.install(aicirt, f"--module={module_id}") == module_id

    def test_a_file_that_is_none(self, aicirt: Binary, tmp_path: Path) -> None:
        (tmp_path / "bad.wasm").write_bytes(b"not wasm")
        for path in (tmp_path / "bad.wasm", tmp_path / "missing.wasm"):
            assert aicirt.run(f"--tokenizer={aicirt.tokenizer}", f"--module={path}").returncode != 0

    def test_run(self, aicirt: Binary, tmp_path: Path) -> None:
        """`aici_main` gets its argument, and its log is printed."""
        (tmp_path / "main.wasm").write_bytes(_with_main())
        (tmp_path / "arg").write_text("said by a file")
        flags = (f"--tokenizer={aicirt.tokenizer}", f"--module={tmp_path / 'main.wasm'}", "--run")
        done = aicirt.run(*flags, f"--run-arg={tmp_path / 'arg'}")
        assert (done.returncode, b"said by a file" in done.stdout + done.stderr) == (0, True), done.stderr
        assert b'{"steps":[]}' in (done := aicirt.run(*flags)).stdout + done.stderr

    def test_restricted(self, aicirt: Binary, head_only: None) -> None:
        with Engine(aicirt, "v2", extra=["--restricted"]) as engine:
            for op, fields in (("mk_module", {"binary": ""}), ("set_tags", {"module_id": "0" * 64, "tags": ["a"]})):
                response = engine.side(op, **fields)
                assert (response["type"], response["error"]) == ("error", "module upload disabled")
            assert data(engine.side("get_tags"))["tags"] is not None


def _with_main() -> bytes:
    callbacks = "".join(
        f'(func (export "aici_{name}") (param i32))'
        for name in ("init_prompt", "pre_process", "mid_process", "post_process")
    )
    return puppet.compile_text(f"""(module
      (import "env" "aici_host_read_blob" (func $read (param i32 i32 i32) (result i32)))
      (import "env" "aici_host_module_arg" (func $arg (result i32)))
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "aici_init")) (func (export "aici_create") (result i32) (i32.const 0)) {callbacks}
      (func (export "aici_main") (param i32)
        (i32.store (i32.const 4) (call $read (call $arg) (i32.const 0x100) (i32.const 100)))
        (i32.store (i32.const 0) (i32.const 0x100))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))""")


class TestSaveTokenizer:
    def test_golden(self, aicirt: Binary, tmp_path: Path) -> None:
        path = vocabularies.golden(tmp_path)
        assert aicirt.run(f"--tokenizer={path}", f"--save-tokenizer={tmp_path / 'trie'}").returncode == 0
        assert (tmp_path / "trie").read_bytes().hex() in GOLDEN.values()

    def test_long_tokens(self, aicirt: Binary, tmp_path: Path) -> None:
        """A token too long for the token table is left out; the next token keeps its index."""
        path = vocabularies.long_tokens(tmp_path)
        assert aicirt.run(f"--tokenizer={path}", f"--save-tokenizer={tmp_path / 'trie'}").returncode == 0
        trie = Trie((tmp_path / "trie").read_bytes())
        assert b"b" in trie.texts(8) or b"b" in trie.texts(10)
        assert {node.token for _, node in trie.walk()} >= {0, 1}

    def test_golden_in_a_guest(self, aicirt: Binary, version: Version, tmp_path: Path) -> None:
        other = replace(aicirt, tokenizer=vocabularies.golden(tmp_path))
        with Engine(other, version, extra=PATIENT[version]) as engine:
            guests = Guests(engine)
            usual = puppet.DEFAULTS[version]["mid"]
            trie = guests.only_mid(puppet.dump(puppet.TRIE) + usual)["logs"]
            assert trie == GOLDEN[10 if version == "v2" else 8]


class _Attached(SemaphoreBox):
    """The second side attaches: neither end of the channel is told its role."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        shared = posix_ipc.SharedMemory(f"{name}-shm", posix_ipc.O_CREAT, size=size)
        self.memory = mmap.mmap(shared.fd, size)
        shared.close_fd()
        self.writable = posix_ipc.Semaphore(f"{name}-wr", posix_ipc.O_CREAT, initial_value=1)
        self.readable = posix_ipc.Semaphore(f"{name}-rd", posix_ipc.O_CREAT, initial_value=0)


class TestNames:
    @pytest.mark.parametrize("sync", ["sem", "futex"])
    def test_after_the_runtime_has_attached(self, aicirt: Binary, version: Version, sync: Sync) -> None:
        """With futexes the runtime unlinks the names of the channels, with semaphores no name; the mask region stays
        always."""
        with Engine(aicirt, version, sync) as engine:
            engine.is_well()
            assert exists(f"{engine.prefix}bin-shm")
            if sync == "futex":
                assert not any(exists(engine.prefix + box) for box in BOXES)
            else:
                assert all(exists(f"{engine.prefix}{box}-shm") for box in BOXES)
                assert all(exists(f"/sem.{engine.prefix[1:]}{box}-{end}") for box in BOXES for end in ("rd", "wr"))
            engine.send({"op": "stop"})
            engine.wait_exit()
            assert exists(f"{engine.prefix}bin-shm")
            assert exists(f"{engine.prefix}cmd-shm") == (sync == "sem")

    def test_whoever_is_first_creates(self, aicirt: Binary) -> None:
        """Without an engine's objects, the runtime creates them, in the size given by its flags."""
        prefix = f"/aicitest-{os.getpid()}-{os.urandom(3).hex()}-"
        flags = [f"--tokenizer={aicirt.tokenizer}", f"--name={prefix}", "--json-size=2", "--bin-size=3", "--server"]
        process = subprocess.Popen([*aicirt.command, *flags], cwd=aicirt.folder, env=aicirt.environment())
        boxes = [_Attached(prefix + box, 2 * MIB) for box in BOXES]
        try:
            boxes[0].send(b'{"op":"ping"}')
            assert b'"pong":1' in boxes[1].receive()
            assert os.stat(f"/dev/shm{prefix}bin-shm").st_size == 3 * MIB
        finally:
            process.terminate()
            process.wait(20)
            for box in boxes:
                box.close()
            unlink(f"{prefix}bin-shm")

    def test_two_of_another_name_side_by_side(self, aicirt: Binary, version: Version) -> None:
        with Engine(aicirt, version) as one, Engine(aicirt, version) as two:
            one.is_well()
            two.is_well()
            one.send({"op": "stop"})
            one.wait_exit()
            two.is_well()
