"""Turns: how many pieces of work run at a time, whose turn is next, and what a caller who leaves gives back."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine

import pytest

from aici_engine.server.service.turns import Turns


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


class Work:
    """Pieces of work that run until the test ends them. `started`: the pieces in the order in which they began."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.started: list[str] = []
        self.running: set[str] = set()

    def ask(self, *names: str) -> None:
        """The first letter of a name is the key."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._run(name))

    async def _run(self, name: str) -> None:
        async with self._turns.take(name[0]):
            self.started.append(name)
            self.running.add(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.discard(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await settle()


def test_keys_take_turns() -> None:
    async def main() -> None:
        work = Work(Turns(1, most_per_key=1))
        work.ask("a1", "a2", "a3", "b1", "c1", "b2")
        await settle()
        for name in ("a1", "b1", "c1", "a2", "b2", "a3"):
            assert work.running == {name}
            await work.end(name)
        assert work.started == ["a1", "b1", "c1", "a2", "b2", "a3"]

    run(main())


def test_a_busy_key_leaves_a_slot_to_the_others() -> None:
    async def main() -> None:
        work = Work(Turns(3, most_per_key=2))
        work.ask(*(f"a{number}" for number in range(6)))
        await settle()
        assert work.running == {"a0", "a1"}
        work.ask("b1")
        await settle()
        assert work.running == {"a0", "a1", "b1"}
        for name in ("a0", "a1", "a2", "a3", "a4", "a5", "b1"):
            await work.end(name)

    run(main())


def test_who_leaves_the_queue_holds_nobody_up() -> None:
    async def main() -> None:
        work = Work(Turns(1, most_per_key=1))
        work.ask("a1", "a2", "b1")
        await settle()
        work.tasks["a2"].cancel()
        await settle()
        await work.end("a1")
        assert work.running == {"b1"}
        work.tasks["b1"].cancel()  # in the middle of its work
        await settle()
        work.ask("a3")
        await settle()
        assert work.running == {"a3"}
        await work.end("a3")

    run(main())


def test_a_caller_cancelled_as_its_turn_comes_gives_the_slot_back() -> None:
    async def main() -> None:
        turns = Turns(1, most_per_key=1)
        first = contextlib.AsyncExitStack()
        await first.enter_async_context(turns.take("a"))
        work = Work(turns)
        work.ask("b1")
        await settle()
        await first.aclose()  # hands the slot to b1, which has not run since
        work.tasks["b1"].cancel()
        await settle()
        work.ask("c1")
        await settle()
        assert work.started == ["c1"]
        await work.end("c1")

    run(main())


def test_work_in_a_thread_keeps_its_slot_when_the_caller_leaves() -> None:
    async def main() -> None:
        turns, begun, goes_on = Turns(1, most_per_key=1), threading.Event(), threading.Event()

        def slow() -> None:
            begun.set()
            assert goes_on.wait(30)

        leaving = asyncio.create_task(turns.in_thread("a", slow))
        await asyncio.to_thread(begun.wait, 30)
        leaving.cancel()
        waiting = asyncio.create_task(turns.in_thread("b", lambda: "b's"))
        await settle()
        assert not waiting.done()
        goes_on.set()
        assert await waiting == "b's"
        with pytest.raises(asyncio.CancelledError):
            await leaving

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_and_everything_ends(seed: int) -> None:
    """Random keys, durations and departures: never too many at a time, and no slot is lost."""

    async def main() -> None:
        dice = random.Random(seed)
        slots, most = dice.choice([(1, 1), (2, 1), (3, 2), (4, 4)])
        turns, running = Turns(slots, most_per_key=most), list[str]()

        async def piece(key: str) -> None:
            async with turns.take(key):
                running.append(key)
                assert len(running) <= slots
                assert running.count(key) <= most
                try:
                    for _ in range(dice.randrange(5)):
                        await asyncio.sleep(0)
                finally:
                    running.remove(key)

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(piece(dice.choice("abc"))))
            if dice.random() < 0.3:
                dice.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        async with contextlib.AsyncExitStack() as stack:
            for number in range(slots):
                await stack.enter_async_context(turns.take(f"key{number}"))

    run(main())
