"""Errors that are not the request's fault (a full queue, a failing engine, no engine), in every protocol's shape."""

from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from aici_base.errors import AiciError, UnavailableError
from aici_engine.server.link import wire
from aici_engine.server.service.service import Service
from tests.support.fake_engine import Script, fails, says
from tests.support.fake_service import ServiceClient, fake_service

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"model": "it", "messages": MESSAGES, "max_tokens": 8}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v1/completions", {"model": "it", "prompt": "Hi"}),
    ("/v1/completions", {"model": "it", "prompt": "Hi", "stream": True}),
    ("/v1/messages", CHAT),
    ("/v1/messages", CHAT | {"stream": True}),
    ("/v1/run", {"controller": "none", "controller_arg": "Hi"}),
]
ANTHROPIC = {400: "invalid_request_error", 429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}
each_request = pytest.mark.parametrize(("path", "body"), REQUESTS)


def server(*scripts: Script) -> tuple[Service, TestClient]:
    service, _ = fake_service(*scripts)
    return service, ServiceClient(service)


def check(answer: httpx2.Response, path: str, status: int, words: str) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    body = answer.json()
    error = body if path == "/v1/run" else body["error"]
    assert words in error["message"]
    if path == "/v1/messages":
        assert (body["type"], error["type"]) == ("error", ANTHROPIC[status])
    elif path != "/v1/run":
        assert isinstance(error["code"], str)


@each_request
def test_a_full_queue(path: str, body: dict[str, Any]) -> None:
    service, http = server(says("Hello"))
    service.admission.num_admitted = service.admission.capacity
    answer = http.post(path, json=body)
    service.admission.num_admitted = 0
    check(answer, path, 429, "the queue is full")
    assert int(answer.headers["retry-after"]) >= 1
    assert http.post(path, json=body).status_code == 200
    assert service.admission.num_admitted == 0


@each_request
@pytest.mark.parametrize(
    ("error", "status"), [(UnavailableError("the engine died"), 503), (AiciError("the engine failed"), 500)]
)
def test_a_failure_before_the_first_token(path: str, body: dict[str, Any], error: AiciError, status: int) -> None:
    service, http = server(fails(wire.Failure.of(error)))
    check(http.post(path, json=body), path, status, error.message)
    assert (service.admission.num_admitted, service.client.num_streams) == (0, 0)


@each_request
@pytest.mark.parametrize(
    "value", ['"\\ud800"', "NaN", "-Infinity", "1e999", "[" * 20_000 + "]" * 20_000, '"\xff"'.encode("latin-1"), "{"]
)
def test_invalid_json(path: str, body: dict[str, Any], value: str | bytes) -> None:
    """Invalid JSON that Python's own parser accepts."""
    service, http = server(says("Hello"))
    data = value.encode() if isinstance(value, str) else value
    raw = b'{"unknown": ' + data + b"}"
    answer = http.post(path, content=raw, headers={"Content-Type": "application/json"})
    check(answer, path, 400, "the body is not valid JSON")
    assert not service.admission.num_admitted


@each_request
def test_no_engine(path: str, body: dict[str, Any]) -> None:
    service, http = server(says("Hello"))
    service.client.lost(UnavailableError("the engine died"))
    check(http.post(path, json=body), path, 503, "the engine is not up")
    assert http.get("/health").status_code == 503
    assert service.admission.num_admitted == 0


@each_request
def test_a_stopping_server(path: str, body: dict[str, Any]) -> None:
    service, http = server(says("Hello"))
    service.admission.drain_begun.set()
    check(http.post(path, json=body), path, 503, "the server is stopping")
    assert http.get("/ready").status_code == 503
    assert http.get("/health").status_code == 200
