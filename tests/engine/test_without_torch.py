"""Where the kernels run the model, no process imports torch or transformers: neither to generate nor to serve."""

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.native.backend import make_model
from aici_engine.native.model import NativeModel
from tests.engine.native.test_native_model import ABLE
from tests.engine.support import write_tiny_model
from tests.support.blocked_imports import BlockedImports
from tests.support.cli import aici
from tests.support.processes import command, descendants
from tests.support.server import serving

JSON = {"Content-Type": "application/json"}
pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")


@pytest.fixture
def blocked(tmp_path: Path) -> BlockedImports:
    return BlockedImports(tmp_path / "blocked")


@pytest.fixture
def packed_model(tmp_path: Path) -> Path:
    """A model whose packed weights are in the cache."""
    folder = write_tiny_model(tmp_path / "model", num_heads=2)
    config = EngineConfig(model_dir=folder, dtype="int8")
    assert isinstance(make_model(config, ComputeDevice("cpu", 16)), NativeModel)
    return folder


def test_a_run_imports_neither(packed_model: Path, blocked: BlockedImports) -> None:
    flags = ["--model", str(packed_model), "--dtype", "int8", "--max-tokens", "6", "--regex", "(a|b){4}"]
    done = aici("run", "a", *flags, env=dict(blocked.environment))
    assert done.returncode == 0, done.stderr
    assert blocked.attempts == []
    assert set(done.stdout.strip()) <= {"a", "b"}


def test_no_process_of_a_server_imports_either(
    packed_model: Path, blocked: BlockedImports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in blocked.environment.items():
        monkeypatch.setenv(name, value)
    with serving("--model", str(packed_model), "--dtype", "int8") as server:
        body = {"model": "model", "prompt": "a", "max_tokens": 6, "regex": "(a|b){4}"}
        request = Request(f"{server.url}/v1/completions", json.dumps(body).encode(), JSON)
        with urlopen(request, timeout=60) as answer:
            assert json.load(answer)["choices"][0]["text"]
        processes = descendants(server.process.pid)
        assert {"aici-engine", "aicirt"} <= {command(pid) for pid in processes}
        maps = [Path(f"/proc/{pid}/maps") for pid in (server.process.pid, *processes)]
        assert not [path for path in maps if path.is_file() and "libtorch" in path.read_text()]
    assert blocked.attempts == []
