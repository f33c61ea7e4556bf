"""Answers lines, several at a time, in the order of completion."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar, cast

from aici_engine.server.batches.line import Answer, Line

Answerer: TypeAlias = Callable[[Line], Awaitable[Answer]]
_T = TypeVar("_T")
_R = TypeVar("_R")

MAX_ATTEMPTS: Final = 3
_RETRY_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.25


async def answer_line(line: Line, answerer: Answerer) -> Answer:
    """Return the answer to a line. A full queue is waited for.

    A line whose engine dies, or whose time is over, is tried MAX_ATTEMPTS times: the line itself may be the reason.
    """
    num_failures = 0
    while True:
        answer = await answerer(line)
        if answer.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT):
            num_failures += 1
            if num_failures == MAX_ATTEMPTS:
                return answer
        elif answer.status != HTTPStatus.TOO_MANY_REQUESTS:
            return answer
        await asyncio.sleep(_RETRY_S if answer.retry_after_s is None else answer.retry_after_s)


async def answer_all(
    lines: AsyncIterator[_T], answer: Callable[[_T], Awaitable[_R]], room: Callable[[], int]
) -> AsyncGenerator[list[_R], None]:
    """Yield results in groups, as they become ready. At most `room()` lines run at a time; the number may change.

    Closing the generator ends the lines that run.
    """
    running: set[asyncio.Future[_R]] = set()
    is_over = False
    try:
        while True:
            while not is_over and len(running) < room():
                try:
                    running.add(asyncio.ensure_future(answer(await anext(lines))))
                except StopAsyncIteration:
                    is_over = True
            if not running:
                if is_over:
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            done, _ = await asyncio.wait(
                running, timeout=None if is_over else _LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            running -= done
            if done:
                yield [each.result() for each in done]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def in_threads(items: Iterator[_T]) -> AsyncGenerator[_T, None]:
    """Yield the same items. A disk may delay an iterator, so each step runs in a thread."""
    nothing = object()
    while (item := await asyncio.to_thread(next, items, nothing)) is not nothing:
        yield cast("_T", item)
