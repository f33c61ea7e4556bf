"""Limits of keys over several servers of a machine: one file, several counters, as in several processes."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import RateLimitError, UnavailableError
from aici_engine.server.service.admission import Admission, Principal
from aici_engine.server.service.key_counts import KeyCounts, LocalCounts
from aici_engine.server.service.shared_counts import SharedCounts
from tests.support.admission import pass_through

BOB = Principal(name="bob", is_admin=False, requests_per_minute=3, max_concurrency=2, tokens_per_minute=60)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def two(path: Path, main: Callable[[Admission, Admission, Clock], Awaitable[None]]) -> None:
    """Run `main` over the admissions of two servers."""
    clock = Clock()

    async def run() -> None:
        with SharedCounts(path, clock=clock) as one, SharedCounts(path, clock=clock) as other:
            await main(Admission(8, counts=one), Admission(8, counts=other), clock)

    asyncio.run(run())


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the file, as a server does that is stopped in the middle of a transaction."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def test_requests_a_minute_are_counted_over_all_servers(tmp_path: Path) -> None:
    async def main(one: Admission, other: Admission, clock: Clock) -> None:
        await one.count(BOB)
        await other.count(BOB)
        await one.count(BOB)
        for each in (one, other):
            with pytest.raises(RateLimitError) as error:
                await each.count(BOB)
            assert error.value.retry_after_s == 20
        await other.count(Principal(name="alice", requests_per_minute=1))
        clock.now += 20
        await other.count(BOB)

    two(tmp_path / "limits.db", main)


def test_a_budget_is_spent_by_all_servers(tmp_path: Path) -> None:
    async def main(one: Admission, other: Admission, clock: Clock) -> None:
        for each in (one, other):
            async with each.admit(BOB, 1):
                each.budgets.spend_tokens("bob", 40)
        await one.budgets.left("bob")  # an answer comes after all that this server counted before
        assert await other.budgets.left("bob") == {"tokens_per_minute": 0}
        for each in (one, other):
            with pytest.raises(RateLimitError, match=r"-20\.0 left"):
                await pass_through(each, BOB)
        clock.now += 21
        await pass_through(one, BOB)

    two(tmp_path / "limits.db", main)


def test_sequences_at_a_time_are_counted_over_all_servers(tmp_path: Path) -> None:
    async def main(one: Admission, other: Admission, _: Clock) -> None:
        async with one.admit(BOB, 1), other.admit(BOB, 1):
            for each in (one, other):
                with pytest.raises(RateLimitError, match="bob may have 2"):
                    await pass_through(each, BOB)
                assert each.num_admitted == 1
        await other.budgets.left("bob")  # an answer comes after all that was counted before
        await pass_through(one, BOB, 2)

    two(tmp_path / "limits.db", main)


DIES = """
import asyncio, os, pathlib, sys
from aici_engine.server.service.shared_counts import SharedCounts

async def main():
    counts = SharedCounts(pathlib.Path(sys.argv[1]))
    assert await counts.enter("bob", 2, 2)
    await counts.take("bob", {"tokens_per_minute": 60})
    counts.spend("bob", "tokens_per_minute", 50)
    await counts.left("bob")
    print("counted", flush=True)
    sys.stdin.read()
    os._exit(7)

