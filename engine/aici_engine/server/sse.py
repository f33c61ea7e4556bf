"""Server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.responses import StreamingResponse

_T = TypeVar("_T")

DONE = b"data: [DONE]\n\n"


def event(data: Any, *, name: str = "") -> bytes:
    """One event: two newlines end it, which makes it one."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


def stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )


class ClientGoneError(Exception):
    """Nobody is there to be answered."""


async def unless_gone(request: Request, work: Awaitable[_T]) -> _T:
    """For answers that are not streamed: what `work` gives, or, when the client leaves first, `work` is cancelled.

    The body of the request must have been read.
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
