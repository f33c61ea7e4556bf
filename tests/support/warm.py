"""Run `aici` in a process forked from a parent with torch imported: saves four seconds of a processor.

Some tests start a fresh interpreter, as a user does (`tests.support.cli.aici`). Tests that only look at the model's
output need no fresh interpreter.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

from aici_cli.main import main

_TIMEOUT_S = 100
_context = get_context("forkserver")
_context.set_forkserver_preload(["tests.support.preloaded"])


def warm_aici(*args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `aici ARGS` to the end, like `tests.support.cli.aici`."""
    with tempfile.TemporaryDirectory(prefix="aici-warm-") as name:
        streams = [Path(name) / number for number in "012"]
        for stream in streams:
            stream.write_text(stdin if stream.name == "0" else "")
        process = _context.Process(target=_run, args=(args, os.environ | (env or {}), os.getcwd(), streams))
        process.start()
        process.join(_TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["aici", *args], _TIMEOUT_S)
        return subprocess.CompletedProcess(
            ["aici", *args], process.exitcode, streams[1].read_text(), streams[2].read_text()
        )


def _run(args: Sequence[str], env: Mapping[str, str], folder: str, streams: Sequence[Path]) -> None:
    for number, stream in enumerate(streams):
        descriptor = os.open(stream, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # multiprocessing has closed it
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["aici", *args]
    main()
