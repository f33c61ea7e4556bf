"""Stages that are given without cuts: divided by what they say of themselves, and again only if they must be."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from random import Random
from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_engine.cluster.frames import HeldRange, StageFacts, StageSpeed
from aici_engine.cluster.link_server import KeyPair
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.plan import NodeInfo, PlanRequest
from aici_engine.cluster.stage_planner import MeasuredSpeed, StagePlanner
from aici_engine.cluster.token import ClusterToken
from aici_engine.executor import StateLostError
from tests.cluster.fake_pipeline import NUM_LAYERS, PAGE_SIZE, FakeLoader, random_steps, running_driver, running_stage
from tests.cluster.test_pipeline import compare
from tests.cluster.test_plan import MB, model
from tests.support.processes import wait_until

MODEL = b"m" * 32  # of the frames of tests.cluster.fake_pipeline


def planner(driver_mb: float = 100, num_layers: int = NUM_LAYERS) -> StagePlanner:
    """For layers of 16 MB, on a driver of the same speed as the stages."""
    sizes = model(num_layers, embedding=1000)
    request = PlanRequest(
        sizes=sizes, dtype="float32", num_pages=40, min_pages=10, page_size=PAGE_SIZE, max_batch_tokens=64
    )
    driver = NodeInfo(name="driver", budget_bytes=int(driver_mb * MB), bytes_per_s=1e10)
    return StagePlanner(request, model=MODEL, driver=lambda: driver)


def facts(*budgets_mb: float, held: Sequence[HeldRange | None] = ()) -> list[StageFacts]:
    ranges = held or [None] * len(budgets_mb)
    budgets = [int(each * MB) for each in budgets_mb]
    return [StageFacts(1, "", "cpu", 1, num_bytes, 0, part) for num_bytes, part in zip(budgets, ranges, strict=True)]


def speeds(*rates: float) -> Callable[[], list[MeasuredSpeed]]:
    return lambda: [MeasuredSpeed(StageSpeed(rate, {}), 0.001) for rate in rates]


def unasked() -> list[MeasuredSpeed]:
    raise AssertionError("the stages were asked for their speed")


def cuts(made: StagePlanner, said: Sequence[StageFacts], measure: Callable[[], list[MeasuredSpeed]]) -> list[int]:
    plan = made.plan(["a", "b"], said, measure, num_pages=None)
    return [stage.part.last for stage in plan.stages[:-1]]


def test_more_memory_and_more_speed_are_more_layers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert cuts(planner(), facts(200, 200), speeds(1e10, 1e10)) == [2, 4]
    assert cuts(planner(), facts(18, 200), speeds(1e10, 1e10))[0] == 1
    assert cuts(planner(), facts(200, 200), speeds(1e10, 4e10)) == [1, 5]
    assert "plan: a: layers 0 to 1" in caplog.text
    assert "plan: 40 pages; about" in caplog.text


def test_what_does_not_fit_is_refused_with_what_is_missing() -> None:
    with pytest.raises(UsageError, match=r"short by .* would need"):
        cuts(planner(20), facts(20, 20), speeds(1e10, 1e10))


def test_ranges_that_stages_hold_stay() -> None:
    held = [HeldRange(MODEL, 0, 1, True, False, "float32"), HeldRange(MODEL, 1, 3, False, False, "float32")]
    assert cuts(planner(), facts(200, 200, held=held), speeds(1e10, 4e10)) == [1, 3]
    other = [HeldRange(b"o" * 32, 0, 1, True, False, "float32"), None]
    assert cuts(planner(), facts(200, 200, held=other), speeds(1e10, 1e10)) == [2, 4]


def test_a_plan_lasts_until_a_stage_is_too_small_for_it() -> None:
    made = planner()
    assert cuts(made, facts(200, 200), speeds(1e10, 1e10)) == [2, 4]
    assert cuts(made, facts(150, 60), unasked) == [2, 4]
    assert cuts(made, facts(200, 20), speeds(1e10, 1e10)) == [2, 3]


# With stages in threads.


def stage(token: ClusterToken, mb: float, loader: FakeLoader, **more: Any) -> AbstractContextManager[Any]:
    speed = StageSpeed(1e10, {"float32": 1e11})
    return running_stage(token, loader, memory_bytes=int(mb * MB), measure=lambda: speed, **more)


def ranges(driver: PipelineExecutor) -> list[tuple[int, int]]:
    status = driver.status()
    return [(each["first"], each["last"]) for each in (*status["stages"], status["driver"])]


def test_a_driver_divides_by_the_stages_memory_and_a_later_driver_keeps_the_ranges() -> None:
    token, loaders = ClusterToken.new(), [FakeLoader(), FakeLoader()]
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(stage(token, mb, loader)) for mb, loader in zip((18, 200), loaders, strict=True)
        ]
        with running_driver(token, addresses, num_pages=None, planner=planner()) as driver:
            first = ranges(driver)
            assert first == [(0, 1), (1, 4), (4, 6)] or first == [(0, 1), (1, 3), (3, 6)]
            assert driver.num_pages == 40
            assert all(0 < each["rtt_s"] < 1 for each in driver.status()["stages"])
            compare(driver, list(random_steps(Random(1), 10)), depth=2)
        with running_driver(token, addresses, planner=planner(500), name="the next", patience_s=2) as driver:
            assert ranges(driver) == first
            compare(driver, list(random_steps(Random(1), 10)), depth=2)
    assert [len(loader.models) for loader in loaders] == [1, 1]


def test_stages_without_room_are_named() -> None:
    token = ClusterToken.new()
    with (
        stage(token, 18, FakeLoader()) as address,
        pytest.raises(UsageError, match=r"short by .*(driver|tcp://)"),
        running_driver(token, [address], planner=planner(20)),
    ):
        pass


@pytest.mark.parametrize(("memory_mb", "later"), [(200, [(0, 2), (2, 4), (4, 6)]), (20, [(0, 2), (2, 3), (3, 6)])])
def test_a_stage_that_comes_back_has_its_range_if_there_is_room(memory_mb: int, later: list[tuple[int, int]]) -> None:
    token, keys = ClusterToken.new(), KeyPair.new()
    with stage(token, 200, FakeLoader()) as first, ExitStack() as life, ExitStack() as stack:
        second = life.enter_context(stage(token, 200, FakeLoader(), keys=keys))
        driver = stack.enter_context(running_driver(token, [first, second], num_pages=None, planner=planner()))
        assert ranges(driver) == [(0, 2), (2, 4), (4, 6)]
        life.close()
        with pytest.raises(StateLostError):
            compare(driver, list(random_steps(Random(1), 10)), depth=1)
        stack.enter_context(stage(token, memory_mb, FakeLoader(), keys=keys, listen=second._replace(key=None)))
        wait_until(lambda: driver.restore(0.05), 10)
        assert ranges(driver) == later
        compare(driver, list(random_steps(Random(1), 10)), depth=2)
