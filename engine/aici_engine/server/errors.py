"""Failures as HTTP responses, each protocol's in its own shape. The handlers that `install` adds make
them; what is not expected here is a bug, which `access_log.py` answers.

AiciError's tree goes on here with what only a server can say:

AiciError
├── UnauthorizedError   401   no key, or a wrong one
├── TooLargeError       413   the body
└── OverloadedError     429   the queue, or a limit of the key, is full; `retry_after_s`

The seed's table: 400 is a request that is not right (no JSON, a field missing, unknown or out of range), 422 one whose
fields have the wrong types.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from aici_base.errors import AiciError, NotFoundError, TimedOutError, UsageError
from aici_engine.server.telemetry import logs

Shape: TypeAlias = Callable[[int, AiciError], dict[str, Any]]
"""From a status and an error to a body."""


class ClientGoneError(Exception):
    """Nobody is there to be answered."""


class UnauthorizedError(AiciError):
    http_status = 401
    code = "authentication_error"


class TooLargeError(AiciError):
    http_status = 413
    code = "request_too_large"


class OverloadedError(AiciError):
    http_status = 429
    code = "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class ParameterError(UsageError):
    """`param` is the field that is wrong."""

    def __init__(self, param: str, message: str, *, hint: str = "", http_status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.status = http_status


@contextlib.contextmanager
def about(param: str) -> Iterator[None]:
    """What is raised as the caller's mistake is a mistake in the field `param`."""
    try:
        yield
    except UsageError as error:
        if error.param or isinstance(error, ParameterError | NotFoundError):
            raise
        raise ParameterError(param, f"{param}: {error.message}", hint=error.hint) from error


def status_of(error: AiciError) -> int:
    return error.status if isinstance(error, ParameterError) else error.http_status


def text_of(error: AiciError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def openai_body(status: int, error: AiciError) -> dict[str, Any]:
    kind = error.code if status != HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    param = error.param or None if isinstance(error, UsageError) else None
    return {"error": {"message": text_of(error), "type": kind, "param": param, "code": status}}


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_body(status: int, error: AiciError) -> dict[str, Any]:
    other = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
    shown: dict[str, Any] = {"type": _ANTHROPIC_TYPES.get(status, other), "message": text_of(error)}
    if isinstance(error, ParameterError) and error.param == "thread":
        # Conversations that the server keeps. Told so, the SDK's tool runner sends whole ones.
        shown["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return {"type": "error", "error": shown, "request_id": logs.request_id.get() or None}


def rest_body(_: int, error: AiciError) -> dict[str, Any]:
    return {"message": error.message, "hint": error.hint, "code": error.code}


_SHAPES: Mapping[str, Shape] = {"/v1/messages": anthropic_body, "/v1/run": rest_body, "/v1/controllers": rest_body}


def shape_of(path: str) -> Shape:
    return next((shape for prefix, shape in _SHAPES.items() if path.startswith(prefix)), openai_body)


class _Json(JSONResponse):
    """Errors quote what they were sent, also half a surrogate pair, which JSON can say and UTF-8 cannot."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def response(path: str, error: AiciError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """For a request to `path`."""
    status = status_of(error)
    more = dict(headers or {})
    if isinstance(error, OverloadedError):
        more["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, TimedOutError):
        # What is left of the body would be taken for the next request.
        more["Connection"] = "close"
    if isinstance(error, UnauthorizedError):
        more["WWW-Authenticate"] = "Bearer"
    return _Json(shape_of(path)(status, error), status, headers=more)


def install(app: FastAPI) -> None:
    async def expected(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AiciError)
        return response(request.url.path, error)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return response(request.url.path, _validation(error))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return response(request.url.path, _http(error, request), error.headers)

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it; logs show it, as nginx writes it

    app.add_exception_handler(AiciError, expected)
    app.add_exception_handler(ClientGoneError, gone)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _validation(error: RequestValidationError) -> ParameterError:
    """The first problem; names the field, never shows the value, which may be megabytes or a secret."""
    first = error.errors()[0]
    # pydantic names the alternatives of a union beside the fields: str, list[str].
    names = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "str", "bool")]
    field = ".".join(name for name in names if "[" not in name)
    kind = first["type"]
    if kind == "json_invalid":
        return ParameterError("", f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if first["loc"] == ("body",) and kind.endswith("_type"):
        hint = "send a JSON object, with Content-Type: application/json"
        return ParameterError("", "the body is not a JSON object", hint=hint, http_status=422)
    if kind == "extra_forbidden":
        return ParameterError(field, f"the parameter {field} is not supported", hint="leave it out")
    if kind == "missing":
        return ParameterError(field, f"the parameter {field or 'body'} is missing")
    message = str(first["msg"]).removeprefix("Value error, ")
    wrong_type = kind.endswith(("_type", "_parsing"))
    return ParameterError(field, f"{field}: {message}" if field else message, http_status=422 if wrong_type else 400)


def _http(error: HTTPException, request: Request) -> AiciError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return ParameterError("", f"there is nothing at {request.url.path}", http_status=404)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("allow", "")
        hint = f"use {allowed}" if allowed else ""
        message = f"{request.method} is not a method of {request.url.path}"
        return ParameterError("", message, hint=hint, http_status=405)
    return ParameterError("", str(error.detail), http_status=error.status_code)
