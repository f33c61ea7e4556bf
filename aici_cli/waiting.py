"""What a command is doing before its first output, on a terminal."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show `text` on stderr if stderr is a terminal, and erase the text when the context ends.

    The cursor stays before the text, so that a line printed meanwhile takes the place of the text.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    _write(f"{text}\r")
    try:
        yield
    finally:
        _write("\x1b[K")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
