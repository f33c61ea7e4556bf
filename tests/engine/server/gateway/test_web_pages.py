"""Pages of other sites cannot use the server, not even under a name that was bound again to this machine."""

import socket

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.web_pages import names_of_this_machine
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over

BODY = {"text": "a", "model": "default"}
OWN = {"host": "localhost:4242", "origin": "http://localhost:4242"}


def status(path: str, headers: dict[str, str], *, method: str = "GET", hosts: frozenset[str] | None = None) -> int:
    app = create_app(service_over(FakeEngine()), cors_origins=["https://mine.example"], hosts=hosts)
    answer = TestClient(app).request(method, path, headers=headers, json=BODY if method == "POST" else None)
    if answer.status_code == 403:
        assert "--allow-host" in answer.text or "--cors-origin" in answer.text
    return answer.status_code


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, True),
        (OWN, True),
        ({"origin": "https://mine.example"}, True),
        ({**OWN, "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "http://localhost:4242"}, False),  # another port of this machine
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_a_page_of_another_origin_changes_nothing(headers: dict[str, str], wanted: bool) -> None:
    assert (status("/v1/run", headers, method="POST") != 403) == wanted
    assert status("/v1/models", headers) == 200  # the browser keeps the answer from the page
    app = create_app(service_over(FakeEngine()), cors_origins=["https://mine.example"])
    connection = TestClient(app).websocket_connect("/lmtp?greeting=1", headers=headers)
    if wanted:
        with connection as lmtp:
            assert "ready" in lmtp.receive_text()
    else:
        with pytest.raises(WebSocketDenialResponse) as refused, connection:
            pass
        assert refused.value.status_code == 403


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("app.localhost:4242", 200),
        ("127.0.0.1:4242", 200),
        ("192.168.0.7", 200),
        ("[::1]:4242", 200),
        ("[::1]", 200),
        ("gpu-box:4242", 200),
        (socket.gethostname(), 200),
        ("evil.example", 403),
        ("evil.example:4242", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_only_names_of_this_machine_are_served(host: str, wanted: int) -> None:
    hosts = names_of_this_machine("gpu-box")
    assert status("/v1/models", {"host": host}, hosts=hosts) == wanted
    assert status("/health", {"host": host}, hosts=frozenset({"*"})) == 200
    assert status("/v1/models", {"host": host}) == 200  # with keys: a page cannot know a key
