"""Output of the command line: results go to stdout, progress and errors to stderr.

An error has a message and a hint.
"""

import os
import sys
from typing import Any

from aici_base.errors import AiciError
from aici_base.plain_text import without_controls


def say(line: str) -> None:
    """Print a line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def on_stdout(text: str) -> str:
    """Return a text of a model for stdout: on a terminal, which a model must not command, control characters as
    escapes."""
    return without_controls(text, keep="\n\t") if sys.stdout.isatty() else text


def print_json(document: Any) -> None:
    # json is slower than orjson, but `aici models list --json` needs no import of orjson.
    import json

    sys.stdout.buffer.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")


def print_error(error: AiciError) -> None:
    """Print `error: MESSAGE`, then ` hint: HINT`. Plain text: markup in a message must have no effect."""
    red, dim, reset = ("\x1b[31m", "\x1b[2m", "\x1b[0m") if _colored() else ("", "", "")
    print(f"{red}error:{reset} {_shown(error.message)}", file=sys.stderr)
    if hint := error.hint_for("cli"):
        print(f" {dim}hint:{reset} {_shown(hint)}", file=sys.stderr)


def _shown(text: str) -> str:
    """Return a text for stderr: an error may quote a model or a server."""
    return without_controls(text, keep="\n\t")


def _colored() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
