"""Where the kernels run the model, no process imports torch or transformers: to generate, to serve, or as a stage."""

import json
import signal
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.engine.native.test_native_model import ABLE
from tests.engine.support import write_tiny_model
from tests.support.blocked_imports import BlockedImports
from tests.support.cli import aici
from tests.support.processes import command, descendants
from tests.support.server import Server, serving
from tests.support.stage_command import StageCommand

JSON = {"Content-Type": "application/json"}
pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")


@pytest.fixture
def blocked(tmp_path: Path) -> BlockedImports:
    return BlockedImports(tmp_path / "blocked")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model", num_heads=2)


@pytest.mark.parametrize("dtype", ["auto", "int8"])
def test_a_run_imports_neither(dtype: str, folder: Path, blocked: BlockedImports) -> None:
    flags = ["--model", str(folder), "--dtype", dtype, "--max-tokens", "6", "--regex", "(a|b){4}"]
    done = aici("run", "a", *flags, env=dict(blocked.environment))
    assert done.returncode == 0, done.stderr
    assert blocked.attempts == []
    assert set(done.stdout.strip()) <= {"a", "b"}


def test_no_process_of_a_server_imports_either(
    folder: Path, blocked: BlockedImports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in blocked.environment.items():
        monkeypatch.setenv(name, value)
    with serving("--model", str(folder)) as server:
        assert ask(server)
        processes = descendants(server.process.pid)
        assert {"aici-engine", "aicirt"} <= {command(pid) for pid in processes}
        maps = [Path(f"/proc/{pid}/maps") for pid in (server.process.pid, *processes)]
        assert not [path for path in maps if path.is_file() and "libtorch" in path.read_text()]
    assert blocked.attempts == []


@pytest.mark.parametrize("dtype", ["auto", "int4"])
def test_no_process_of_a_pipeline_imports_either(
    dtype: str, folder: Path, tmp_path: Path, blocked: BlockedImports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in blocked.environment.items():
        monkeypatch.setenv(name, value)
    flags = ["--model", str(folder), "--dtype", dtype]
    with serving(*flags) as server:
        whole = ask(server)
    stage = StageCommand(tmp_path, 1).start()
    try:
        flags += ["--stages", stage.address, "--cuts", "1", "--token-file", str(stage.folder / "token")]
        with serving(*flags) as server:
            assert ask(server) == whole
    finally:
        stage.end(signal.SIGTERM)
    assert blocked.attempts == []


def ask(server: Server) -> str:
    body = {"model": "model", "prompt": "a", "max_tokens": 6, "regex": "(a|b){4}"}
    request = Request(f"{server.url}/v1/completions", json.dumps(body).encode(), JSON)
    with urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def test_what_needs_torch_names_the_extra(folder: Path, blocked: BlockedImports) -> None:
    settings = folder / "config.json"
    settings.write_text(settings.read_text().replace('"silu"', '"gelu"'))
    done = aici("run", "a", "--model", str(folder), env=dict(blocked.environment))
    assert done.returncode == 1
    assert "torch is not installed: it is needed for the model in" in done.stderr
    assert "because its activation is 'gelu'" in done.stderr
    assert "pip install 'aici[engine]'" in done.stderr


def test_a_server_says_so_too(folder: Path, blocked: BlockedImports) -> None:
    settings = folder / "config.json"
    settings.write_text(settings.read_text().replace('"llama"', '"phi"'))
    done = aici("serve", "--port", "0", "--model", str(folder), env=dict(blocked.environment))
    assert done.returncode == 1
    assert "torch is not installed" in done.stderr
    assert "because its model_type is 'phi'" in done.stderr


def test_a_conversion_names_the_extra(tmp_path: Path, blocked: BlockedImports) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    done = aici("models", "pull", str(file), env=dict(blocked.environment))
    assert done.returncode == 1
    assert "torch is not installed: it is needed for the conversion of model.gguf" in done.stderr
    assert "pip install 'aici[engine]'" in done.stderr
