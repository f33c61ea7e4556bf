"""Helpers for processes, in processes of their own: forks skip work that the whole process would lose."""

import subprocess
import sys

_LOGS_IN_A_THREAD_OF_A_FORK = """
import logging, os, select
from aici_runtime import process

process.forget_threads()
for generation in range(2):  # a fork, and a fork of the fork
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    read_end, write_end = os.pipe()
    process.start_thread(lambda: (logging.getLogger(f"fork {generation}").warning("said"), os.write(write_end, b"1")))
    if not select.select([read_end], [], [], 20)[0]:
        os._exit(1)
"""


def test_a_thread_of_a_fork_can_log() -> None:
    """The lock that `logging` takes before a fork is free again in the fork."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LOGS_IN_A_THREAD_OF_A_FORK], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "said\n" * 2)
