"""The size of a request's body, the time it takes to come, and the time that the whole request takes."""

import asyncio

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aici_base.errors import AiciError, TimedOutError
from aici_engine.server.config import RequestLimits
from aici_engine.server.errors import ParameterError, TooLargeError
from aici_engine.server.gateway.authentication import refuse


class RequestLimitsMiddleware:
    """Reads the body before the route is called, so that one place decides. WebSockets are bounded by their server."""

    def __init__(self, app: ASGIApp, *, limits: RequestLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            body = await self._body(scope, receive)
            _check_json(scope, body)
        except AiciError as error:
            return await refuse(error, scope, receive, send)
        if body is None:
            return None
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        started = False

        async def replay() -> Message:
            return first.pop() if first else await receive()

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        limit = asyncio.timeout(self._limits.request_timeout_s + self._limits.grace_s)
        try:
            async with limit:
                return await self._app(scope, replay, watched)
        except TimeoutError:
            if not limit.expired():
                raise
        if not started:
            late = TimedOutError(f"the request took longer than {self._limits.request_timeout_s:g} s")
            await refuse(late, scope, receive, send)
        return None

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """None when the client leaves before all has come."""
        headers = Headers(scope=scope)
        if (encoding := headers.get("content-encoding", "identity")) != "identity":
            what = f"the body has Content-Encoding {encoding}"
            raise ParameterError("", what, hint="send it as it is", http_status=415)
        length = headers.get("content-length")
        if length is not None and int(length) > self._limits.max_body_bytes:
            raise self._too_large()
        parts = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts += message.get("body", b"")
                    if len(parts) > self._limits.max_body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(parts)
        except TimeoutError:
            raise TimedOutError(f"the body has not come within {self._limits.body_timeout_s:g} s") from None

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"the body is larger than {self._limits.max_body_bytes} bytes, which this server takes")


def _check_json(scope: Scope, body: bytes | None) -> None:
    """The parser that routes use takes more than JSON: NaN, halves of surrogate pairs, numbers out of range."""
    if body and "json" in Headers(scope=scope).get("content-type", ""):
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ParameterError("", f"the body is not JSON: {error}") from error
