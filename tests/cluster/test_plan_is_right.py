"""A real stage takes the memory that the planner expects."""

import os
import subprocess
from pathlib import Path

import pytest

from aici_engine.cluster import node_info
from aici_engine.cluster.headers import ModelSizes
from aici_engine.cluster.node_info import process_bytes
from aici_engine.cluster.plan import NodeInfo, PlanRequest, make_plan
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.request import Request
from aici_engine.sampling_params import SamplingParams
from tests.support.cli import AICI
from tests.support.faults import anonymous_bytes
from tests.support.model import default_model_dir

NUM_PAGES = 160


def test_memory_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        NodeInfo(name="stage", budget_bytes=130_000_000, bytes_per_s=1e10),
        NodeInfo(name="driver", budget_bytes=1 << 30, bytes_per_s=1e9),
    ]
    sizes = ModelSizes.of(default_model_dir())
    request = PlanRequest(sizes=sizes, dtype="int8", num_pages=NUM_PAGES, max_num_seqs=8)
    planned, driver = make_plan(request, nodes, driver="driver").stages
    assert 10 < planned.part.num_layers < 20
    command = [*AICI, "stage", "--model", str(default_model_dir()), "--token-file", str(tmp_path / "token")]
    # With an empty cache the stage packs the weights itself. Mapped weights of a cache do not count as its memory.
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen([*command, "--threads", "1"], stdout=subprocess.PIPE, text=True, env=env) as stage:
        try:
            assert stage.stdout is not None
            address = stage.stdout.readline().strip()
            empty = anonymous_bytes(stage.pid)
            config = EngineConfig(
                model_dir=default_model_dir(), dtype="int8", num_threads=1, num_pages=NUM_PAGES, max_num_seqs=8,
                stages=(address,), cuts=(driver.part.first,), token_file=tmp_path / "token",
            )  # fmt: skip
            with Engine(config) as engine:
                length = NUM_PAGES * 16 // 8 - 20
                prompts = [[1 + number] + [200] * length for number in range(8)]
                sampling = SamplingParams(max_tokens=4, ignore_eos=True)
                for handle in [engine.submit(Request(prompt=prompt, sampling=sampling)) for prompt in prompts]:  # type: ignore[arg-type]
                    assert handle.wait().error is None
                full = anonymous_bytes(stage.pid)
        finally:
            stage.terminate()
    # The plan counts the scratch memory of larger steps: 119 MB are taken of 128 planned.
    planned_bytes = planned.num_bytes(NUM_PAGES)
    assert 0.85 * planned_bytes < full - empty < 1.1 * planned_bytes
    # The kernels run the stage, so torch is not loaded.
    monkeypatch.setattr(node_info, "missing", list)  # every package is missing
    assert full < process_bytes() + planned_bytes
