"""Collects a turn's deltas into one result, for responses without streaming. Runs several turns at once."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from aici_engine.chat.tools import CallArguments, CallStart
from aici_engine.server.link.wire import Score, TokenOut
from aici_engine.server.protocols.chat.turn import Delta, Removed, Scores, Text, Thought, TurnEnd


@dataclass(slots=True)
class CollectedCall:
    """A tool call of a finished turn. `arguments`: JSON text, cut off if the turn reached its token limit."""

    call_id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class CollectedTurn:
    """The sum of a turn's deltas. `tokens`: all tokens of the text, including tokens of a stop string and EOS."""

    text: str = ""
    thought: str = ""
    tokens: list[TokenOut] = field(default_factory=list)
    scores: Sequence[Score] = ()
    calls: list[CollectedCall] = field(default_factory=list)
    end: TurnEnd | None = None

    @property
    def ended(self) -> TurnEnd:
        """The TurnEnd of a turn that has ended."""
        assert self.end is not None
        return self.end

    def add(self, delta: Delta) -> None:
        match delta:
            case Text(token=TokenOut() as token):
                self.tokens.append(token)
            case Thought(text):
                self.thought += text
            case Removed(num_tokens):
                del self.tokens[max(0, len(self.tokens) - num_tokens) :]
            case Scores(scores):
                self.scores = scores
            case CallStart(call_id, name):
                self.calls.append(CollectedCall(call_id, name))
            case CallArguments(text):
                self.calls[-1].arguments += text
            case TurnEnd():
                self.text, self.end = delta.text, delta


async def merge_turns(turns: Sequence[AsyncGenerator[Delta, None]]) -> AsyncGenerator[tuple[int, Delta], None]:
    """Run the turns at the same time. Yield (number of the turn, delta) in the order of arrival.

    The first failure is raised and ends all turns. Closing this generator closes the turns.
    """
    if len(turns) == 1:  # no queue, and no further task: the events of a stream wait in the stream itself
        async with contextlib.aclosing(turns[0]) as deltas:
            async for only in deltas:
                yield 0, only
        return
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue()

    async def pump(number: int, turn: AsyncGenerator[Delta, None]) -> None:
        try:
            async with contextlib.aclosing(turn):
                async for delta in turn:
                    queue.put_nowait((number, delta))
            queue.put_nowait((number, None))
        except Exception as error:  # noqa: BLE001 merge_turns raises it again
            queue.put_nowait((number, error))

    tasks = [asyncio.create_task(pump(number, turn)) for number, turn in enumerate(turns)]
    try:
        running = len(tasks)
        while running:
            number, delta = await queue.get()
            if delta is None:
                running -= 1
            elif isinstance(delta, BaseException):
                raise delta
            else:
                yield number, delta
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def collect_turns(turns: Sequence[AsyncGenerator[Delta, None]]) -> list[CollectedTurn]:
    """Run the turns at the same time and return their results in the order of `turns`.

    The first failure is raised and ends all turns.
    """
    if len(turns) == 1:
        return [await _collected(turns[0])]
    tasks = [asyncio.create_task(_collected(turn)) for turn in turns]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _collected(turn: AsyncGenerator[Delta, None]) -> CollectedTurn:
    collected = CollectedTurn()
    async with contextlib.aclosing(turn) as deltas:
        async for delta in deltas:
            collected.add(delta)
    return collected
