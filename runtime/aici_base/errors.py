"""The tree of errors: a class has a stable code and an exit code. A traceback on a user's screen means a bug in aici.

AiciError                   internal_error          exit 1   a failure of no class below
├── UsageError              invalid_request_error   exit 2   the caller can correct it: a flag, a regex, a long prompt
│   ├── NotFoundError       not_found_error         exit 2   unknown model, controller or tag
│   ├── InUseError          in_use_error            exit 2   the object to be removed is still in use
│   └── QuotaError          quota_error             exit 2   a user, or all users together, have reached a limit
├── UnauthorizedError       authentication_error    exit 1   no API key, or a wrong API key
├── ForbiddenError          permission_error        exit 1   the object belongs to somebody else, or the key may not
├── TooLargeError           request_too_large       exit 1   the body of a request is larger than the server's limit
├── RateLimitError          rate_limit_error        exit 1   the queue or a limit of the key is full; `retry_after_s`
├── ControllerError         controller_error        exit 1   the guest trapped, stopped with an error, or broke a limit
├── RuntimeDiedError        runtime_died            exit 1   the controller runtime's process is gone
├── TimedOutError           timeout_error           exit 1   the work took longer than a limit allows
├── StoppedError            stopped                 exit 1   the request's key or an administrator has stopped it
├── UnavailableError        unavailable             exit 1   this machine or installation lacks something
└── UnreachableError        unreachable             exit 3   no connection to a server

The server adds classes of its own and the HTTP statuses: `aici_engine.server.errors`.
An exception class outside of this tree never leaves the package that defines it: the package catches it.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, Literal, Self, TypeAlias

Audience: TypeAlias = Literal["http", "cli", "python"]
"""Who reads a hint: a client of the server, a user of the command line, or a caller in Python."""

DEFAULT_RETRY_AFTER_S: Final = 1.0


class AiciError(Exception):
    """An expected failure: `message` states the fact, a hint names the correction.

    `hint` is for every audience. `cli_hint` (with flags and commands) and `python_hint` replace `hint` for one
    audience; `hint_for` chooses.

    >>> error = AiciError("no room", hint="free some", cli_hint="free some: aici ctrl rm")
    >>> error.hint_for("http"), error.hint_for("cli")
    ('free some', 'free some: aici ctrl rm')
    >>> error.__notes__  # Python prints the notes below a traceback
    ['hint: free some']
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, hint: str = "", cli_hint: str = "", python_hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.cli_hint = cli_hint
        self.python_hint = python_hint
        if shown := self.hint_for("python"):
            self.add_note(f"hint: {shown}")

    def hint_for(self, audience: Audience) -> str:
        """Return the hint for an audience, or an empty text."""
        special = {"http": "", "cli": self.cli_hint, "python": self.python_hint}[audience]
        return special or self.hint

    def with_message(self, message: str) -> Self:
        """Return a copy with another message. The class, the hints and all other fields stay."""
        copy = type(self).__new__(type(self), message)
        copy.__dict__.update(self.__dict__)
        copy.message = message
        return copy


class UsageError(AiciError):
    """The caller can correct the request: a flag, a regex, a long prompt.

    `param`: the name of the wrong parameter in the caller's spelling; empty if no single parameter is wrong."""

    exit_code = 2
    code = "invalid_request_error"

    def __init__(
        self, message: str, *, hint: str = "", cli_hint: str = "", python_hint: str = "", param: str = ""
    ) -> None:
        super().__init__(message, hint=hint, cli_hint=cli_hint, python_hint=python_hint)
        self.param = param


class NotFoundError(UsageError):
    """A model, controller, tag or file with the given name does not exist."""

    code = "not_found_error"


class InUseError(UsageError):
    """A controller cannot be removed because it still has tags, or a stage serves another driver."""

    code = "in_use_error"


class QuotaError(UsageError):
    """A user, or all users together, have reached a limit: of modules, tags or guests at a time."""

    code = "quota_error"


class UnauthorizedError(AiciError):
    """The request has no API key, or a wrong API key."""

    code = "authentication_error"


class ForbiddenError(AiciError):
    """The API key lacks the permission, or the controller or tag belongs to another user."""

    code = "permission_error"


class TooLargeError(AiciError):
    """The body of the request is larger than the server's limit."""

    code = "request_too_large"


class RateLimitError(AiciError):
    """The server is full, or a limit of the key is reached.

    `retry_after_s`: a second attempt may succeed after this many seconds.
    """

    code = "rate_limit_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        cli_hint: str = "",
        python_hint: str = "",
        retry_after_s: float = DEFAULT_RETRY_AFTER_S,
    ) -> None:
        super().__init__(message, hint=hint, cli_hint=cli_hint, python_hint=python_hint)
        self.retry_after_s = retry_after_s


class ControllerError(AiciError):
    """The controller trapped, stopped with an error, broke a limit, or allowed no token."""

    code = "controller_error"


class RuntimeDiedError(AiciError):
    """The process of the controller runtime ended or was replaced while the request ran."""

    code = "runtime_died"


class TimedOutError(AiciError):
    """The request took longer than `--request-timeout` of the server allows, or the body did not arrive in time."""

    code = "timeout_error"


class StoppedError(AiciError):
    """Not a failure of the server: a client that tries again by itself must not start the request anew."""

    code = "stopped"


class UnavailableError(AiciError):
    """The machine or installation lacks a part, the disk cannot be written, or engine, server or `LLM` have stopped."""

    code = "unavailable"


class UnreachableError(AiciError):
    """No connection to the server: a wrong address, or nothing listens."""

    exit_code = 3
    code = "unreachable"


def class_of(code: str) -> type[AiciError]:
    """Return the class of the tree above with the given code; AiciError for any other code.

    >>> class_of("not_found_error").__name__, class_of("unknown").__name__
    ('NotFoundError', 'AiciError')
    """
    return _BY_CODE.get(code, AiciError)


def classes(root: type[AiciError] = AiciError) -> Iterator[type[AiciError]]:
    """Yield `root` and every class below it that has been imported, each class after its parent."""
    yield root
    for kind in root.__subclasses__():
        yield from classes(kind)


_BY_CODE: Final[Mapping[str, type[AiciError]]] = {kind.code: kind for kind in classes()}
