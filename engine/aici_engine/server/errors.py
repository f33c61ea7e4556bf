"""The errors of the server, and one table from every class of error to HTTP status and types.

AiciError
├── CancelledStreamError         an LMTP stream, cancelled by the client
└── UsageError
    ├── WrongTypeError           a field has a value of the wrong type
    ├── UnknownFieldError        a field that the protocol does not have here
    ├── MissingFieldError        a field that a request must have
    ├── LongPromptError          a prompt that no sequence of the model can have
    ├── NoRouteError             nothing is served at the path
    ├── WrongMethodError         the path is served, but not for the method
    ├── WrongEncodingError       the body is compressed
    ├── WrongMediaTypeError      the body of an upload is not said to be a WebAssembly module
    ├── QuotaError
    │   └── StorageFullError     the store has no room for another controller of the user
    └── NotFoundError
        ├── UnknownModelError        a model that is not served here
        └── MissingControllerError   AICI REST's answer if a controller cannot be started

A request that is malformed (no JSON, a field missing, unknown or out of range) gets 400, a field of the wrong type 422.
"""

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aici_base.errors import (
    AiciError,
    ControllerError,
    ForbiddenError,
    InUseError,
    NotFoundError,
    QuotaError,
    RateLimitError,
    RuntimeDiedError,
    StoppedError,
    TimedOutError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
    UsageError,
)
from aici_engine.server.telemetry import logs

_log = logging.getLogger(__name__)


class ClientGoneError(Exception):
    """The client has left, so nobody reads an answer. Caught by the handler in `gateway/error_responses.py`."""


class CancelledStreamError(AiciError):
    code = "cancelled"


class WrongTypeError(UsageError):
    pass


class UnknownFieldError(UsageError):
    pass


class MissingFieldError(UsageError):
    pass


class LongPromptError(UsageError):
    pass


class NoRouteError(UsageError):
    pass


class WrongMethodError(UsageError):
    pass


class WrongEncodingError(UsageError):
    pass


class WrongMediaTypeError(UsageError):
    pass


class StorageFullError(QuotaError):
    exit_code = 1


class UnknownModelError(NotFoundError):
    pass


class MissingControllerError(NotFoundError):
    """AICI REST answers every failure of a controller's start with status 400."""


class HttpError(NamedTuple):
    """An error in HTTP: the status, the `type` in the OpenAI and in the Anthropic protocol, and OpenAI's `code`."""

    status: int
    openai: str
    anthropic: str
    openai_code: str


HTTP_ERRORS: Final[Mapping[type[AiciError], HttpError]] = {
    AiciError: HttpError(500, "server_error", "api_error", "server_error"),
    UsageError: HttpError(400, "invalid_request_error", "invalid_request_error", "invalid_value"),
    NotFoundError: HttpError(404, "not_found_error", "not_found_error", "not_found"),
    InUseError: HttpError(409, "in_use_error", "invalid_request_error", "conflict"),
    QuotaError: HttpError(429, "quota_error", "rate_limit_error", "quota_exceeded"),
    ForbiddenError: HttpError(403, "permission_error", "permission_error", "permission_denied"),
    ControllerError: HttpError(400, "controller_error", "invalid_request_error", "controller_error"),
    RuntimeDiedError: HttpError(503, "runtime_died", "overloaded_error", "server_is_overloaded"),
    TimedOutError: HttpError(408, "timeout_error", "timeout_error", "timeout"),
    UnavailableError: HttpError(503, "unavailable", "overloaded_error", "server_is_overloaded"),
    UnreachableError: HttpError(502, "unreachable", "api_error", "unreachable"),
    StoppedError: HttpError(410, "stopped", "invalid_request_error", "stopped"),
    UnauthorizedError: HttpError(401, "authentication_error", "authentication_error", "invalid_api_key"),
    TooLargeError: HttpError(413, "request_too_large", "request_too_large", "request_too_large"),
    RateLimitError: HttpError(429, "rate_limit_error", "rate_limit_error", "rate_limit_exceeded"),
    CancelledStreamError: HttpError(500, "server_error", "api_error", "server_error"),
    WrongTypeError: HttpError(422, "invalid_request_error", "invalid_request_error", "invalid_type"),
    UnknownFieldError: HttpError(400, "invalid_request_error", "invalid_request_error", "unknown_parameter"),
    MissingFieldError: HttpError(400, "invalid_request_error", "invalid_request_error", "missing_required_parameter"),
    LongPromptError: HttpError(400, "invalid_request_error", "invalid_request_error", "context_length_exceeded"),
    UnknownModelError: HttpError(404, "not_found_error", "not_found_error", "model_not_found"),
    NoRouteError: HttpError(404, "invalid_request_error", "not_found_error", "unknown_url"),
    WrongMethodError: HttpError(405, "invalid_request_error", "invalid_request_error", "method_not_allowed"),
    WrongEncodingError: HttpError(415, "invalid_request_error", "invalid_request_error", "unsupported_encoding"),
    WrongMediaTypeError: HttpError(415, "invalid_request_error", "invalid_request_error", "unsupported_media_type"),
    StorageFullError: HttpError(507, "quota_error", "rate_limit_error", "quota_exceeded"),
    MissingControllerError: HttpError(400, "not_found_error", "invalid_request_error", "not_found"),
}
"""A class without a row has the row of the nearest parent. A class with a code of its own must have a row."""


