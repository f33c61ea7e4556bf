"""`aici bench abuse` against a real server: the rows are there, and a hostile request is refused. No time is tested."""

import json

import pytest

from tests.support.cli import aici
from tests.support.server import Server

pytestmark = pytest.mark.e2e


def test_every_chosen_attack_has_a_row(server: Server) -> None:
    chosen = [word for name in ("honest-1", "stops", "idle") for word in ("--only", name)]
    done = aici("bench", "abuse", "--server", server.url, "--seconds", "0.5", *chosen, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["attack"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {"honest-1", "stops", "stops-allowed", "idle"}
    assert rows["idle"]["left_out"] == "needs a server that it starts"
    assert any(answer.startswith("400 ") for answer in rows["stops"]["answers"])
    for name in set(rows) - {"idle"}:
        assert rows[name]["left_out"] == ""
        assert rows[name]["victim_failures"] == []
        for window in ("clean", "attacked"):
            assert 0 < rows[name][window]["p50_ms"] <= rows[name][window]["p99_ms"] <= rows[name][window]["longest_ms"]
            assert rows[name][window]["wait_ms"] > 0
