"""Turns that are collected whole: the order of the results, and the end of all turns when one fails."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from aici_base.errors import UnavailableError
from aici_engine.server.protocols.chat.collect import collect_turns
from aici_engine.server.protocols.chat.turn import Delta, Thought


async def _thinks(text: str, *, seconds: float = 0.0) -> AsyncGenerator[Delta, None]:
    await asyncio.sleep(seconds)
    yield Thought(text)


def test_results_have_the_order_of_the_turns() -> None:
    async def main() -> list[str]:
        return [turn.thought for turn in await collect_turns([_thinks("late", seconds=0.01), _thinks("soon")])]

    assert asyncio.run(main()) == ["late", "soon"]


@pytest.mark.parametrize("num_others", [0, 1, 2])
def test_the_first_failure_ends_all_turns(num_others: int) -> None:
    ended: list[str] = []

    async def waits() -> AsyncGenerator[Delta, None]:
        try:
            await asyncio.sleep(600)
            yield Thought("never")
        finally:
            ended.append("waits")

    async def fails() -> AsyncGenerator[Delta, None]:
        await asyncio.sleep(0)
        raise UnavailableError("gone")
        yield Thought("never")

    async def main() -> None:
        with pytest.raises(UnavailableError, match="gone"):
            await collect_turns([*(waits() for _ in range(num_others)), fails()])
        assert ended == ["waits"] * num_others

    asyncio.run(main())
