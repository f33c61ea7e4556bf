"""Warnings in responses: a header, which comes before the first byte of the body, and a field of the body."""

import json
from collections.abc import Sequence
from typing import Any

_HEADER = "aici-warnings"
_MAX_HEADER_BYTES = 4096


def warning_headers(warnings: Sequence[str]) -> dict[str, str]:
    """Return the header: a JSON list of strings, in ASCII. Warnings that do not fit are counted by the last string."""
    if not warnings:
        return {}
    for kept in range(len(warnings), 0, -1):
        header = _header([*warnings[:kept], *_left_out(len(warnings) - kept)])
        if len(header) <= _MAX_HEADER_BYTES:
            return {_HEADER: header}
    return {_HEADER: _header(_left_out(len(warnings)))}


def warning_field(warnings: Sequence[str]) -> dict[str, Any]:
    """Return the field `warnings` of a body; nothing without warnings."""
    return {"warnings": list(warnings)} if warnings else {}


def _left_out(count: int) -> list[str]:
    return [f"{count} more: see the field `warnings` of the body"] if count else []


def _header(warnings: Sequence[str]) -> str:
    return json.dumps(warnings, separators=(",", ":"))
