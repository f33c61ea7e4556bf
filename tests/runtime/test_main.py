import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aici_runtime import flags
from aici_runtime.config import RuntimeConfig
from aici_runtime.tokenizer import vocabulary
from tests.runtime.support import tokenizer, wat


def run(*args: str, program: str = "aici_runtime.main", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *program.split(), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--name", "/a/b"], "--name is not a name for shared objects"),
        (["--bias-dtype", "f64"], "--bias-dtype f64 is not supported"),
        (["--tag", "x"], "--tag needs --module"),
        (["--run"], "--run needs --module"),
        (["--run-arg", "x"], "--run-arg needs --module"),
        (["--run", "--server", "--module=x"], "--run and --server exclude each other"),
        (["--gh-module", "gh:a/b"], "--gh-module is not supported"),
        (["--module", "gh:a/b"], "controllers from GitHub are not supported"),
        (["--module", "no.wasm"], "no such file: no.wasm"),
        (["--bench"], "--bench is not supported"),
        (["--server", "-t", "./llama", "--server"], "no tokenizer at ./llama"),
    ],
)
def test_refusals(byte_level: Path, cache_dir: Path, args: list[str], text: str) -> None:
    done = run("-t", str(byte_level), "--cache-dir", str(cache_dir), *args)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {text}")
    assert done.stdout == ""


def test_what_the_machine_refuses_is_said_without_a_traceback(byte_level: Path, cache_dir: Path) -> None:
    done = run("-t", str(byte_level), "--cache-dir", str(cache_dir), "--save-tokenizer", "/no/such/folder/trie")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "/no/such/folder" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("size", ["0", "-1", "x", "1" + "0" * 15])
def test_sizes_have_bounds(size: str) -> None:
    done = run("-t", "x", "--server", "--json-size", size)
    assert done.returncode == 2
    assert "--json-size" in done.stderr


def test_guests_of_our_engine_wait_as_long_as_its_requests_do() -> None:
    """A busy engine may take longer than the runtime's own limit of 10 minutes to bind a guest."""
    _, *args = RuntimeConfig(tokenizer=Path("x")).command("/aici-")[3:]
    assert flags.parse(args).unbound_s >= 24 * 60 * 60


def test_defaults_are_the_originals() -> None:
    settings = flags.parse(["-t", "x"])
    assert (settings.name, settings.json_size_bytes, settings.bin_size_bytes) == ("/aici0-", 128 << 20, 64 << 20)
    assert (settings.proto, settings.assumed_proto, settings.bias_dtype) == (None, "v1", "f32")
    limits = settings.limits
    assert (limits.forks, limits.memory_bytes, limits.log_bytes) == (16, 64 << 20, 64 << 10)
    assert (limits.pre_step_s, limits.init_s, limits.table_elements) == (0.004, 1.0, 100_000)
    assert (limits.step_limit_s("v1"), limits.late_rounds("v1")) == (0.15, 0)
    assert (limits.step_limit_s("v2"), limits.late_rounds("v2")) == (0.025, 10)


def test_protocol_v1_has_smaller_regions() -> None:
    settings = flags.parse(["--proto", "v1"])
    assert (settings.json_size_bytes, settings.bin_size_bytes) == (8 << 20, 16 << 20)
    assert flags.parse(["--proto=v1", "--json-size=9"]).json_size_bytes == 9 << 20


@pytest.mark.parametrize(
    "flag", ["--cap-fork", "--cap-backtrack", "--cap-ff-tokens", "--bias-dtype=f32", "--logits-size=300"]
)
def test_flags_of_protocol_v2_alone(flag: str) -> None:
    assert flags.parse([flag]).assumed_proto == "v2"
    assert flags.parse([flag, "--proto=v1"]).assumed_proto == "v1"


@pytest.mark.parametrize(("given", "proto"), [("doc", "v1"), ("head", "v2"), ("v1", "v1"), ("v2", "v2")])
def test_both_names_of_a_protocol_are_accepted(given: str, proto: str) -> None:
    assert flags.parse([f"--proto={given}"]).proto == proto


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(SystemExit) as caught:
        flags.parse(["-t", "x", "--serve"])
    assert caught.value.code == 2


def test_zero_limits_are_refused() -> None:
    with pytest.raises(SystemExit):
        flags.parse(["-t", "x", "--wasm-max-forks", "0"])


def test_install_and_tag(byte_level: Path, tmp_path: Path) -> None:
    guest = tmp_path / "plain.wasm"
    guest.write_bytes(wat.plain())
    common = ["-t", str(byte_level), "--cache-dir", str(tmp_path / "cache")]
    done = run(*common, "--module", str(guest), "--tag", "plain-latest", "--tag", "p")
    assert (done.returncode, done.stdout) == (0, hashlib.sha256(wat.plain()).hexdigest() + "\n"), done.stderr
    assert set(json.loads((tmp_path / "cache" / "modules" / "tags.json").read_bytes())) == {"plain-latest", "p"}
    assert run(*common, "--module", "plain-latest").stdout == done.stdout
    assert run(*common, "--module", "nope").returncode == 2


