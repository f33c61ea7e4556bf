"""A program that runs upstream AICI's command line from a checkout of the original, as its user does."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from features import feature

ORIGINAL = Path(os.environ["AICI_ORIGINAL"])
FOLDER = Path(tempfile.mkdtemp(prefix="aici-original-"))
SCRIPT = """\
import pyaici.server as aici

async def main():
    await aici.FixedTokens("The answer is")
    await aici.gen_tokens(regex=r" [0-9]", max_tokens=4)

aici.start(main())
"""


def aici(*args: str, stdin: str = "") -> str:
    environment = os.environ | {"AICI_API_BASE": f"{sys.argv[1]}/v1/", "PYTHONPATH": str(ORIGINAL / "py")}
    command = [sys.executable, "-m", "pyaici.cli", *args]
    run = subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, timeout=100, cwd=FOLDER, check=False
    )
    assert run.returncode == 0, run.stdout[-300:] + run.stderr[-300:]
    return run.stdout


@feature("chat", "infer")
def _() -> bool:
    return "Usage" in aici("infer", "Once upon a time", "-t", "8")


@feature("constraints", "run FILE.js, which names the guest gh:microsoft/aici/jsctrl")
def _() -> bool:
    return "Usage" in aici("run", str(ORIGINAL / "controllers" / "jsctrl" / "samples" / "hello.js"))


@feature("constraints", "run FILE.py")
def _() -> bool:
    (FOLDER / "a.py").write_text(SCRIPT)
    return "The answer is" in aici("run", str(FOLDER / "a.py"))


@feature("constraints", "run FILE.json")
def _() -> bool:
    return "Usage" in aici("run", str(ORIGINAL / "controllers" / "declctrl" / "arg.json"))


@feature("constraints", "tags")
def _() -> bool:
    return "jsctrl" in aici("tags")


@feature("errors")
def _() -> bool:
    try:
        aici("run", "-", "-c", "nosuch", stdin="x")
    except AssertionError as error:
        return "nosuch" in str(error)
    return False