def http_error(kind: type[AiciError]) -> HttpError:
    """Return the row of a class."""
    return next(HTTP_ERRORS[each] for each in kind.__mro__ if each in HTTP_ERRORS)


def status_of(error: AiciError) -> int:
    """Return the HTTP status of an error."""
    return http_error(type(error)).status


_OF_OPERATOR: Final = re.compile(r"(?<![\w/:.])[~.]{0,2}/(?!v1/)[\w.@+-]+/|\bAICI_[A-Z_]+\b")
"""A path of two folders or more, or an environment variable."""
_RETRY_S: Final[Mapping[int, float]] = {503: 2.0, 429: 60.0}
"""A dead engine is replaced in about two seconds. A quota has room when its owner has removed something."""


def for_client(error: AiciError) -> AiciError:
    """Return an error as clients may read it.

    A failure of the server that names a file or a variable of the server becomes a reference to the server's log,
    which gets the original failure.
    """
    if status_of(error) < 500 or not _OF_OPERATOR.search(f"{error.message} {error.hint_for('http')}"):
        return error
    _log.error("%s", _text(error))
    told = error.with_message("the server failed, for a reason that only its operator may read")
    told.hint, told.cli_hint = f"the server's log has the reason, with the request id {logs.request_id.get()}", ""
    return told


def retry_after_s(error: AiciError) -> float | None:
    """Return the seconds after which a second attempt may succeed; None if the request must change first."""
    return error.retry_after_s if isinstance(error, RateLimitError) else _RETRY_S.get(status_of(error))


def text_of(error: AiciError) -> str:
    """Return the message of an error with the hint for clients, where a protocol has one text for both."""
    return _text(for_client(error))


def _text(error: AiciError) -> str:
    hint = error.hint_for("http")
    return f"{error.message} ({hint})" if hint else error.message


def param_of(error: AiciError) -> str:
    """Return the name of the field with the error, or an empty text."""
    return error.param if isinstance(error, UsageError) else ""


@contextlib.contextmanager
def about(param: str) -> Iterator[None]:
    """Attribute a UsageError without a field to the field `param`."""
    try:
        yield
    except NotFoundError:
        raise
    except UsageError as error:
        if error.param:
            raise
        named = error.with_message(f"{param}: {error.message}")
        named.param = param
        raise named from error


def markdown() -> str:
    """Return the registry of errors as a Markdown table, for the documentation."""
    names = ("Error", "Code", "Exit code", "HTTP status", "OpenAI `type`", "Anthropic `type`", "OpenAI `code`")
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for kind, row in HTTP_ERRORS.items():
        lines.append(
            f"| `{kind.__name__}` | `{kind.code}` | {kind.exit_code} | {row.status} | `{row.openai}` "
            f"| `{row.anthropic}` | `{row.openai_code}` |"
        )
    return "\n".join(lines) + "\n"