asyncio.run(main())
"""
OTHER_PIDS = ("unshare", "--pid", "--fork", "--kill-child")


@contextlib.asynccontextmanager
async def server_that_dies(path: Path, *prefix: str) -> AsyncIterator[None]:
    """Run another server with two sequences of bob until the context ends."""
    command = [*prefix, sys.executable, "-c", DIES, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "counted\n"
        yield
        child.stdin.close()
        assert await asyncio.to_thread(child.wait) == 7


@pytest.mark.parametrize("prefix", [(), OTHER_PIDS], ids=["same pids", "other pids"])
def test_a_server_that_dies_leaves_no_sequences_and_loses_no_budget(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    """A server counts as long as it lives, also in another container, which has process numbers of its own."""
    if prefix and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a PID namespace needs rights that this process lacks")
    path = tmp_path / "limits.db"

    async def main() -> None:
        with SharedCounts(path) as counts:
            async with server_that_dies(path, *prefix):
                assert not await counts.enter("bob", 1, 2)
            assert (await counts.left("bob"))["tokens_per_minute"] < 60
            assert await counts.enter("bob", 2, 2)
            assert not await counts.enter("bob", 1, 2)

    asyncio.run(main())


def test_the_counts_begin_anew_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"

    async def main() -> None:
        with SharedCounts(path) as counts:
            await counts.take("bob", {"tokens_per_minute": 60}, 60)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE boots SET id = 'another'")
        with SharedCounts(path) as counts:
            assert await counts.left("bob") == {}

    asyncio.run(main())


def test_a_held_file_delays_what_was_spent_and_refuses_requests_by_name(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"

    async def main() -> None:
        with SharedCounts(path) as counts:
            await counts.take("bob", {"tokens_per_minute": 60})
            with held(path):
                counts.spend("bob", "tokens_per_minute", 50)
                with pytest.raises(UnavailableError, match="cannot be counted"):
                    await counts.take("bob", {"tokens_per_minute": 60})
            assert (await counts.left("bob"))["tokens_per_minute"] < 60

    asyncio.run(main())


def test_the_event_loop_does_not_wait_for_a_held_file(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"

    async def main() -> None:
        with SharedCounts(path) as counts:
            with held(path):
                entering = counts.enter("bob", 1, 2)
                answer = entering.send(None)  # the first step of the coroutine ends before there is an answer
                assert asyncio.isfuture(answer)
                await asyncio.wait([answer])
                with pytest.raises(UnavailableError):
                    entering.send(None)
            assert await counts.enter("bob", 2, 2)

    asyncio.run(main())


def test_a_held_file_concerns_neither_administrators_nor_keys_without_limits(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    root = Principal(name="root", requests_per_minute=3, max_concurrency=2, tokens_per_minute=60)
    plain = Principal(name="plain", is_admin=False)

    async def main() -> None:
        with SharedCounts(path) as counts:
            admission = Admission(8, counts=counts)
            with held(path):
                with pytest.raises(UnavailableError):
                    await admission.count(BOB)
                with pytest.raises(UnavailableError):
                    await pass_through(admission, BOB)
                assert admission.num_admitted == 0
                await admission.count(root)
                await admission.count(plain)
                async with admission.admit(root, 2), admission.admit(plain, 1):
                    assert admission.num_admitted == 3
                await asyncio.wait_for(counts.enter("root", 2, None), 60)
            with pytest.raises(RateLimitError, match="root may have 2"):
                await pass_through(admission, root)

    asyncio.run(main())


def test_sequences_of_a_caller_that_leaves_while_the_file_is_asked_are_taken_off(tmp_path: Path) -> None:
    async def main() -> None:
        with SharedCounts(tmp_path / "limits.db") as counts:
            entering = asyncio.create_task(counts.enter("bob", 2, 2))
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            async with asyncio.timeout(60):
                while not await counts.enter("bob", 2, 2):
                    await asyncio.sleep(0)

    asyncio.run(main())


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    path.write_text("no database, " * 100)
    with pytest.raises(UnavailableError, match="cannot count"):
        SharedCounts(path)


NAMES, LIMITS = st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), NAMES, LIMITS, st.sampled_from([3.0, 60.0, None]), st.integers(0, 2)),
        st.tuples(st.just("spend"), NAMES, LIMITS, st.integers(0, 9)),
        st.tuples(st.just("enter"), NAMES, st.integers(1, 2), st.sampled_from([None, 3])),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 7.0])),
    ),
    max_size=20,
)


async def result_of(counts: KeyCounts, step: tuple) -> object:  # type: ignore[type-arg]
    match step:
        case "take", name, limit, per_minute, amount:
            return await counts.take(name, {limit: per_minute}, amount)
        case "spend", name, limit, amount:
            return counts.spend(name, limit, amount)
        case _, name, number, most:
            return await counts.enter(name, number, most)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_a_shared_counter_counts_as_a_local_one(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    clock = Clock()

    async def main(shared: SharedCounts) -> None:
        local = LocalCounts(clock)
        for step in steps:
            if step[0] == "wait":
                clock.now += step[1]
                continue
            assert await result_of(shared, step) == await result_of(local, step)
            for name in ("a", "b"):
                assert await shared.left(name) == pytest.approx(await local.left(name))

    with tempfile.TemporaryDirectory() as folder, SharedCounts(Path(folder, "limits.db"), clock=clock) as shared:
        asyncio.run(main(shared))
