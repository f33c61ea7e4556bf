"""Checks the lines of a batch before the first line runs."""

from collections.abc import Iterable
from typing import Any, Final

from aici_engine.server.batches.line import LineError, read_line
from aici_engine.server.config import MAX_BODY_BYTES

_MAX_SHOWN: Final = 100


def check_lines(
    lines: Iterable[tuple[int, bytes]], endpoint: str, max_lines: int, max_line_bytes: int = MAX_BODY_BYTES
) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of lines, and what is wrong, at most _MAX_SHOWN problems in the form of OpenAI's API."""
    seen: dict[str, int] = {}
    wrong: list[dict[str, Any]] = []
    num_lines = 0
    for number, text in lines:
        num_lines += 1
        if num_lines > max_lines:
            wrong.append(_problem("too_many_lines", f"the file has more than {max_lines} lines"))
            break
        try:
            line = read_line(text, (endpoint,), max_bytes=max_line_bytes)
            if (first := seen.setdefault(line.custom_id, number)) != number:
                message = f"the custom_id {line.custom_id!r} is that of line {first} too"
                raise LineError("duplicate_custom_id", message, param="custom_id")
        except LineError as error:
            wrong.append(_problem(error.error_code, error.message, line=number, param=error.param or None))
        if len(wrong) == _MAX_SHOWN:
            break
    if not num_lines:
        wrong.append(_problem("empty_file", "the file has no lines"))
    return num_lines, wrong


def _problem(code: str, message: str, *, line: int | None = None, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}
