"""The heartbeat that another process reads: turns of the loop, and the time that a forward pass may take."""

import mmap
from pathlib import Path

from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.heartbeat import PAGE_BYTES, Beat, Heartbeat
from tests.support.processes import wait_until


def test_the_first_pass_may_take_as_long_as_the_weights_are_large() -> None:
    page = mmap.mmap(-1, PAGE_BYTES)
    heartbeat = Heartbeat(page)
    heartbeat.weight_bytes = 14 << 30
    heartbeat.compute(512)
    assert Beat.read(page).allowed_s > 600
    heartbeat.weight_bytes = 1 << 20
    heartbeat.compute(512)
    assert Beat.read(page).allowed_s < 1


def test_later_passes_are_measured_by_the_slowest_pass() -> None:
    page = mmap.mmap(-1, PAGE_BYTES)
    heartbeat = Heartbeat(page)
    heartbeat.weight_bytes = 14 << 30
    heartbeat.compute(512)
    heartbeat.computed()
    assert Beat.read(page).allowed_s == 0
    heartbeat.compute(512)
    again = Beat.read(page)
    assert 0 < again.allowed_s < 60
    heartbeat.beat()
    assert Beat.read(page).number == again.number + 1


def test_the_loop_beats_with_its_turns_and_not_while_it_is_idle(tiny_model: Path) -> None:
    page = mmap.mmap(-1, PAGE_BYTES)

    def number() -> int:
        return Beat.read(page).number

    with Engine(EngineConfig(model_dir=tiny_model), heartbeat=Heartbeat(page)) as engine:
        engine.generate("Once", max_tokens=8)
        after = number()
        assert after > 8
        heard: list[int] = []
        engine.nudge(lambda: heard.append(1))
        assert wait_until(lambda: bool(heard) and number() > after, 30)
