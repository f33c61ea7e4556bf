"""Messages from the lines of a terminal or a pipe.

A line is a message. A backslash at the end of a line, or `\"\"\"` around the text, makes a message of several lines.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from aici_base.errors import UsageError
from aici_cli.chat.commands import COMMANDS

QUOTES: Final = '"""'
_KEPT_LINES: Final = 1000

Read: TypeAlias = Callable[[bool], str]
"""Returns the next line without the newline; the argument tells that the line continues a message. Raises EOFError."""


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def messages(read: Read, *, interruptible: bool) -> Iterator[str]:
    """Yield messages that are not blank, until the input ends. If `interruptible`, Ctrl-C drops the typed lines."""
    while True:
        try:
            message, is_last = _message(read)
        except KeyboardInterrupt:
            if not interruptible:
                raise
            print()
            continue
        if message.strip():
            yield message
        if is_last:
            return


def _message(read: Read) -> tuple[str, bool]:
    """Return a message, and whether the input has ended."""
    lines: list[str] = []
    is_quoted = False
    try:
        while True:
            line = read(bool(lines) or is_quoted)
            if not lines and not is_quoted and line.lstrip().startswith(QUOTES):
                is_quoted, line = True, line.lstrip().removeprefix(QUOTES)
                if not line.strip():
                    continue
            if is_quoted and line.rstrip().endswith(QUOTES):
                last = line.rstrip().removesuffix(QUOTES)
                return "\n".join([*lines, last] if last.strip() else lines), False
            if not is_quoted and not line.endswith("\\"):
                return "\n".join([*lines, line]), False
            lines.append(line if is_quoted else line.removesuffix("\\"))
    except EOFError:
        return "\n".join(lines), True


@contextlib.contextmanager
def typed_lines(prompt: Callable[[], str], *, keep: bool) -> Iterator[Read]:
    """Give lines typed at the terminal, with the keys of readline. `keep`: with the lines of earlier chats."""
    with _readline(keep=keep):
        yield lambda continued: _typed("... " if continued else prompt())


def _typed(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        print()
        raise
    except UnicodeDecodeError as error:
        raise UsageError("the line is not UTF-8") from error


def piped_line(_continued: bool) -> str:
    """Return the next line of stdin."""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from error
    if not line:
        raise EOFError
    return line.removesuffix("\n")


@contextlib.contextmanager
def _readline(*, keep: bool) -> Iterator[None]:
    try:
        import readline
    except ImportError:  # a Python without readline: lines have no history
        yield
        return
    names = [f"/{name}" for name in COMMANDS]
    readline.set_history_length(_KEPT_LINES)

    def complete(text: str, number: int) -> str | None:
        fitting = [name for name in names if text and name.startswith(text)]
        return f"{fitting[number]} " if number < len(fitting) else None

    readline.set_completer_delims(" \t\n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    file = history_file()
    if keep:
        with contextlib.suppress(OSError):
            readline.read_history_file(file)
    try:
        yield
    finally:
        if keep:
            with contextlib.suppress(OSError):
                _write_history(file, readline.write_history_file)


def _write_history(file: Path, write: Callable[[Path], None]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))  # for the user alone: what was said is nobody else's
    write(file)


def history_file() -> Path:
    """Return `$XDG_STATE_HOME/aici/chat-history`, by default in `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "aici" / "chat-history"
