"""`aici bench serve` reports every row and column of its table. The values are not tested."""

import json
from pathlib import Path

import pytest

from aici_cli.bench.serve import percentile
from tests.support.cli import aici
from tests.support.server import Server

pytestmark = pytest.mark.e2e


def test_every_load_of_a_server_is_measured(server: Server, tmp_path: Path) -> None:
    picture = tmp_path / "serve.svg"
    levels = ["--concurrency", "1", "--concurrency", "4", "--rate", "40"]
    wanted = ["--quick", "--num-tokens", "2", *levels, "--json", "--plot", str(picture)]
    done = aici("bench", "serve", "--server", server.url, *wanted)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["load"], row["kind"]) for row in rows] == [
        (load, kind) for load in ("1 clients", "4 clients", "40 requests/s") for kind in ("plain", "regex")
    ]
    for row in rows:
        assert row["errors"] == 0, row["first_error"]
        assert row["tokens_per_s"] == pytest.approx(2 * row["requests_per_s"])
        assert 0 < row["first_token_p50_ms"] <= row["first_token_p99_ms"]
        assert row["inter_token_p50_ms"] <= row["inter_token_p99_ms"]
        assert row["first_token_p50_ms"] <= row["total_p50_ms"]
        assert row["to_plain"] == 1 if row["kind"] == "plain" else row["to_plain"] > 0
    assert "<svg" in picture.read_text()


def test_unreachable_servers_and_wrong_addresses() -> None:
    for url, code, says in (
        ("http://127.0.0.1:9", 1, "every request failed"),
        ("nowhere", 2, "is no server's address"),
    ):
        done = aici("bench", "serve", "--server", url, "--quick")
        assert done.returncode == code
        assert says in done.stderr


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 99) == 99.0
    assert percentile([5.0], 99) == 5.0
