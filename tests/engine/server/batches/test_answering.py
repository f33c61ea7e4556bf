"""Lines are answered several at a time; a full or starting server is no answer."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from aici_engine.server.batches.answering import MAX_ATTEMPTS, answer_all, answer_line, in_threads
from aici_engine.server.batches.line import Answer, Line

_LINE = Line("a", "/v1/completions", {})


@pytest.mark.parametrize(
    ("statuses", "last"),
    [
        ([200], 200),
        ([400, 200], 400),
        ([500, 200], 500),
        ([429] * 20 + [200], 200),
        ([503, 429, 408, 200], 200),
        ([503] * MAX_ATTEMPTS + [200], 503),
        ([408] * MAX_ATTEMPTS + [200], 408),
    ],
)
def test_attempts(statuses: list[int], last: int) -> None:
    left = iter(statuses)

    async def answerer(line: Line) -> Answer:
        return Answer(next(left), b"{}", retry_after_s=0)

    assert asyncio.run(answer_line(_LINE, answerer)).status == last


def test_every_line_once_and_no_more_at_a_time_than_there_is_room() -> None:
    running = most = 0
    room = 3
    together = asyncio.Barrier(room)

    async def answer(number: int) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await together.wait()
        running -= 1
        return b"%d" % number

    async def main() -> list[bytes]:
        return [text async for group in answer_all(in_threads(iter(range(51))), answer, lambda: room) for text in group]

    assert sorted(asyncio.run(main()), key=int) == [b"%d" % number for number in range(51)]
    assert most == room


def test_lines_wait_for_room() -> None:
    room = 0

    async def answer(number: int) -> bytes:
        assert room
        return b"x"

    async def main() -> int:
        nonlocal room
        groups = answer_all(in_threads(iter(range(3))), answer, lambda: room)
        first = asyncio.ensure_future(anext(groups))
        await asyncio.sleep(0.05)
        assert not first.done()
        room = 3
        return len(await first)

    assert asyncio.run(main()) == 3


def test_a_failure_or_a_close_ends_the_lines_that_run() -> None:
    ended: list[int] = []

    async def answer(number: int) -> bytes:
        if number == 2:
            raise RuntimeError("broken")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)
        raise AssertionError

    async def fail(numbers: Iterator[int]) -> None:
        async with contextlib.aclosing(answer_all(in_threads(numbers), answer, lambda: 3)) as groups:
            async for _ in groups:
                raise AssertionError

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(fail(iter([0, 1, 2])))
    assert sorted(ended) == [0, 1]
