"""Answers that report errors, as errors of aici."""

import json
from collections.abc import Mapping
from typing import Final

from aici.errors import (
    AiciError,
    ForbiddenError,
    RateLimitError,
    TooLargeError,
    UnauthorizedError,
    UsageError,
)
from aici_base.errors import DEFAULT_RETRY_AFTER_S, class_of

_MAX_RETRY_AFTER_S: Final = 86400.0
"""Beyond some centuries, waiting raises OverflowError."""
_START_FAILED: Final = "While executing instantiate:\n"
"""The beginning of AICI REST's message about a controller that fails to start."""
_BY_STATUS: Final[Mapping[int, type[AiciError]]] = {
    **dict.fromkeys((400, 404, 409, 422), UsageError),
    401: UnauthorizedError,
    403: ForbiddenError,
    413: TooLargeError,
    429: RateLimitError,
}
"""The class of an answer without a known code, for example of a proxy. Any other status: AiciError."""


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> AiciError:
    """Return the error that an answer reports: in AICI REST's form, in OpenAI's form, or in none."""
    codes: tuple[object, ...] = ()
    try:
        told = json.loads(body)
        told = told.get("error", told)
        # AICI REST has the error's code in `code`, OpenAI's form in `type`.
        message, hint, codes = told["message"], told.get("hint") or "", (told.get("code"), told.get("type"))
    except (ValueError, KeyError, AttributeError):
        message, hint = body.decode(errors="replace").strip() or f"HTTP status {status}", ""
    message = str(message).removeprefix(_START_FAILED)
    known = (kind for kind in (class_of(str(code)) for code in codes) if kind is not AiciError)
    kind = next(known, _BY_STATUS.get(status, AiciError))
    if issubclass(kind, UnauthorizedError):
        return kind(
            message,
            hint=hint,
            cli_hint="append a key of the server to the URL: #key=KEY",
            python_hint="pass a key of the server: api_key=",
        )
    if issubclass(kind, RateLimitError):
        after = headers.get("Retry-After", "")
        after_s = min(float(after), _MAX_RETRY_AFTER_S) if after.isdecimal() else DEFAULT_RETRY_AFTER_S
        return kind(message, hint=hint or f"try again in {after_s:g} s", retry_after_s=after_s)
    return kind(message, hint=hint)
