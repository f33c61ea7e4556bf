"""Output of the command line: results go to stdout, progress and errors to stderr.

An error has a message and a hint.
"""

import os
import sys
from typing import Any

from aici_base.errors import AiciError


def say(line: str) -> None:
    """Print a line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    # json is slower than orjson, but `aici models list --json` needs no import of orjson.
    import json

    sys.stdout.buffer.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")


def print_error(error: AiciError) -> None:
    """Print `error: MESSAGE`, then ` hint: HINT`. Plain text: markup in a message must have no effect."""
    red, dim, reset = ("\x1b[31m", "\x1b[2m", "\x1b[0m") if _colored() else ("", "", "")
    print(f"{red}error:{reset} {error.message}", file=sys.stderr)
    if hint := error.hint_for("cli"):
        print(f" {dim}hint:{reset} {hint}", file=sys.stderr)


def _colored() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
