"""Compilers are processes that end with the build."""

import os
import signal
import sys
from pathlib import Path

import pytest

from aici_base.errors import ControllerError
from aici_controllers.compilers import Command, run, run_all
from tests.support.processes import alive, wait_until

# A driver that starts the real compiler as a child process and writes the child's pid.
_SLOW = ("sh", "-c", 'sleep 60 & echo $! > "$0.new"; mv "$0.new" "$0"; wait')


def _shell(script: str) -> Command:
    return Command(argv=["sh", "-c", script], wrong="it does not compile")


def _await_end(note: Path) -> None:
    pid = int(note.read_text())
    assert wait_until(lambda: not alive({pid}), 20)


def test_what_they_say_comes_in_order() -> None:
    assert run_all([_shell("sleep 0.1; echo one >&2"), _shell("echo no"), _shell("echo three >&2")]) == [
        "one\n",
        "",
        "three\n",
    ]


def test_a_failure_shows_what_was_said() -> None:
    with pytest.raises(ControllerError) as failed:
        run(_shell("echo no such thing >&2; exit 1"))
    assert failed.value.message == "it does not compile\nno such thing"


def test_a_failure_ends_the_others(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(ControllerError):
        run_all(
            [
                _shell(f"while [ ! -e {note} ]; do sleep 0.01; done; exit 1"),
                Command(argv=[*_SLOW, str(note)], wrong="slow"),
            ]
        )
    _await_end(note)


def test_a_signal_ends_them(tmp_path: Path) -> None:
    """`aici` turns SIGTERM into an exception; the interrupted build does not wait for a compiler."""
    note = tmp_path / "pid"
    script = f"""
import signal, sys
from aici_controllers.compilers import Command, run
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
try: run(Command(argv={[*_SLOW, str(note)]}, wrong="slow"))
except KeyboardInterrupt: sys.exit(7)
"""
    child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", script])
    assert wait_until(note.exists, 20)
    os.kill(child, signal.SIGTERM)
    assert wait_until(lambda: not alive({child}), 20)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    _await_end(note)
