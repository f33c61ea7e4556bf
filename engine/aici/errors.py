"""The errors that the front door raises: the tree of `aici_base.errors`, and one more.

AiciError
├── UsageError           the caller can fix it: a wrong pattern, a prompt that is too long
│   ├── NotFoundError    unknown model, controller or tag
│   ├── InUseError       what should be removed is still in use
│   └── QuotaError       a limit of a key or of the server is reached
├── UnfinishedError      the text ended, at `max_tokens` for example, before the constraint was met
├── ForbiddenError       the key may not do it
├── ControllerError      the controller failed, stopped with an error, or broke a limit
├── RuntimeDiedError     the process of the controller runtime is gone
├── TimedOutError        the request took longer than the server allows
├── UnavailableError     the machine or the installation lacks what is needed
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
    """The text ended before its constraint was met, so that the text has no value."""

    code = "unfinished"
