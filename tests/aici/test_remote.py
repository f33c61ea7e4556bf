"""The client of a server, against a server that sends the bytes of a test."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

import aici
from aici.remote.connection import Server
from aici.remote.controllers import RemoteControllers
from aici_base.errors import (
    AiciError,
    ControllerError,
    ForbiddenError,
    NotFoundError,
    QuotaError,
    RateLimitError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    UsageError,
)


@contextlib.contextmanager
def answering(answer: bytes, *, read_body: bool = True) -> Iterator[tuple[str, list[bytes]]]:
    """A server for one connection. Yield the address and a list, to which the received bytes are appended."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(65536))
                while read_body and b"\r\n\r\n" not in heard[0]:
                    heard[0] += connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        thread.join(10)


def remote(url: str) -> RemoteControllers:
    return RemoteControllers(Server(url))


def http(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        ("400 x", b'{"message": "it is wrong", "hint": "mend it"}', UsageError, "it is wrong"),
        ("400 x", b'{"message": "gone", "code": "not_found_error"}', NotFoundError, "gone"),
        ("400 x", b'{"message": "trap", "code": "controller_error"}', ControllerError, "trap"),
        ("404 x", b'{"error": {"message": "not here", "code": 404}}', UsageError, "not here"),
        ("401 x", b'{"message": "no key", "code": "authentication_error"}', UnauthorizedError, "no key"),
        (
            "401 x",
            b'{"error": {"message": "no key", "type": "authentication_error", "code": 401}}',
            UnauthorizedError,
            "",
        ),
        ("401 x", b"<html>proxy</html>", UnauthorizedError, "<html>proxy</html>"),
        ("403 x", b'{"message": "not yours", "code": "permission_error"}', ForbiddenError, "not yours"),
        ("413 x", b'{"message": "too large", "code": "request_too_large"}', TooLargeError, "too large"),
        ("429 x", b'{"message": "full", "code": "rate_limit_error"}', RateLimitError, "full"),
        ("429 x", b'{"message": "too many", "code": "quota_error"}', QuotaError, "too many"),
        ("429 x", b"slow down", RateLimitError, "slow down"),
        ("502 x", b"<html>proxy</html>", AiciError, "<html>proxy</html>"),
        ("500 x", b"", AiciError, "HTTP status 500"),
        ("400 x", b"[1]", UsageError, "[1]"),
        ("200 x", b"<html>", AiciError, "does not speak AICI REST"),
    ],
)
def test_an_error_reply_becomes_an_error(status: str, body: bytes, kind: type[AiciError], said: str) -> None:
    with answering(http(status, body)) as (url, _), pytest.raises(kind) as error:
        remote(url).tags()
    assert type(error.value) is kind
    assert said in error.value.message


def test_a_missing_key_names_the_flag_and_the_argument() -> None:
    body = b'{"message": "no API key", "hint": "send the header", "code": "authentication_error"}'
    with answering(http("401 x", body)) as (url, _), pytest.raises(aici.UnauthorizedError) as error:
        remote(url).tags()
    assert "#key=" in error.value.hint_for("cli")
    assert "api_key=" in error.value.hint_for("python")


def test_a_full_server_says_when_to_try_again() -> None:
    body = b'{"message": "full", "hint": "", "code": "rate_limit_error"}'
    answer = http("429 x", body).replace(b"\r\n\r\n", b"\r\nRetry-After: 7\r\n\r\n")
    with answering(answer) as (url, _), pytest.raises(aici.RateLimitError) as error:
        remote(url).tags()
    assert error.value.retry_after_s == 7.0
    assert error.value.hint_for("cli") == "try again in 7 s"
    assert error.value.exit_code == 1


def test_a_key_is_sent_and_never_shown() -> None:
    with answering(b"") as (url, heard), pytest.raises(AiciError) as error:
        remote(f"{url}/v1/#key=secret").tags()
    assert heard[0].startswith(b"GET /v1/controllers/tags ")
    assert b"Authorization: Bearer secret\r\n" in heard[0]
    assert b"api-key: secret\r\n" in heard[0]
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("end", [b"", b'data: {"object": "run"'])
def test_an_answer_that_breaks_off_is_an_error(end: bytes) -> None:
    head = b"HTTP/1.1 200 x\r\nContent-Type: text/event-stream\r\n\r\n"
    start = b'data: {"object": "initial-run", "model": "it"}\n\n'
    with answering(head + start + end) as (url, _), aici.LLM(server=url) as llm:
        stream = llm.stream("x")
        events = iter(stream)
        assert next(events) == aici.AcceptedEvent()
        with pytest.raises(AiciError) as error:
            next(events)
    assert "127.0.0.1" in error.value.message


def test_an_answer_before_the_whole_request_is_read_is_received() -> None:
    answer = http("413 x", json.dumps({"message": "too large"}).encode())
    with answering(answer, read_body=False) as (url, _), pytest.raises(AiciError) as error:
        remote(url).upload(bytes(30 << 20))
    assert "too large" in error.value.message or "broke" in error.value.message


def test_an_unreachable_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnreachableError, match="cannot be reached") as error:
        remote(f"http://127.0.0.1:{port}").tags()
    assert "once the model is loaded" in error.value.hint_for("cli")


@pytest.mark.parametrize("url", ["localhost:4242", "ftp://it", "http://", "http://it:port", "http://it:99999999"])
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(UsageError, match="is no server's address"):
        Server(url)
