"""AICI REST over plain HTTP, to a real server."""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from aici_engine.server.service.constraints import module_id
from tests.support.guests import build_test_guest
from tests.support.processes import wait_until
from tests.support.server import Server

pytestmark = pytest.mark.e2e


def post(server: Server, path: str, body: object) -> tuple[int, bytes]:
    is_raw = isinstance(body, bytes)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/wasm" if is_raw else "application/json"}
    try:
        with urlopen(Request(f"{server.url}/v1/{path}", data, headers), timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def run(server: Server, **fields: object) -> dict[str, Any]:
    """Return the outcome of the run, or the status and message if the server refused the run."""
    status, body = post(server, "run", {"controller": "none", "controller_arg": "", "prompt": "Once upon"} | fields)
    if status != 200:
        return {"status": status, "message": json.loads(body)["message"]}
    *events, done, _ = body.decode().split("\n\n")
    assert done == "data: [DONE]"
    start, *runs = [json.loads(event.removeprefix("data: ")) for event in events]
    assert start["object"] == "initial-run"
    forks = [run["forks"][0] for run in runs]
    assert all("finish_reason" not in fork for fork in forks[:-1])
    costs = [run["usage"]["cost"] for run in runs]
    assert costs == sorted(costs)
    return {
        "text": "".join(fork["text"] for fork in forks),
        "logs": "".join(fork["logs"] for fork in forks),
        "storage": [command for fork in forks for command in fork["storage"]],
        "error": forks[-1]["error"],
        "reason": forks[-1]["finish_reason"],
        "usage": runs[-1]["usage"],
        "num_runs": len(runs),
    }


@pytest.fixture(scope="module")
def upload(server: Server) -> Callable[[str], str]:
    def upload(guest: str) -> str:
        status, body = post(server, "controllers", build_test_guest(guest).read_bytes())
        assert status == 200, body
        uploaded: str = json.loads(body)["module_id"]
        return uploaded

    return upload


def test_plain_generation(server: Server) -> None:
    out = run(server, max_tokens=6)
    assert out["reason"] == "length"
    assert out["num_runs"] == 6  # one run per step
    usage = {"prompt_tokens": 2, "sampled_tokens": 6, "ff_tokens": 7, "cost": 19, "forced_tokens": 0}
    assert out["usage"] == usage
    assert run(server, max_tokens=6, prompt=None, controller_arg="Once upon")["text"] == out["text"]


def test_a_shipped_controller(server: Server) -> None:
    out = run(server, controller="regex", controller_arg=r"\d\d", prompt="The answer is ")
    assert out["text"].isdecimal()
    assert (len(out["text"]), out["reason"]) == (2, "aici-stop")
    assert "regex constraint" in out["logs"]


def test_upload_tag_and_run(server: Server, upload: Callable[[str], str]) -> None:
    splice = upload("splice")
    assert upload("splice") == splice
    status, body = post(server, "controllers/tags", {"module_id": splice, "tags": ["e2e-splice"]})
    assert status == 200, body
    with urlopen(f"{server.url}/v1/controllers/tags", timeout=60) as answer:
        tags = {tag["tag"]: tag["module_id"] for tag in json.load(answer)["tags"]}
    assert tags["e2e-splice"] == splice
    assert {"regex", "grammar", "json_schema", "choices", "substring"} <= tags.keys()
    out = run(server, controller="e2e-splice", controller_arg="forty-two")
    head, arrow, tail = out["text"].partition(" ↩ ")
    assert head.startswith("forty-two")
    assert (arrow, tail) == (" ↩ ", "forty-two")
    assert out["reason"] in ("aici-stop", "eos")


def test_variables_and_logs(server: Server, upload: Callable[[str], str]) -> None:
    out = run(server, controller=upload("vars"), controller_arg=None)
    assert out["logs"] == "missing\nx=one\nx=one, two\nbytes ok\n"
    writes = [command["WriteVar"] for command in out["storage"]]
    assert [(write["name"], write["value"], write["op"]) for write in writes] == [
        ("x", b"one".hex(), "Set"),
        ("x", b", two".hex(), "Append"),
        ('a "b"', b'\0\xff"'.hex(), "Set"),
    ]


def test_a_controller_that_fails_at_work_ends_in_the_stream(server: Server, upload: Callable[[str], str]) -> None:
    out = run(server, controller=upload("trap"), controller_arg=None)
    assert out["reason"] == "fail"
    assert "unreachable" in out["error"]


@pytest.mark.parametrize(
    ("controller", "status", "said"),
    [
        ("no-such-tag", 400, "While executing instantiate:\ntag no-such-tag not found"),
        ("ab" * 32, 400, "While executing instantiate:\nmodule abab"),
    ],
)
def test_an_unknown_controller(server: Server, controller: str, status: int, said: str) -> None:
    out = run(server, controller=controller)
    assert out["status"] == status
    assert out["message"].startswith(said)


def test_the_message_of_a_controller_at_its_start_is_the_error(server: Server) -> None:
    """Named by id, the controller runs unchecked: its own message at the start becomes the error."""
    out = run(server, controller=module_id("regex"), controller_arg="a(")
    assert out["status"] == 400
    assert out["message"].startswith("While executing instantiate:\n")
    assert "regex error at position 1: missing ')'" in out["message"]
    assert "aici_host_stop" not in out["message"]


def test_invalid_modules_are_refused_by_the_compiler(server: Server) -> None:
    status, body = post(server, "controllers", b"\0asm\1\0\0\0junk")
    assert status == 400
    assert "cannot compile the module" in json.loads(body)["message"]


def leave(server: Server, max_tokens: int) -> None:
    """Ask for a long text, read the beginning, and reset the connection."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    request = {"controller": "none", "controller_arg": "Once", "ignore_eos": True, "max_tokens": max_tokens}
    body = json.dumps(request).encode()
    headers = [f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join(["POST /v1/run HTTP/1.1", *headers, "", ""])
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        seen = b""
        while b'"object":"run"' not in seen:
            seen += connection.recv(4096)
        # A reset makes the server's next write fail.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_clients_that_leave_end_their_sequences_and_nothing_else(server: Server) -> None:
    for _ in range(5):
        leave(server, max_tokens=5000)
    assert wait_until(lambda: server.stats()["active_requests"] == 0, 20)
    assert server.stats()["cache_usage"] == 0.0
    assert server.process.poll() is None
