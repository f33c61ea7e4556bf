"""What a server holds in memory, beside the weights and the cache in use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_engine.native.library import describe
from tests.support.model import default_model_dir
from tests.support.processes import command, descendants
from tests.support.server import Server, serving

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not describe().level, reason="no kernels for this processor")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that packs the weights at its start."""
    cache = tmp_path_factory.mktemp("cache")
    with serving("--model", str(default_model_dir()), env={"AICI_CACHE_DIR": str(cache)}) as server:
        yield server


def test_an_engine_holds_little_more_than_its_weights(server: Server) -> None:
    [engine] = [pid for pid in descendants(server.process.pid) if command(pid) == "aici-engine"]
    [packed] = (Path(server_cache(server)) / "packed").glob("*.bin")
    weights = packed.stat().st_size
    held, peak = _field(engine, "smaps_rollup", "Pss:"), _field(engine, "status", "VmHWM:")
    print(f"held {held / weights:.2f}, peak {peak / weights:.2f} of {weights} bytes")
    assert held <= 1.6 * weights
    assert peak <= 2.4 * weights


def server_cache(server: Server) -> str:
    environment = Path(f"/proc/{server.process.pid}/environ").read_text().split("\0")
    return next(line.partition("=")[2] for line in environment if line.startswith("AICI_CACHE_DIR="))


def _field(pid: int, file: str, name: str) -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
