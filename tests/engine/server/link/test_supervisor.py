"""When the supervisor starts another engine, and when it gives up. The engine processes are fakes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import AiciError, UnavailableError
from aici_engine.config import EngineConfig
from aici_engine.server.link import supervisor, wire
from aici_engine.server.link.supervisor import Supervisor

DEAD = UnavailableError("the engine process has died")
INFO = wire.EngineInfo(10, 10, 1)


class FakeProcess:
    """An engine process that is ready at once. `made`: all of them. `errors`: of the next starts."""

    made: list["FakeProcess"]
    errors: list[OSError]

    def __init__(self, client: Any, *, config: Any, died: Callable[["FakeProcess", AiciError], None]) -> None:
        if self.errors:
            raise self.errors.pop()
        self.made.append(self)
        self._client, self._died = client, died
        self.was_useful = self.is_closed = False
        self.ready: asyncio.Future[wire.EngineInfo] = asyncio.get_running_loop().create_future()
        self.ready.set_result(INFO)

    def serve(self) -> None:
        self._client.connected(self, INFO)

    def send(self, message: wire.ToEngine) -> None: ...

    def die(self) -> None:
        self._died(self, DEAD)

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeProcess.made, FakeProcess.errors = [], []
    monkeypatch.setattr(supervisor, "EngineProcess", FakeProcess)
    monkeypatch.setattr(supervisor, "_PAUSE_S", 0.01)
    monkeypatch.setattr(supervisor, "_SPARE_PAUSE_S", 0.01)


def supervised(main: Callable[[Supervisor], Awaitable[None]], *, has_spare: bool = False) -> None:
    async def limited() -> None:
        async with (
            asyncio.timeout(30),
            Supervisor(EngineConfig(model_dir=Path("/nowhere")), modules=[], max_forks=1, has_spare=has_spare) as it,
        ):
            await main(it)

    asyncio.run(limited())
    assert all(process.is_closed for process in FakeProcess.made)


def test_another_engine_serves_after_a_death() -> None:
    async def main(it: Supervisor) -> None:
        FakeProcess.made[0].die()
        assert not it.client.is_ready
        await it.client.up.wait()
        assert len(FakeProcess.made) == 2

    supervised(main)


def test_a_start_without_descriptors_is_tried_again() -> None:
    async def main(it: Supervisor) -> None:
        FakeProcess.errors = [OSError(24, "Too many open files"), OSError(28, "No space left on device")]
        FakeProcess.made[0].die()
        await it.client.up.wait()
        assert not it.failed.is_set()

    supervised(main)


def test_engines_that_die_without_a_token_are_given_up() -> None:
    async def main(it: Supervisor) -> None:
        for _ in range(4):
            await it.client.up.wait()
            FakeProcess.made[-1].die()
        await it.failed.wait()
        assert len(FakeProcess.made) == 4

    supervised(main)


def test_engines_that_have_worked_are_always_replaced() -> None:
    async def main(it: Supervisor) -> None:
        for _ in range(10):
            await it.client.up.wait()
            FakeProcess.made[-1].was_useful = True
            FakeProcess.made[-1].die()
        await it.client.up.wait()
        assert not it.failed.is_set()

    supervised(main)


def test_a_spare_engine_serves_at_once_and_another_spare_is_loaded() -> None:
    async def main(it: Supervisor) -> None:
        while len(FakeProcess.made) < 2:
            await asyncio.sleep(0.01)
        first, spare = FakeProcess.made
        first.die()
        await it.client.up.wait()
        assert it._process is spare  # type: ignore[comparison-overlap]
        while len(FakeProcess.made) < 3:
            await asyncio.sleep(0.01)
        FakeProcess.made[2].die()
        assert it.client.is_ready, "the death of a spare engine disturbs nobody"
        while len(FakeProcess.made) < 4:
            await asyncio.sleep(0.01)

    supervised(main, has_spare=True)
