"""The roofline of `aici bench engine --profile`. The values of the figures are not tested."""

from pathlib import Path

import pytest

from aici_cli.bench.engines.compare import Plan
from aici_cli.bench.engines.roofline import measure_roofline, print_roofline
from tests.engine.native.test_native_model import ABLE
from tests.engine.support import write_tiny_model


def plan_for(model: Path) -> Plan:
    return Plan(
        model=model,
        work=model,
        device="cpu",
        threads=2,
        batches=[2],
        num_prompt=8,
        num_new=3,
        rounds=1,
        limit_s=60,
    )


@pytest.mark.skipif(not ABLE, reason="no kernels for this processor")
def test_prompts_and_decoding_have_a_rate_of_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny_model(tmp_path, num_heads=2)
    rows = list(measure_roofline(plan_for(tmp_path), "int8", print))
    assert [row["pass"] for row in rows] == ["prompt", "decoding"]
    for row in rows:
        kinds = row["kinds"]
        assert all(kinds[kind]["rate"] > 0 < kinds[kind]["peak"] for kind in ("products", "head", "attention"))
        assert kinds["rest"]["seconds"] > 0 == kinds["rest"]["rate"] == kinds["rest"]["peak"]
    print_roofline(rows)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in printed[-2:]] == ["prompt", "decoding"]


def test_a_model_without_kernels_has_no_roofline(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)  # head_dim 8
    said: list[str] = []
    assert list(measure_roofline(plan_for(tmp_path), "float32", said.append)) == []
    assert "do not run this model" in said[0]
