"""Limits of a request: the size of its body, the time for the body to arrive, and the time of the whole request."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aici_base.errors import AiciError, TimedOutError, TooLargeError, UnavailableError
from aici_engine.server.config import RequestLimits
from aici_engine.server.errors import WrongEncodingError
from aici_engine.server.gateway.error_responses import refuse
from aici_engine.server.gateway.route_policy import RoutePolicies, RoutePolicy

_BODY_FILE: Final = "aici.body_file"
_PIECE_BYTES: Final = 1 << 20
"""Of a body that becomes a file. A shorter body stays in memory."""


class _ClientLeftError(Exception):
    """Nobody waits for an answer."""


def body_file(scope: Scope) -> IO[bytes]:
    """Return the body of a request whose route has `has_large_body`. The file is closed when the request ends."""
    file: IO[bytes] = scope[_BODY_FILE]
    return file


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
        max_bytes = policy.max_body_bytes or self._limits.max_body_bytes
        with contextlib.ExitStack() as stack:
            try:
                if policy.has_large_body:
                    scope[_BODY_FILE] = file = stack.enter_context(tempfile.SpooledTemporaryFile(_PIECE_BYTES))
                    body = await self._to_file(scope, receive, max_bytes, file)
                else:
                    body = await self._body(scope, receive, max_bytes)
            except AiciError as error:
                return await refuse(policy.errors, error, scope, receive, send)
            except _ClientLeftError:
                return None
            return await self._run(scope, receive, send, body, policy)

    async def _run(self, scope: Scope, receive: Receive, send: Send, body: bytes, policy: RoutePolicy) -> None:
        timeout_s = policy.timeout_s or self._limits.request_timeout_s
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
                await self._app(scope, replay, watched)
                return
        except TimeoutError:
            if not limit.expired():
                raise
        if not started:
            late = TimedOutError(f"the request took longer than {timeout_s:g} s")
            await refuse(policy.errors, late, scope, receive, send)

    async def _to_file(self, scope: Scope, receive: Receive, max_bytes: int, file: IO[bytes]) -> bytes:
        """Write the body into a file. Return an empty body. Raises as `_parts`."""
        pending = bytearray()
        try:
            async for part in self._parts(scope, receive, max_bytes):
                pending += part
                if len(pending) >= _PIECE_BYTES:
                    await asyncio.to_thread(file.write, bytes(pending))
                    pending.clear()
            file.write(pending)  # less than a piece, in memory or in the page cache
        except OSError as error:
            why = f"the server has no room for the body: {error.strerror}"
            raise UnavailableError(why, hint="try again later") from error
        return b""

    async def _body(self, scope: Scope, receive: Receive, max_bytes: int) -> bytes:
        """Return the body. Raises as `_parts`."""
        parts = bytearray()
        async for part in self._parts(scope, receive, max_bytes):
            parts += part
        return bytes(parts)

    async def _parts(self, scope: Scope, receive: Receive, max_bytes: int) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they come. Raises AiciError for a body that is refused, and _ClientLeftError
        if the client leaves before the body is complete."""
        headers = Headers(scope=scope)
        if (encoding := headers.get("content-encoding", "identity")) != "identity":
            what = f"the body has Content-Encoding {encoding}"
            raise WrongEncodingError(what, hint="send the body without compression")
        length = headers.get("content-length")
        if length is not None and int(length) > max_bytes:
            raise _too_large(max_bytes)
        size_bytes = 0
        deadline = asyncio.get_running_loop().time() + self._limits.body_timeout_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not arrive within {self._limits.body_timeout_s:g} s"
                raise TimedOutError(late) from None
            if message["type"] == "http.disconnect":
                raise _ClientLeftError
            part = message.get("body", b"")
            size_bytes += len(part)
            if size_bytes > max_bytes:
                raise _too_large(max_bytes)
            yield part
            if not message.get("more_body", False):
                return


def _too_large(max_bytes: int) -> TooLargeError:
    return TooLargeError(f"the body is larger than the limit of {max_bytes} bytes")
