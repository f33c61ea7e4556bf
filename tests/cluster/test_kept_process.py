"""A child that is started again when it ends, and never outlives its owner."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait

import pytest

from aici_engine.cluster.kept_process import KeptProcess
from tests.support.descriptors import no_descriptor_left
from tests.support.processes import alive, descendants, wait_until

SAYS_ITS_PID = "import os, time; print('hello'); print(f'ready {os.getpid()}', flush=True); time.sleep(60)"


def _ready(line: str) -> str | None:
    return line.removeprefix("ready ") if line.startswith("ready ") else None


@contextlib.contextmanager
def kept(program: str, **given: object) -> Iterator[KeptProcess]:
    process = KeptProcess(
        [sys.executable, "-c", program], listen=_ready, **{"ready_timeout_s": 30.0, "quiet": True, **given}
    )
    try:
        yield process
    finally:
        process.end()
        assert process.pid is None
        assert process.fds == []


def turn(process: KeptProcess, done: Callable[[], bool], timeout_s: float = 20) -> None:
    """Run the owner's loop until `done()`."""
    limit = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < limit, process.last_words()
        wait_s = limit - time.monotonic() if process.deadline is None else max(0, process.deadline - time.monotonic())
        wait(process.fds, wait_s)
        process.advance()


def test_the_answer_is_the_line_that_says_ready() -> None:
    with kept(SAYS_ITS_PID) as process:
        turn(process, lambda: process.answer is not None)
        assert process.answer == str(process.pid)
        assert process.deadline is None


def test_a_killed_process_is_started_again() -> None:
    with kept(SAYS_ITS_PID) as process:
        turn(process, lambda: process.answer is not None)
        first = process.answer
        process.kill()
        turn(process, lambda: process.answer not in (None, first))
        assert process.num_starts == 2


def test_every_life_hears_the_latest_line() -> None:
    with kept("for line in open(0): print('ready', line.strip(), flush=True)") as process:
        process.tell("a")
        turn(process, lambda: process.answer == "a")
        process.tell("b")
        turn(process, lambda: process.answer == "b")
        process.kill()
        turn(process, lambda: process.num_starts == 2 and process.answer == "b")


def test_a_process_that_ends_at_once_is_started_later_each_time() -> None:
    with kept("print('no'); raise SystemExit('bad flag')") as process:
        turn(process, lambda: process.num_starts == 4)
        pauses = []
        for starts in (5, 6):
            begin = time.monotonic()
            turn(process, lambda starts=starts: process.num_starts == starts)
            pauses.append(time.monotonic() - begin)
        assert pauses[1] > pauses[0] > 0.3
        turn(process, lambda: process.pid is None)
        assert "bad flag" in process.last_words()


def test_a_process_that_is_never_ready_is_killed() -> None:
    with kept("import time; time.sleep(60)", ready_timeout_s=0.2) as process:
        turn(process, lambda: process.num_starts == 2)


def test_a_start_waits_until_it_may() -> None:
    asked = []
    with kept(SAYS_ITS_PID, may_start=lambda: asked.append(1) or len(asked) > 2) as process:
        turn(process, lambda: process.answer is not None)
        assert (len(asked), process.num_starts) == (3, 1)


def test_the_end_reaches_the_whole_group_and_a_deaf_process() -> None:
    deaf = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork(); print('ready x', flush=True); time.sleep(60)\n"
    )
    with kept(deaf) as process:
        turn(process, lambda: process.answer is not None)
        assert process.pid is not None
        group = descendants(process.pid) | {process.pid}
        process.end(grace_s=0.2)
        assert wait_until(lambda: not alive(group), 5)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_ends_with_its_owner(number: signal.Signals) -> None:
    owner = (
        "import sys, time\n"
        "from aici_engine.cluster.kept_process import KeptProcess\n"
        "p = KeptProcess([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(60)'],"
        " listen=lambda line: line, ready_timeout_s=30)\n"
        "while p.answer is None: p.advance(); time.sleep(0.01)\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True) as popen:
        assert popen.stdout is not None
        child = int(popen.stdout.readline())
        popen.send_signal(number)
        popen.wait()
        assert wait_until(lambda: not alive({child}), 5)


def test_a_start_that_the_kernel_refuses_is_tried_again() -> None:
    with kept(SAYS_ITS_PID) as process:
        with no_descriptor_left():
            process.advance()
        assert (process.pid, process.num_starts) == (None, 0)
        assert "cannot be started" in process.last_words()
        turn(process, lambda: process.answer is not None)
        assert process.num_starts == 1
