"""Reads a body of `multipart/form-data` that has arrived whole (RFC 7578)."""

import re
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from typing import Final

from aici_base.errors import UsageError
from aici_engine.server.errors import WrongTypeError

_MAX_PARTS: Final = 32
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form. `filename` is None for a field that is no file."""

    content: bytes
    filename: str | None = None


def read_form(content_type: str, body: bytes) -> dict[str, FormField]:
    """Return the fields by name. Raises UsageError for a body that is no form, or has a name twice."""
    kind = Message()
    kind["content-type"] = content_type
    boundary = kind.get_boundary()
    if kind.get_content_type() != "multipart/form-data" or boundary is None:
        raise WrongTypeError("the body is not a form", hint="send multipart/form-data, as OpenAI's clients do")
    if not _BOUNDARY.fullmatch(boundary):
        raise UsageError("the boundary of the form is not as RFC 2046 has it")
    delimiter = b"\r\n--" + boundary.encode()
    _, *parts = (b"\r\n" + body).split(delimiter, _MAX_PARTS + 1)
    if len(parts) > _MAX_PARTS:
        raise UsageError(f"the form has more than {_MAX_PARTS} fields")
    fields: dict[str, FormField] = {}
    for part in parts:
        if part.startswith(b"--"):
            return fields
        name, field = _field(part)
        if name in fields:
            raise UsageError(f"the form has the field {name[:80]} twice", param=name[:80])
        fields[name] = field
    raise UsageError("the form ends too early: its last boundary is missing")


def _field(part: bytes) -> tuple[str, FormField]:
    """Return the name and the content. Blanks may stand between the boundary and the end of its line."""
    blank, _, part = part.partition(b"\r\n")
    head, separator, content = (b"\r\n" + part).partition(b"\r\n\r\n")
    if blank.strip(b" \t") or not separator:
        raise UsageError("a field of the form has no head")
    # Clients write names in UTF-8, quoted or not.
    headers = HeaderParser().parsestr(head.removeprefix(b"\r\n").decode(errors="replace"))
    name = headers.get_param("name", header="content-disposition")
    if headers.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise UsageError("a field of the form has no name")
    return name, FormField(content, headers.get_filename())
