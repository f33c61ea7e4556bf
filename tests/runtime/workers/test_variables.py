"""Where the variables of a request live: in the guest's process, and after a fork in a process of their own."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from aici_runtime import process
from aici_runtime.workers.request_variables import RequestVariables


@pytest.fixture
def variables() -> Iterator[RequestVariables]:
    pidfd = os.pidfd_open(os.getpid())
    reaping = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as in the spawner: nobody waits for the server
    variables = RequestVariables(pidfd)
    yield variables
    variables.close()
    signal.signal(signal.SIGCHLD, reaping)
    os.close(pidfd)


def append(value: str) -> dict[str, Any]:
    return {"WriteVar": {"name": "a", "value": value, "op": "Append", "when_version_is": None}}


READ = {"ReadVar": {"name": "a"}}


def value_of(answer: bytes) -> tuple[int, str]:
    body = orjson.loads(answer)["ReadVar"]
    return body["version"], body["value"]


def test_what_was_written_before_the_first_fork_is_shared(variables: RequestVariables) -> None:
    variables.execute(append("01"))
    branch = variables.client_for_fork(lambda: None)
    assert value_of(branch.execute(READ)) == (1, "01")
    branch.execute(append("02"))
    assert value_of(variables.execute(READ)) == (2, "0102")
    other = variables.client_for_fork(lambda: None)
    variables.become(branch)
    assert value_of(other.execute(READ)) == value_of(variables.execute(READ)) == (2, "0102")
    other.close()
    branch.close()


def test_refusals_read_the_same_on_both_sides_of_the_first_fork(variables: RequestVariables) -> None:
    texts = []
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^invalid storage command: ") as caught:
            variables.execute({"WriteVar": {"name": "a", "value": "0", "op": "Set"}})
        texts.append(str(caught.value))
        branch = variables.client_for_fork(lambda: None)
    assert texts[0] == texts[1]
    branch.close()


def test_the_guest_is_forgotten_in_the_process_of_the_variables_only(variables: RequestVariables) -> None:
    read_end, write_end = os.pipe()

    def forget() -> None:
        os.write(write_end, b"%d" % os.getpid())

    branch = variables.client_for_fork(forget)
    assert value_of(branch.execute(append("00")) and branch.execute(READ)) == (1, "00")  # so the read has begun
    server = os.pidfd_open(int(os.read(read_end, 64)))
    assert not process.has_ended(server)
    process.kill(server)
    assert process.has_ended(server, timeout_s=10)
    with pytest.raises(ConnectionError, match="are gone"):
        branch.execute(READ)
    branch.close()
    for fd in (server, read_end, write_end):
        os.close(fd)
