"""Errors as HTTP responses, in the shape of each protocol.

Handlers added by `install` answer expected errors. An unexpected exception is a bug: `access_log.py` answers with 500.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from aici_base.errors import AiciError, TimedOutError, UnauthorizedError, UsageError
from aici_engine.server.errors import (
    ClientGoneError,
    MissingFieldError,
    NoRouteError,
    UnknownFieldError,
    WrongMethodError,
    WrongTypeError,
    for_client,
    http_error,
    param_of,
    retry_after_s,
    status_of,
    text_of,
)
from aici_engine.server.telemetry import logs

_POLICY_VIOLATION = 1008


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How a protocol writes an error: `body` makes the JSON, `schema` is the JSON Schema of it."""

    body: Callable[[AiciError], dict[str, Any]]
    schema: dict[str, Any]


def openai_body(error: AiciError) -> dict[str, Any]:
    row = http_error(type(error))
    shown = {"message": text_of(error), "type": row.openai, "param": param_of(error) or None, "code": row.openai_code}
    return {"error": shown}


def anthropic_body(error: AiciError) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": http_error(type(error)).anthropic, "message": text_of(error)}
    if param_of(error) == "thread":
        # A thread is a conversation kept by the server. With these details, the SDK's tool runner sends whole
        # conversations instead.
        shown["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return {"type": "error", "error": shown, "request_id": logs.request_id.get() or None}


def rest_body(error: AiciError) -> dict[str, Any]:
    error = for_client(error)
    return {"message": error.message, "hint": error.hint_for("http"), "code": error.code}


def _object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT = {"type": "string"}
OPENAI = ErrorShape(
    openai_body,
    _object(error=_object(message=_TEXT, type=_TEXT, param={"type": ["string", "null"]}, code=_TEXT)),
)
ANTHROPIC = ErrorShape(anthropic_body, _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)))
REST = ErrorShape(rest_body, _object(message=_TEXT, hint=_TEXT, code=_TEXT))


class _Json(JSONResponse):
    """Errors quote what clients sent, also half of a surrogate pair, which JSON can express and UTF-8 cannot."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def response(shape: ErrorShape, error: AiciError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response that answers a request with an error."""
    more = dict(headers or {})
    if (after_s := retry_after_s(error)) is not None:
        more["Retry-After"] = str(max(1, math.ceil(after_s)))
    if isinstance(error, TimedOutError):
        # The rest of the body would be taken for the next request.
        more["Connection"] = "close"
    if isinstance(error, UnauthorizedError):
        more["WWW-Authenticate"] = "Bearer"
    return _Json(shape.body(error), status_of(error), headers=more)


async def refuse(shape: ErrorShape, error: AiciError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with an error; a WebSocket before it is accepted, too."""
    answer = response(shape, error)
    if scope["type"] == "http":
        await answer(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.message})


def install(app: FastAPI, shape_of: Callable[[Scope], ErrorShape]) -> None:
    """Add the handlers of expected errors to an application. `shape_of`: the shape of a request's errors."""

    async def expected(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AiciError)
        return response(shape_of(request.scope), error)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return response(shape_of(request.scope), _validation(error))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return response(shape_of(request.scope), _http(error, request), error.headers)

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # nobody reads the response; logs show the status, as nginx writes it

    app.add_exception_handler(AiciError, expected)
    app.add_exception_handler(ClientGoneError, gone)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _validation(error: RequestValidationError) -> UsageError:
    """Return the first problem. The message names the field, and never the value: megabytes, or a secret."""
    first = error.errors()[0]
    # pydantic names the alternatives of a union beside the fields: str, list[str].
    names = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "str", "bool")]
    field = ".".join(name for name in names if "[" not in name)
    kind = first["type"]
    if kind == "json_invalid":
        return UsageError(f"the body is not valid JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if first["loc"] == ("body",) and kind.endswith("_type"):
        hint = "send a JSON object, with Content-Type: application/json"
        return WrongTypeError("the body is not a JSON object", hint=hint)
    if kind == "extra_forbidden":
        return UnknownFieldError(f"the parameter {field} is not supported", hint=f"leave {field} out", param=field)
    if kind == "missing":
        return MissingFieldError(f"the parameter {field or 'body'} is missing", param=field)
    message = str(first["msg"]).removeprefix("Value error, ")
    wrong_type = kind.endswith(("_type", "_parsing"))
    return (WrongTypeError if wrong_type else UsageError)(f"{field}: {message}" if field else message, param=field)


def _http(error: HTTPException, request: Request) -> AiciError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NoRouteError(f"nothing is served at {request.url.path}", hint="GET / lists the paths")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("allow", "")
        hint = f"use {allowed}" if allowed else ""
        return WrongMethodError(f"{request.method} is not a method of {request.url.path}", hint=hint)
    # FastAPI's own: a body that no parser reads.
    return UsageError(str(error.detail))
