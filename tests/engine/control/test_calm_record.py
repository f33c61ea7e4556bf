"""What earlier guests of a controller teach: when the next one is calm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aici_base.ids import SeqId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.control.calm_record import CalmRecord
from aici_engine.engine import Engine
from aici_engine.request import NOBODY, ControllerCall, Request, Share
from aici_engine.sequences.sequence import Sequence
from tests.engine.support import GO_ON, Guest, ScriptedRuntime


def sequence(quiet: int = 0, wishes: int = 0, *, argument: object = "a", share: Share = NOBODY) -> Sequence:
    made = Sequence(
        SeqId(1),
        prompt=[1],
        sampling=SamplingParams(),
        controller=ControllerCall("m", argument),
        limit=9,
        sink=lambda event: None,
        submitted_at=0.0,
        share=share,
    )
    for _ in range(quiet):
        made.guest.went_on()
    for _ in range(wishes):
        made.guest.wished()
    return made


@pytest.mark.parametrize(
    ("guests", "rounds"),
    [
        ([], 12),
        ([(23, 0)], 12),
        ([(24, 0)], 1),
        ([(4, 0)] * 6, 1),
        ([(47, 1)], 12),
        ([(48, 1)], 1),
        ([(24, 0), (10, 5)], 12),
    ],
)
def test_a_guest_is_calm_at_once_after_quiet_ones(guests: list[tuple[int, int]], rounds: int) -> None:
    record = CalmRecord(12)
    for guest in guests:
        record.add(sequence(*guest))
    assert record.rounds_until_calm(sequence()) == rounds


def test_a_record_is_of_an_owner_and_an_argument() -> None:
    record = CalmRecord(12)
    record.add(sequence(100, argument={"type": "string"}))
    assert record.rounds_until_calm(sequence(argument={"type": "string"})) == 1
    assert record.rounds_until_calm(sequence(argument={"type": "number"})) == 12
    assert record.rounds_until_calm(sequence(argument={"type": "string"}, share=Share(owner="x"))) == 12


def test_old_rounds_count_less() -> None:
    record = CalmRecord(12)
    record.add(sequence(1 << 17))
    record.add(sequence(0, 3000))
    assert record.rounds_until_calm(sequence()) == 12
    for _ in range(3):
        record.add(sequence(1 << 16))
    assert record.rounds_until_calm(sequence()) == 1


class Counts(Guest):
    """Goes on `argument` times, then stops."""

    num_pre = 0

    def pre(self) -> Any:
        self.num_pre += 1
        return GO_ON

    def mid(self) -> Any:
        return range(32, 127)

    def post(self, tokens: Any, backtrack: int) -> bool:
        return super().post(tokens, backtrack) or self.num_pre > self.argument


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime({"counts": Counts})


@pytest.fixture
def engine(tiny_model: Path, runtime: ScriptedRuntime) -> Iterator[Engine]:
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64, calm_rounds=6), runtime=runtime) as engine:
        yield engine


def test_the_second_request_waits_for_no_round(engine: Engine, runtime: ScriptedRuntime) -> None:
    def guesses() -> int:
        runtime.guesses = 0
        sampling = SamplingParams(temperature=0.0, max_tokens=60)
        request = Request(prompt="Hello", sampling=sampling, controller=ControllerCall("counts", 30))
        assert engine.submit(request).wait().error is None
        return runtime.guesses

    first, second = guesses(), guesses()
    assert second == first + 5  # calm after 1 round instead of 6
