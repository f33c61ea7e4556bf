"""How the command line speaks: results on stdout, all else on stderr; an error says what is so and what to do."""

import os
import sys
from typing import Any

from aici_base.errors import AiciError


def say(line: str) -> None:
    """A line of progress for the user."""
    print(line, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    # orjson would do it faster, but `aici models list --json` should not need to import it.
    import json

    sys.stdout.buffer.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")


def print_error(error: AiciError) -> None:
    """`error: what is so`, then ` hint: what to do`. Plain text, because markup in a message must not be obeyed."""
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
