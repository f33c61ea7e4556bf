"""The errors of the front door: the tree of `aici_base.errors`, and UnfinishedError.

AiciError
├── UsageError           a mistake of the caller: a wrong pattern, a prompt without room
│   ├── NotFoundError    unknown model, controller or tag
│   ├── InUseError       a controller to remove is still in use
│   └── QuotaError       a limit of a key or of the server is reached
├── UnfinishedError      the text ended, at `max_tokens` for example, before the constraint was met
├── ForbiddenError       the key lacks the permission
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
    RuntimeDiedError,
    TimedOutError,
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
    "RuntimeDiedError",
    "TimedOutError",
    "UnavailableError",
    "UnfinishedError",
    "UnreachableError",
    "UsageError",
]


class UnfinishedError(AiciError):
    """The text ended before the constraint was met, so the text has no value."""

    code = "unfinished"
