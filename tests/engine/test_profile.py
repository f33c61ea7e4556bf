"""Steps are counted, and timed by phase."""

import pytest

from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.profile import PHASES, Profile
from aici_engine.request import Request
from tests.engine.support import encode


def test_of_an_engine(engine: Engine) -> None:
    params = SamplingParams(max_tokens=7, ignore_eos=True)
    engine.submit(Request(prompt=encode("Hello"), sampling=params)).wait()
    # The last event of a step precedes the end of the step.
    engine.shutdown()
    told = engine.profile()
    assert told["num_steps"] == 7
    assert tuple(told["phases_s"]) == PHASES
    assert all(told["phases_s"][phase] > 0 for phase in ("forward", "sample", "commit", "output"))
    assert told["overhead_s"] > 0
    assert engine.profile()["num_steps"] == 0


def test_it_tells_medians_and_only_of_steps_that_computed() -> None:
    profile = Profile()
    for phase in ("forward", "forward", "round"):
        profile.begin()
        profile.lap(phase)
        profile.lap("commit")
        profile.end()
    told = profile.read()
    assert told["num_steps"] == 2
    assert told["phases_s"]["round"] == 0
    assert told["overhead_s"] == pytest.approx(told["phases_s"]["commit"])
