"""Reads a body of `multipart/form-data` that has arrived whole, from a file (RFC 7578)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from typing import IO, Final

from aici_base.errors import TooLargeError, UsageError
from aici_engine.server.errors import WrongTypeError

_MAX_PARTS: Final = 32
_MAX_HEAD_BYTES: Final = 16 << 10
MAX_TEXT_BYTES: Final = 64 << 10
_BLOCK_BYTES: Final = 1 << 20
"""Searched at a time. A search holds the interpreter's lock."""
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form: `size_bytes` from `start` in the file of the body. `filename` is None for a field that is no
    file."""

    name: str
    body: IO[bytes]
    start: int
    size_bytes: int
    filename: str | None = None

    def text(self) -> str:
        """Return a short content. Raises TooLargeError for a content that is not short."""
        if self.size_bytes > MAX_TEXT_BYTES:
            shown = f"{self.name[:80]} has {self.size_bytes} bytes: at most {MAX_TEXT_BYTES} are read"
            raise TooLargeError(f"the field {shown}")
        return b"".join(self.pieces(MAX_TEXT_BYTES)).decode(errors="replace")

    def pieces(self, piece_bytes: int) -> Iterator[bytes]:
        """Yield the content. Every piece but the last has `piece_bytes` bytes."""
        self.body.seek(self.start)
        for at in range(0, self.size_bytes, piece_bytes):
            yield self.body.read(min(piece_bytes, self.size_bytes - at))


def read_form(content_type: str, body: IO[bytes]) -> dict[str, FormField]:
    """Return the fields by name, which read `body` later. Raises UsageError for a body that is no form, or has a name
    twice. May read a disk for long: not for the event loop."""
    kind = Message()
    kind["content-type"] = content_type
    boundary = kind.get_boundary()
    if kind.get_content_type() != "multipart/form-data" or boundary is None:
        raise WrongTypeError("the body is not a form", hint="send multipart/form-data, as OpenAI's clients do")
    if not _BOUNDARY.fullmatch(boundary):
        raise UsageError("the boundary of the form is not as RFC 2046 has it")
    delimiter = b"\r\n--" + boundary.encode()
    fields: dict[str, FormField] = {}
    num_parts, begin = 0, _first(body, delimiter)
    while begin is not None:
        if _bytes_at(body, begin, 2) == b"--":
            return fields
        end = _find(body, delimiter, begin)
        if end is None:
            break
        num_parts += 1
        if num_parts > _MAX_PARTS:
            raise UsageError(f"the form has more than {_MAX_PARTS} fields")
        field = _field(body, begin, end)
        if field.name in fields:
            raise UsageError(f"the form has the field {field.name[:80]} twice", param=field.name[:80])
        fields[field.name] = field
        begin = end + len(delimiter)
    raise UsageError("the form ends too early: its last boundary is missing")


def _first(body: IO[bytes], delimiter: bytes) -> int | None:
    """Return the position behind the first delimiter, which has no end of a line before it at the begin of a body."""
    opening = delimiter[2:]
    if _bytes_at(body, 0, len(opening)) == opening:
        return len(opening)
    found = _find(body, delimiter, 0)
    return None if found is None else found + len(delimiter)


def _find(body: IO[bytes], wanted: bytes, start: int) -> int | None:
    """Return the position of the first `wanted` from `start` on."""
    body.seek(start)
    window, at = b"", start
    while block := body.read(_BLOCK_BYTES):
        window += block
        if (found := window.find(wanted)) >= 0:
            return at + found
        kept = min(len(window), len(wanted) - 1)
        at += len(window) - kept
        window = window[len(window) - kept :]
    return None


def _bytes_at(body: IO[bytes], start: int, size: int) -> bytes:
    body.seek(start)
    return body.read(size)


def _field(body: IO[bytes], begin: int, end: int) -> FormField:
    """Return the field between two delimiters. Blanks may stand between the boundary and the end of its line."""
    top = _bytes_at(body, begin, min(end - begin, _MAX_HEAD_BYTES))
    blank, _, rest = top.partition(b"\r\n")
    head, separator, _ = (b"\r\n" + rest).partition(b"\r\n\r\n")
    if blank.strip(b" \t") or not separator:
        raise UsageError("a field of the form has no head")
    # The head lacks the end of line that was put before it.
    start = begin + len(blank) + 2 + len(head) - 2 + len(separator)
    # Clients write names in UTF-8, quoted or not.
    headers = HeaderParser().parsestr(head.removeprefix(b"\r\n").decode(errors="replace"))
    name = headers.get_param("name", header="content-disposition")
    if headers.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise UsageError("a field of the form has no name")
    return FormField(name, body, start, end - start, headers.get_filename())
