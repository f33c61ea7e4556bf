"""Limits of a request: the size of its body, the time for the body to arrive, and the time of the whole request."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aici_base.errors import AiciError, TimedOutError, TooLargeError
from aici_engine.server.config import RequestLimits
from aici_engine.server.errors import WrongEncodingError
from aici_engine.server.gateway.error_responses import refuse
from aici_engine.server.gateway.route_policy import RoutePolicies


class RequestLimitsMiddleware:
    """Reads and checks the body before the route is called. The HTTP server limits WebSocket messages."""

    def __init__(self, app: ASGIApp, *, policies: RoutePolicies, limits: RequestLimits) -> None:
        self._app = app
        self._policies = policies
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = scope.get("state", {}).get("principal")
        if scope["type"] != "http" or (principal is not None and principal.is_background):
            # Nobody waits for a line of a batch, and the line was checked when its file was read.
            return await self._app(scope, receive, send)
        policy = self._policies.of(scope)
        timeout_s = policy.timeout_s or self._limits.request_timeout_s
        try:
            body = await self._body(scope, receive, policy.max_body_bytes or self._limits.max_body_bytes)
        except AiciError as error:
            return await refuse(policy.errors, error, scope, receive, send)
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

        limit = asyncio.timeout(timeout_s + self._limits.grace_s)
        try:
            async with limit:
                return await self._app(scope, replay, watched)
        except TimeoutError:
            if not limit.expired():
                raise
        if not started:
            late = TimedOutError(f"the request took longer than {timeout_s:g} s")
            await refuse(policy.errors, late, scope, receive, send)
        return None

    async def _body(self, scope: Scope, receive: Receive, max_bytes: int) -> bytes | None:
        """Return the body; None if the client leaves before the body is complete."""
        headers = Headers(scope=scope)
        if (encoding := headers.get("content-encoding", "identity")) != "identity":
            what = f"the body has Content-Encoding {encoding}"
            raise WrongEncodingError(what, hint="send the body without compression")
        length = headers.get("content-length")
        if length is not None and int(length) > max_bytes:
            raise _too_large(max_bytes)
        parts = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts += message.get("body", b"")
                    if len(parts) > max_bytes:
                        raise _too_large(max_bytes)
                    if not message.get("more_body", False):
                        return bytes(parts)
        except TimeoutError:
            raise TimedOutError(f"the body did not arrive within {self._limits.body_timeout_s:g} s") from None


def _too_large(max_bytes: int) -> TooLargeError:
    return TooLargeError(f"the body is larger than the limit of {max_bytes} bytes")
