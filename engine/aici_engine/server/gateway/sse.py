"""Server-sent events, and responses that stop when the client leaves."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from aici_engine.server.errors import ClientGoneError

_T = TypeVar("_T")

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = b"data: [DONE]\n\n"


def event(data: Any, *, name: str = "") -> bytes:
    """Return the bytes of an event. Two newlines end an event."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


def stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)


async def respond(
    request: Request, events: AsyncGenerator[bytes, None], headers: Mapping[str, str] = MappingProxyType({})
) -> StreamingResponse:
    """Return a streaming response with further `headers`, once the first event is ready.

    An error before the first event is raised, and so gets its own HTTP status. `events` is closed in every case.
    """
    try:
        first = await unless_gone(request, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return _Events(first, events, headers)


class _Events(StreamingResponse):
    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(_chain(first, rest), media_type="text/event-stream", headers={**_HEADERS, **headers})
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette stops iterating when the client leaves, but does not close the iterator.
        async with contextlib.aclosing(self._rest):
            await super().__call__(scope, receive, send)


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for event in rest:
        yield event


async def unless_gone(request: Request, work: Awaitable[_T]) -> _T:
    """Return the result of `work`. If the client leaves first, cancel `work` and raise ClientGoneError.

    For responses that are not streamed. The request's body must have been read.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
