"""A route with a JSON body: the body is checked, parsed and validated, a large body in a thread.

    routes = APIRouter(route_class=JsonRoute)

FastAPI does the same for a small body, but between two turns of the event loop, where a large one would hold all
streams. A body is bounded in shape first (`body_shape.py`), so that no step of its thread holds the interpreter's lock
for long.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

from aici_base.errors import TooLargeError, UsageError
from aici_engine.server.gateway.body_shape import MAX_KEYS, check_shape

_SMALL: Final = 16 << 10
"""Bytes of a body that the event loop parses at once: a thread would cost more."""


class JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, field = super().get_route_handler(), self.body_field
        if field is None:
            return handle

        def read(body: bytes) -> Any:
            value, errors = field.validate(parsed(body), {}, loc=("body",))
            if errors:
                raise RequestValidationError(errors[:1])
            return value

        async def handler(request: Request) -> Response:
            body = await request.body()
            if body and "json" in request.headers.get("content-type", ""):
                value = read(body) if len(body) <= _SMALL else await asyncio.to_thread(read, body)
                request = _Validated(request, value)
            return await handle(request)

        return handler


class _Validated(Request):
    """A request whose JSON is a model already. FastAPI's own validation takes models as they are."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def body(self) -> bytes:
        return b"{}"

    async def json(self) -> Any:
        return self._value


def parsed(body: bytes) -> Any:
    """Return a document. Raises UsageError if it is not strict JSON, and TooLargeError beyond the bounds of its
    shape."""
    check_shape(body)
    try:
        orjson.loads(body)  # strict: no NaN, no lone surrogates, no numbers out of range
        document = json.loads(body)  # integers of any size
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not valid JSON: {error}") from error
    if isinstance(document, dict) and len(document) > MAX_KEYS:
        raise TooLargeError(f"the body has {len(document)} fields")
    return document
