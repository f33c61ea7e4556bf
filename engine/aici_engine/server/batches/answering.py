"""Answers lines, several at a time, in the order of completion."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar

from aici_engine.server.batches.line import Answer, Line

Answerer: TypeAlias = Callable[[Line], Awaitable[Answer]]
_T = TypeVar("_T")

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
    lines: Iterator[_T], answer: Callable[[_T], Awaitable[bytes]], room: Callable[[], int]
) -> AsyncGenerator[list[bytes], None]:
    """Yield results in groups, as they become ready. At most `room()` lines run at a time; the number may change.

    Closing the generator ends the lines that run.
    """
    running: set[asyncio.Task[bytes]] = set()
    is_over = False
    try:
        while True:
            while not is_over and len(running) < room():
                line = next(lines, None)
                if line is None:
                    is_over = True
                else:
                    running.add(asyncio.ensure_future(answer(line)))
            if not running:
                if is_over:
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            done, running = await asyncio.wait(
                running, timeout=None if is_over else _LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                yield [each.result() for each in done]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
