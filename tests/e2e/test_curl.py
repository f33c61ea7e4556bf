"""The commands of the documentation, with the bytes that curl sends and receives; and the table of errors."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.server import Server

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello"}]
OPENAI: Json = {"messages": HELLO, "max_tokens": 12}
ANTHROPIC: Json = {"model": "default", "system": "You are helpful.", "messages": HELLO, "max_tokens": 12}
CHATS = {"/v1/chat/completions": OPENAI, "/v1/messages": ANTHROPIC}


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self) -> Json:
        answer: Json = json.loads(self.body)
        return answer


@pytest.fixture
def connection(server: Server) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    yield connection
    connection.close()


def send(
    connection: http.client.HTTPConnection, path: str, body: object = None, *, method: str = "POST", **headers: str
) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json", **headers})
    return Answer(connection.getresponse())


def events(body: bytes) -> list[tuple[str, str]]:
    """Return names and data. An event is the lines up to an empty line: here a line of data, with or without a line
    of the name before."""
    assert body.endswith(b"\n\n")
    assert b"\r" not in body
    found = []
    for event in body[:-2].decode().split("\n\n"):
        *head, data = event.split("\n")
        assert data.startswith("data: ")
        assert all(line.startswith("event: ") for line in head)
        assert len(head) <= 1
        found.append(("".join(head).removeprefix("event: "), data.removeprefix("data: ")))
    return found


def test_openai_hello(connection: http.client.HTTPConnection) -> None:
    answer = send(connection, "/v1/chat/completions", OPENAI)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    completion = answer.json()
    assert completion["id"].startswith("chatcmpl-")
    assert completion["object"] == "chat.completion"
    [choice] = completion["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] in ("stop", "length")
    usage = completion["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 1 <= usage["completion_tokens"] <= 12


def test_openai_hello_streamed(connection: http.client.HTTPConnection) -> None:
    answer = send(connection, "/v1/chat/completions", OPENAI | {"stream": True})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(answer.body)
    assert done == ("", "[DONE]")
    parsed = [json.loads(data) for name, data in chunks]
    assert not any(name for name, _ in chunks)
    assert {chunk["object"] for chunk in parsed} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in parsed}) == 1
    first, *_, last = [choice for chunk in parsed for choice in chunk["choices"]]
    assert first["delta"]["role"] == "assistant"
    assert first["finish_reason"] is None
    assert last["finish_reason"] in ("stop", "length")


def test_anthropic_hello(connection: http.client.HTTPConnection) -> None:
    answer = send(connection, "/v1/messages", ANTHROPIC)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    message = answer.json()
    assert message["id"].startswith("msg_")
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert message["stop_reason"] in ("end_turn", "max_tokens")
    assert 1 <= message["usage"]["output_tokens"] <= 12


def test_anthropic_hello_streamed(connection: http.client.HTTPConnection) -> None:
    answer = send(connection, "/v1/messages", ANTHROPIC | {"stream": True})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.body)
    assert all(json.loads(data)["type"] == name for name, data in found)
    names = [name for name, _ in found]
    assert names[:2] == ["message_start", "content_block_start"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]


WRONG: dict[str, tuple[int, object, str]] = {
    "broken JSON": (400, b'{"messages": [', "not valid JSON"),
    "no JSON object": (422, [], "JSON object"),
    "a field is missing": (400, {"messages": ...}, "messages"),
    "a value out of range": (400, {"temperature": -1}, "temperature"),
    "an unknown field": (400, {"frobnicate": 1}, "frobnicate"),
    "a wrong type": (422, {"max_tokens": "five"}, "max_tokens"),
    "another model": (404, {"model": "gpt-9"}, "gpt-9"),
}


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize("name", WRONG)
def test_errors(connection: http.client.HTTPConnection, path: str, name: str) -> None:
    """Every wrong request is answered at once, in the shape of the protocol, and the connection stays usable."""
    status, body, words = WRONG[name]
    for stream in (False, True):
        fields = CHATS[path] | {"stream": stream} | body if isinstance(body, dict) else {}
        fields = {field: value for field, value in fields.items() if value is not ...}
        answer = send(connection, path, fields or body)
        assert answer.status == status
        check_shape(path, answer, words)


def check_shape(path: str, answer: Answer, words: str) -> None:
    body = answer.json()
    error = body["error"]
    assert words in error["message"]
    if path == "/v1/messages":
        assert body["type"] == "error"
        assert error["type"] == ("not_found_error" if answer.status == 404 else "invalid_request_error")
    else:
        assert isinstance(error["code"], str)


@pytest.mark.parametrize("path", CHATS)
def test_other_methods(connection: http.client.HTTPConnection, path: str) -> None:
    answer = send(connection, path, method="GET")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    check_shape(path, answer, "GET is not a method")


def test_unknown_paths_are_not_found(connection: http.client.HTTPConnection) -> None:
    assert send(connection, "/v1/nothing", {}).status == 404
    assert send(connection, "/v1/messages/nothing", {}).json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("path", CHATS)
def test_too_large_a_body_is_refused_before_the_body_comes(connection: http.client.HTTPConnection, path: str) -> None:
    connection.putrequest("POST", path)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(10**12))
    connection.endheaders()
    answer = Answer(connection.getresponse())
    assert answer.status == 413
    assert "error" in answer.json()
