import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from aici_runtime import flags, vocabulary
from tests.runtime.support import wat


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aici_runtime.main", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--name", "aici0-"], "--name must start with /"),
        (["--name", "/a/b"], "--name is not that of a shared object"),
        (["--bias-dtype", "f64"], "--bias-dtype f64 is not supported"),
        (["--tag", "x"], "--tag needs --module"),
        (["--run"], "--run needs --module"),
        (["--bench"], "--bench has a command of its own"),
        ([], "missing --server"),
        (["-t", "./llama"], "no tokenizer at ./llama"),
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


def test_defaults_are_the_originals() -> None:
    settings = flags.parse(["-t", "x"])
    assert (settings.name, settings.json_size_bytes, settings.bin_size_bytes) == ("/aici0-", 128 << 20, 64 << 20)
    assert (settings.proto, settings.assumed_proto, settings.bias_dtype) == (None, "doc", "f32")
    limits = settings.limits
    assert (limits.forks, limits.memory_bytes, limits.log_bytes) == (16, 64 << 20, 64 << 10)
    assert (limits.pre_step_s, limits.init_s, limits.table_elements) == (0.004, 1.0, 100_000)
    assert (limits.step_limit_s("doc"), limits.late_rounds("doc")) == (0.15, 0)
    assert (limits.step_limit_s("head"), limits.late_rounds("head")) == (0.025, 10)


def test_the_earlier_protocol_has_smaller_regions() -> None:
    settings = flags.parse(["--proto", "doc"])
    assert (settings.json_size_bytes, settings.bin_size_bytes) == (8 << 20, 16 << 20)
    assert flags.parse(["--proto=doc", "--json-size=9"]).json_size_bytes == 9 << 20


@pytest.mark.parametrize(
    "flag", ["--cap-fork", "--cap-backtrack", "--cap-ff-tokens", "--bias-dtype=f32", "--logits-size=300"]
)
def test_flags_that_only_the_later_protocol_has(flag: str) -> None:
    assert flags.parse([flag]).assumed_proto == "head"
    assert flags.parse([flag, "--proto=doc"]).assumed_proto == "doc"


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
    assert target.read_bytes() == vocabulary.load(str(byte_level), cache_dir).tries["callbacks"]
