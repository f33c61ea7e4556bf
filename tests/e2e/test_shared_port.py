"""Two servers on one port: both answer, a key has its limits once, and the death of a server takes nothing along."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.engine.support import write_tiny_model
from tests.support.processes import wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

PATIENCE_S = 120
KEYS = """
[keys.alice]
key = "sk-alice"
admin = true

[keys.bob]
key = "sk-bob"
requests_per_minute = 1
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("shared")
    model = write_tiny_model(folder / "tiny", context=256, num_heads=2)
    keys = folder / "keys.toml"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    with socket.socket() as reserved:  # a socket that does not listen gets no connections
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        flags = [
            "--model", str(model), "--port", str(reserved.getsockname()[1]), "--share-port", "--threads", "1",
            "--api-key-file", str(keys), "--limits-file", str(folder / "limits.db"),
            "--responses-file", str(folder / "responses.db"), "--batches-file", str(folder / "batches.db"),
        ]  # fmt: skip
        with serving(*flags) as one, serving(*flags) as other:
            assert one.url == other.url
            yield [one, other]


def client(server: Server, key: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"api-key": key}, timeout=PATIENCE_S)


def ask(server: Server, key: str) -> httpx.Response:
    """Send a request in a connection of its own."""
    with client(server, key) as http:
        return http.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 2})


def num_logged(server: Server, what: str) -> int:
    return sum(what in line for line in list(server.said))


def test_both_servers_answer_and_a_key_has_its_limits_once(servers: list[Server]) -> None:
    assert ask(servers[0], "sk-bob").status_code == 200

    def refused_by_both() -> bool:
        answer = ask(servers[0], "sk-bob")
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        return all(num_logged(each, "/v1/completions 429") for each in servers)

    assert wait_until(refused_by_both, PATIENCE_S)


def test_a_batch_is_seen_by_both_servers_and_runs_on_one(servers: list[Server]) -> None:
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hello", "max_tokens": 2}}
    with client(servers[0], "sk-alice") as http:
        file = http.post("/v1/files", files={"file": ("lines.jsonl", json.dumps(line))}, data={"purpose": "batch"})
    wanted = {"input_file_id": file.json()["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    with client(servers[0], "sk-alice") as http:
        batch = http.post("/v1/batches", json=wanted)
    assert batch.status_code == 200, batch.text
    path = f"/v1/batches/{batch.json()['id']}"

    def ended_for_both() -> bool:
        with client(servers[0], "sk-alice") as http:
            found = http.get(path)
        assert found.status_code == 200
        status: dict[str, Any] = found.json()
        return status["status"] == "completed" and all(num_logged(each, "GET /v1/batches/") for each in servers)

    assert wait_until(ended_for_both, PATIENCE_S)


def test_the_other_server_goes_on_when_one_is_killed(servers: list[Server]) -> None:
    servers[1].process.kill()
    servers[1].process.wait()
    for _ in range(8):
        assert ask(servers[0], "sk-alice").status_code == 200
    # The first is allowed if the minute of an earlier one is over, or if this test runs alone.
    assert [ask(servers[0], "sk-bob").status_code for _ in range(2)][-1] == 429


def test_a_shared_port_needs_a_number(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="--share-port needs a fixed --port, not 0"), serving("--share-port"):
        pass
