"""The frame around every request and response, on both channels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from aici_base.errors import AiciError, ControllerError, UsageError

_MAX_RID_CHARS = 1000


class BadMessageError(ValueError):
    """Raised for a message that is no JSON object. Such a message has no `$rid` to answer."""


@dataclass(frozen=True, slots=True)
class Auth:
    """The user of a request. Without `$auth`, a user without rights."""

    user: str = "local"
    is_admin: bool = False


_NOBODY = Auth()


class ChannelRequest(NamedTuple):
    """A parsed request. `body` is the whole JSON object."""

    op: str
    rid: str | None
    auth: Auth
    body: dict[str, Any]


def parse(message: bytes) -> ChannelRequest:
    """Parse a message. Raises BadMessageError."""
    try:
        body = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise BadMessageError(str(error)) from error
    if not isinstance(body, dict):
        raise BadMessageError("a request must be a JSON object")
    rid = body.get("$rid")
    op = body.get("op")
    if isinstance(rid, str) and len(rid) > _MAX_RID_CHARS:
        raise BadMessageError("$rid too long")  # the error response could not hold the rid either
    return ChannelRequest(op if isinstance(op, str) else "", rid if isinstance(rid, str) else None, _auth(body), body)


def _auth(body: dict[str, Any]) -> Auth:
    auth = body.get("$auth")
    if not isinstance(auth, dict):
        return _NOBODY
    user, is_admin = auth.get("user"), auth.get("is_admin")
    # Both fields are required. Half an identity has no rights.
    return Auth(user, is_admin) if isinstance(user, str) and isinstance(is_admin, bool) else _NOBODY


def answer(request: ChannelRequest, handle: Callable[[ChannelRequest], bytes]) -> bytes:
    """Run `handle` and return the response with `data` (JSON) from it. An error raised becomes an error response."""
    return guarded(request.rid, lambda: ok(request, handle(request)))


def guarded(rid: str | None, respond: Callable[[], bytes]) -> bytes:
    """Return the response of `respond`. An error raised becomes an error response to the request `rid`."""
    try:
        return respond()
    except AiciError as error:
        is_user_error = isinstance(error, UsageError | ControllerError)
        return failure(
            rid,
            error.message,
            is_user_error=is_user_error,
            code=error.code,
            hint=error.hint,
            cli_hint=error.cli_hint,
        )
    except RequestError as error:
        return failure(rid, str(error), is_user_error=False)


def ok(request: ChannelRequest, data: bytes) -> bytes:
    """Return a successful response with `data` (JSON)."""
    rid = b"" if request.rid is None else b',"$rid":' + orjson.dumps(request.rid)
    return b'{"type":"ok","data":%b%b}' % (data, rid)


def failure(
    rid: str | None, error: str, *, is_user_error: bool, code: str = "", hint: str = "", cli_hint: str = ""
) -> bytes:
    """Return an error response. The fields `code`, `hint` and `cli_hint` are extensions for our client; other engines
    ignore them."""
    response: dict[str, object] = {"type": "error", "error": error, "is_user_error": is_user_error}
    if code:
        response |= {"code": code, "hint": hint}
        if cli_hint:
            response["cli_hint"] = cli_hint
    if rid is not None:
        response["$rid"] = rid
    return orjson.dumps(response)


def json_error(error: str) -> bytes:
    """Return the response to a message that is no JSON object."""
    return orjson.dumps({"type": "json-error", "error": error})


class RequestError(Exception):
    """The engine broke the protocol. The whole command fails and has changed nothing."""


# Readers of fields. As the protocol demands, unknown fields are ignored. A wrong field is refused by name.


def field(body: Any, name: str, kind: type) -> Any:
    """Return a field of exactly the type `kind`. Raises RequestError."""
    value = body.get(name) if isinstance(body, dict) else None
    if type(value) is not kind:
        raise RequestError(f"field {name} missing or not {kind.__name__}")
    return value


def uint(body: Any, name: str) -> Any:
    """Return an unsigned 32-bit integer, of the id type that the caller expects."""
    value = body.get(name) if isinstance(body, dict) else None
    if type(value) is int and 0 <= value < 2**32:
        return value
    raise RequestError(f"field {name} out of range: {field(body, name, int)}")


def uints(body: Any, name: str) -> list[Any]:
    """Return a list of unsigned 32-bit integers. Raises RequestError."""
    values: list[Any] = field(body, name, list)
    for value in values:
        if type(value) is not int or not 0 <= value < 2**32:
            raise RequestError(f"field {name} is not a list of unsigned integers")
    return values
