"""The errors of the front door: the tree of `aici_base.errors`, and UnfinishedError.

AiciError
├── UsageError           a mistake of the caller: a wrong pattern, a prompt without room
│   ├── NotFoundError    unknown model, controller or tag
│   ├── InUseError       a controller to remove is still in use
│   └── QuotaError       a limit of a key or of the server is reached
├── UnfinishedError      the text ended, at `max_tokens` for example, before the constraint was met
├── UnauthorizedError    no API key, or a wrong API key
├── ForbiddenError       the key lacks the permission
├── TooLargeError        the request is larger than the server's limit
├── RateLimitError       the server is full, or the key's limit is reached; `retry_after_s`
├── ControllerError      the controller failed, stopped with an error, or broke a limit
├── RuntimeDiedError     the process of the controller runtime is gone
├── TimedOutError        the request took longer than the server allows
├── UnavailableError     the machine or the installation lacks a part
└── UnreachableError     the server could not be reached
"""

from aici_base.errors import (
    AiciError,
    ControllerError,
    ForbiddenError,
    InUseError,
    NotFoundError,
    QuotaError,
    RateLimitError,
    RuntimeDiedError,
    TimedOutError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
    UsageError,
)

__all__ = [
    "AiciError",
    "ControllerError",
    "ForbiddenError",
    "InUseError",
    "NotFoundError",
    "QuotaError",
    "RateLimitError",
    "RuntimeDiedError",
    "TimedOutError",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "UnfinishedError",
    "UnreachableError",
    "UsageError",
]


def shown_type(value: object) -> str:
    """Return the name of the type of a wrong argument, for a message."""
    return type(value).__name__


class UnfinishedError(AiciError):
    """The text ended before the constraint was met, so the text has no value."""

    code = "unfinished"