def test_save_tokenizer(byte_level: Path, cache_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "trie"
    done = run("-t", str(byte_level), "--cache-dir", str(cache_dir), "--save-tokenizer", str(target))
    assert (done.returncode, done.stdout) == (0, "")
    assert target.read_bytes() == vocabulary.load(str(byte_level), cache_dir).tries["v1"]


def test_both_commands_are_the_same_program() -> None:
    ours, original = run("--help", program="aici_cli rt"), run("--help")
    assert (ours.returncode, ours.stdout) == (0, original.stdout)
    for flag in ("--wasm-timer-resolution-us", "--cap-ff-tokens", "--save-tokenizer", "--futex", "RUST_LOG"):
        assert flag in original.stdout


def ran(
    byte_level: Path, tmp_path: Path, cache_dir: Path, wasm: bytes, *flags: str
) -> subprocess.CompletedProcess[str]:
    guest = tmp_path / "main.wasm"
    guest.write_bytes(wasm)
    done = run("-t", str(byte_level), "--cache-dir", str(cache_dir), "--module", str(guest), "--run", *flags)
    module_id = hashlib.sha256(wasm).hexdigest()
    assert done.stdout.startswith(f"{module_id}\n"), done.stderr
    done.stdout = done.stdout.removeprefix(f"{module_id}\n")
    return done


def test_run_aici_main(byte_level: Path, tmp_path: Path, cache_dir: Path) -> None:
    """`aici_main` gets the handle, the argument and variables; the log is the output."""
    module = wat.Module()
    write = module.store('{"WriteVar":{"name":"a","value":"00","op":"Set","when_version_is":null}}')
    body = f"(if (i32.ne (local.get $h) (i32.const 7)) (then unreachable)) (call $echo (call $module_arg)) {write}"
    wasm = module.build(extra=f'(func (export "aici_main") (param $h i32) {body})')
    done = ran(byte_level, tmp_path, cache_dir, wasm)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"steps":[]}{"WriteVar":{"version":1}}', "")
    argument = tmp_path / "argument"
    argument.write_text("né")
    assert ran(byte_level, tmp_path, cache_dir, wasm, "--run-arg", str(argument)).stdout.startswith("né{")


@pytest.mark.parametrize(
    ("body", "code", "output", "error"),
    [
        ("(i32.const 3)", 3, "", ""),
        ("(call $exit (i32.const 4)) (i32.const 0)", 4, "", ""),
        ("(call $exit (i32.const 0)) (i32.const 5)", 0, "", ""),
        ("(call $stop) (i32.const 0)", 1, "", "error: *** aici_host_stop()\n"),
        ("(unreachable)", 1, "", "wasm trap: wasm `unreachable` instruction executed\n"),
        (
            "(call $read_blob (i32.const 99) (i32.const 0) (i32.const 0))",
            1,
            "FATAL ERROR: invalid blob_id\n",
            "error: ",
        ),
    ],
)
def test_run_main(
    byte_level: Path, tmp_path: Path, cache_dir: Path, body: str, code: int, output: str, error: str
) -> None:
    wasm = wat.Module().build(extra=f'(func (export "main") (param i32 i32) (result i32) {body})')
    done = ran(byte_level, tmp_path, cache_dir, wasm)
    assert (done.returncode, done.stdout) == (code, output)
    assert error in done.stderr
    assert bool(done.stderr) == bool(error)


def test_an_unknown_word_for_native_code_is_refused(byte_level: Path) -> None:
    done = run("-t", str(byte_level), "--server", AICI_NATIVE="OFF")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: AICI_NATIVE is 'OFF', which is not a level of this machine\n hint: use one of off"
    )


def test_run_needs_something_to_call(byte_level: Path, tmp_path: Path, cache_dir: Path) -> None:
    done = ran(byte_level, tmp_path, cache_dir, wat.plain())
    assert done.returncode == 1
    assert done.stderr.startswith("error: the controller exports neither aici_main nor main\n hint: ")


@pytest.mark.parametrize(
    ("value", "says_it"), [("error", False), ("warn", True), ("aicirt=debug", True), ("hyper=warn,error", False)]
)
def test_rust_log(cache_dir: Path, tmp_path: Path, value: str, says_it: bool) -> None:
    """A tokenizer without an end-of-sequence token gives a warning."""
    path = tokenizer.byte_level(tmp_path) / "tokenizer.json"
    config = json.loads(path.read_text())
    config["added_tokens"] = []
    path.write_text(json.dumps(config))
    done = run("-t", str(path), "--cache-dir", str(tmp_path), "--save-tokenizer", "/dev/null", RUST_LOG=value)
    assert (done.returncode, done.stdout) == (0, "")
    assert ("no special token is named" in done.stderr) == says_it
