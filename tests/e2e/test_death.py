"""A process is killed in the middle of a generation: the run ends soon, with a message, and nothing is left."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.cli import AICI, aici
from tests.support.processes import alive, command, descendants, shared_objects, wait_until

LONG = ["run", "--regex", "[a-z ]{4000}", "--max-tokens", "3000", "Once upon a time"]


@contextmanager
def generating() -> Iterator[subprocess.Popen[bytes]]:
    """`aici run` in the middle of a long text."""
    with subprocess.Popen(
        [*AICI, *LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as run:
        family = set[int]()
        try:
            assert run.stdout is not None
            assert run.stdout.read(1), run.stderr.read() if run.stderr else ""
            family = descendants(run.pid)
            yield run
        finally:
            for pid in alive({run.pid} | family):
                os.kill(pid, signal.SIGKILL)


def runtime_of(run: subprocess.Popen[bytes]) -> int:
    return next(pid for pid in descendants(run.pid) if command(pid) == "aicirt")


def test_killing_the_runtime_ends_the_run_with_a_message() -> None:
    with generating() as run:
        family = descendants(run.pid)
        os.kill(runtime_of(run), signal.SIGKILL)
        assert run.wait(10) == 1
        assert run.stderr is not None
        assert b"error: " in (said := run.stderr.read())
        assert b"runtime" in said
        assert wait_until(lambda: not alive(family), 2), {pid: command(pid) for pid in alive(family)}
        assert not shared_objects(run.pid)


def test_killing_the_run_takes_its_runtime_along() -> None:
    with generating() as run:
        family = descendants(run.pid)
        assert {"aicirt", "aicirt-pool"} <= {command(pid) for pid in family}
        run.kill()
        assert wait_until(lambda: not alive(family), 6), {pid: command(pid) for pid in alive(family)}
        aici("run", "--max-tokens", "1", "--regex", "a", "x")
        assert not shared_objects(run.pid)


def test_killing_the_pool_of_a_guest_fails_its_request_with_a_message() -> None:
    with generating() as run:
        worker = next(pid for pid in descendants(run.pid) if command(pid) == "aicirt-pool")
        os.kill(worker, signal.SIGKILL)
        assert run.wait(10) == 1
        assert run.stderr is not None
        assert b"error: " in run.stderr.read()


def test_ctrl_c_ends_by_sigint_and_leaves_nothing() -> None:
    with generating() as run:
        family = descendants(run.pid)
        run.send_signal(signal.SIGINT)
        assert run.wait(10) == -signal.SIGINT
        assert run.stderr is not None
        assert run.stderr.read() == b""
        assert wait_until(lambda: not alive(family), 2)
        assert not shared_objects(run.pid)


def test_ctrl_c_works_when_the_runtime_does_not_answer() -> None:
    with generating() as run:
        family = descendants(run.pid)
        os.kill(runtime_of(run), signal.SIGSTOP)
        run.send_signal(signal.SIGINT)
        assert run.wait(10) == -signal.SIGINT
        assert wait_until(lambda: not alive(family), 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_while_it_starts_leaves_no_names(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*AICI, *LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as run:
        try:
            assert wait_until(lambda: bool(shared_objects(run.pid)), 30)
            family = descendants(run.pid)
            run.send_signal(number)
            assert run.wait(20) == -number
            assert not shared_objects(run.pid)
            assert wait_until(lambda: not alive(family), 2)
        finally:
            run.kill()
