"""A whole turn, for protocols that answer at once; and several turns at a time."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from aici_engine.server.link.wire import Score, TokenOut
from aici_engine.server.protocols.chat.tools import CallArguments, CallStart
from aici_engine.server.protocols.chat.turn import Delta, Removed, Scores, Text, TurnEnd


@dataclass(slots=True)
class CollectedCall:
    """`arguments`: JSON text; cut off where the answer reached its limit."""

    call_id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class CollectedTurn:
    """What the deltas of a turn come to. `tokens`: of the text, also those of a stop string and EOS."""

    text: str = ""
    tokens: list[TokenOut] = field(default_factory=list)
    scores: Sequence[Score] = ()
    calls: list[CollectedCall] = field(default_factory=list)
    end: TurnEnd | None = None

    @property
    def ended(self) -> TurnEnd:
        """Once it has."""
        assert self.end is not None
        return self.end

    def add(self, delta: Delta) -> None:
        match delta:
            case Text(token=TokenOut() as token):
                self.tokens.append(token)
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
    """Every delta of every turn with the turn's number, as they come. The first failure ends them all.

    The turns are closed when this generator is.
    """
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue()

    async def pump(number: int, turn: AsyncGenerator[Delta, None]) -> None:
        try:
            async with contextlib.aclosing(turn):
                async for delta in turn:
                    queue.put_nowait((number, delta))
            queue.put_nowait((number, None))
        except Exception as error:  # noqa: BLE001 raised again where the turns are awaited
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
    collected = [CollectedTurn() for _ in turns]
    async with contextlib.aclosing(merge_turns(turns)) as deltas:
        async for number, delta in deltas:
            collected[number].add(delta)
    return collected
