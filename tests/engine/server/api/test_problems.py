"""A server that lacks a part tells of it in /health, and serves what needs the part no more."""

import hashlib
from pathlib import Path

from starlette.testclient import TestClient

from aici_controllers.catalog import guest_path
from aici_engine.server.api.app import create_app
from aici_engine.server.link import wire
from aici_engine.server.service.batch_store import BatchStore
from aici_engine.server.service.response_store import ResponseStore
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over

REGEX = hashlib.sha256(guest_path("regex").read_bytes()).hexdigest()
PROMPT = {"model": "it", "prompt": "Hi", "max_tokens": 1}


def test_controllers_that_are_lacking_are_told_and_fail_with_their_name() -> None:
    info = wire.EngineInfo(49152, 2048, 4, lacking={REGEX: "regex"})
    with TestClient(create_app(service_over(FakeEngine(info=info)))) as client:
        assert client.get("/health").json()["problems"] == ["it: controllers that could not be compiled: regex"]
        refused = client.post("/v1/completions", json=PROMPT | {"guided_regex": "a+"})
        assert refused.status_code == 503
        assert "the controller regex could not be compiled" in refused.json()["error"]["message"]
        assert client.post("/v1/completions", json=PROMPT).status_code == 200


def test_stores_without_room_are_told() -> None:
    full = Path("/dev/full")
    with ResponseStore(full) as responses, BatchStore(full) as batches:
        app = create_app(service_over(FakeEngine()), kept_responses=responses, batches=batches)
        with TestClient(app) as client:
            answer = client.get("/health")
            assert answer.status_code == 200
            first, second = answer.json()["problems"]
            assert first.startswith("responses are kept in memory")
            assert second.startswith("files and batches are kept in memory")
            assert "/dev" not in answer.text, "a client learns no path of the server"


def test_without_problems_nothing_is_told() -> None:
    with TestClient(create_app(service_over(FakeEngine()))) as client:
        assert "problems" not in client.get("/health").json()
