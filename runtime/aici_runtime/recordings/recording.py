"""Read a file written by `--trace`: one session for each runtime that wrote to the file. See `trace.py`.

Recordings of upstream's Python client can be read too: one session without any facts about its runtime.
"""

import base64
import binascii
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from aici_base.errors import UsageError
from aici_runtime.channels.mailbox import Side
from aici_runtime.recordings.trace import FORMAT


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """A command and its response. `response` None: no response was sent. `line`: the line number in the file."""

    line: int
    side: Side
    message: bytes
    command: Any
    response: Any
    masks: dict[str, Any]

    @property
    def tags(self) -> set[str]:
        """Return the tags set by this exchange."""
        is_set = isinstance(self.command, dict) and self.command.get("op") == "set_tags"
        is_done = isinstance(self.response, dict) and self.response.get("type") == "ok"
        return set(self.command["tags"]) if is_set and is_done else set()


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The exchanges with one runtime. `flags`, `tokenizer` and so on describe the recorded runtime, if the file says
    so."""

    flags: tuple[str, ...] | None = None
    tokenizer: str = ""
    tokenizer_sha256: str | None = None
    dtype: str = "f32"
    modules: set[bytes] = field(default_factory=set)
    exchanges: list[RecordedExchange] = field(default_factory=list)

    @property
    def is_v1(self) -> bool:
        """Whether the session speaks protocol v1 (pre, mid, post)."""
        commands = (one.command for one in self.exchanges)
        return any(
            isinstance(command, dict) and command.get("op") in ("post_pre_process", "turn_process")
            for command in commands
        )

    @property
    def has_timeouts(self) -> bool:
        answers = (orjson.dumps(one.response) for one in self.exchanges)
        return any(b"timeout" in answer or b'"late":true' in answer for answer in answers)


def read(path: Path) -> list[RecordedSession]:
    """Return all sessions. Raise UsageError if the file cannot be read. A last line cut short is skipped."""
    sessions: list[RecordedSession] = []
    for number, record in _records(path):
        if isinstance(record.get("aicirt"), dict):
            sessions.append(_session(path, number, record["aicirt"]))
        elif not sessions:
            sessions.append(RecordedSession())
        try:
            if record.get("implied"):
                sessions[-1].modules.add(base64.b64decode(record["cmd"]["binary"], validate=True))
            else:
                sessions[-1].exchanges.append(_exchange(number, record))
        except (LookupError, TypeError, ValueError) as error:
            raise _bad(path, number, f"{error!r}") from error
    if not sessions:
        raise UsageError(f"{path} is empty", hint="record with `aicirt --trace FILE`")
    return sessions


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if number == len(lines) > 1 and not line.endswith(b"\n"):
                sys.stderr.write(f"note: the last line of {path} is cut short and was skipped\n")
                return
            raise _bad(path, number, f"not JSON: {error}") from error
        if not isinstance(record, dict) or not {"suff", "cmd", "resp"} <= record.keys():
            raise _bad(path, number, "suff, cmd or resp is missing")
        yield number, record


def _session(path: Path, number: int, told: dict[str, Any]) -> RecordedSession:
    if told.get("format") != FORMAT:
        raise _bad(path, number, f"format {told.get('format')!r} is not supported, only {FORMAT}")
    try:
        flags = tuple(str(flag) for flag in told["flags"])
        return RecordedSession(flags, str(told["tokenizer"]), str(told["tokenizer_sha256"]), str(told["dtype"]))
    except (LookupError, TypeError) as error:
        raise _bad(path, number, f"{error!r}") from error


def _exchange(number: int, record: dict[str, Any]) -> RecordedExchange:
    if record["suff"] not in ("", "-side"):
        raise ValueError(f"suff is {record['suff']!r}")
    side: Side = "-side" if record["suff"] else ""
    try:
        message = base64.b64decode(record["raw"], validate=True) if "raw" in record else orjson.dumps(record["cmd"])
    except binascii.Error as error:
        raise ValueError(f"raw: {error}") from error
    return RecordedExchange(number, side, message, record["cmd"], record["resp"], dict(record.get("masks", {})))


def _bad(path: Path, number: int, what: str) -> UsageError:
    hint = "AICI_TRACE=FILE aici run writes a recording, and so does aici rt --trace FILE"
    return UsageError(f"{path}, line {number}: {what}", hint=hint)
