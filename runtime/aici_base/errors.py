"""The one tree of errors. A traceback that a user sees means a bug in aici.

AiciError                     exit 1, HTTP 500
├── UsageError                exit 2, HTTP 400   the caller can mend it: bad flag, bad regex, prompt too long
│   ├── NotFoundError         exit 2, HTTP 404   unknown model, controller or tag
│   ├── InUseError            exit 2, HTTP 409   what is to be removed is still needed
│   └── QuotaError            exit 2, HTTP 429   a user, or all together, have as much as they may have
├── ForbiddenError            exit 1, HTTP 403   it belongs to somebody else, or a key may not do it
├── ControllerError           exit 1, HTTP 400   the guest trapped, stopped with an error, or broke a limit
├── RuntimeDiedError          exit 1, HTTP 503   the controller runtime process is gone
├── TimedOutError             exit 1, HTTP 408   it took longer than the server allows
├── UnavailableError          exit 1, HTTP 503   this machine or installation lacks what is needed
└── UnreachableError          exit 3, HTTP 502   a server could not be reached
"""

from typing import ClassVar


class AiciError(Exception):
    """An expected failure: `message` says what is so, `hint` what to do about it."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AiciError):
    exit_code = 2
    http_status = 400
    code = "invalid_request_error"


class NotFoundError(UsageError):
    http_status = 404
    code = "not_found_error"


class InUseError(UsageError):
    http_status = 409
    code = "in_use_error"


class QuotaError(UsageError):
    http_status = 429
    code = "quota_error"


class ForbiddenError(AiciError):
    http_status = 403
    code = "permission_error"


class ControllerError(AiciError):
    http_status = 400
    code = "controller_error"


class RuntimeDiedError(AiciError):
    http_status = 503
    code = "runtime_died"


class TimedOutError(AiciError):
    http_status = 408
    code = "timeout_error"


class UnavailableError(AiciError):
    http_status = 503
    code = "unavailable"


class UnreachableError(AiciError):
    exit_code = 3
    http_status = 502
    code = "unreachable"
