"""The chaos driver itself, and a short run of it."""

import asyncio
import io
import random
from pathlib import Path

import numpy as np
import pytest

from tests.chaos import report, soak
from tests.chaos.clients import End, Ends
from tests.chaos.faults import NONE
from tests.chaos.plan import FAULTS, Fault, chosen, rounds
from tests.chaos.run import ChaosRun, run_chaos
from tests.chaos.served import Served, write_chat_model

SHORT = ("kill aici-engine", "kill aicirt", "kill aicirt-pool", "freeze aicirt-pool", "memory aici", "disk aici-engine")


def test_every_round_has_every_fault_in_an_order_of_the_seed() -> None:
    one, other = rounds(FAULTS, random.Random(1)), rounds(FAULTS, random.Random(1))
    first, second = next(one), next(one)
    assert (sorted(first), sorted(second)) == (sorted(FAULTS), sorted(FAULTS))
    assert first != second
    assert [next(other), next(other)] == [first, second]


def test_the_plan_has_every_component_that_must_be_killed_stopped_and_starved() -> None:
    assert {"kill aici", "kill aici-engine", "kill aicirt", "kill aicirt-pool"} <= {str(fault) for fault in FAULTS}
    assert {"freeze aici-engine", "freeze aicirt-pool", "stop aicirt-pool"} <= {str(fault) for fault in FAULTS}
    assert {"disk", "descriptors", "memory"} <= {fault.kind for fault in FAULTS}
    with pytest.raises(ValueError, match="no such fault: kill nobody"):
        chosen(["kill nobody"])


@pytest.mark.parametrize(
    ("end", "began", "is_bad"),
    [
        (End.HUNG, 5.0, True),
        (End.DOUBLE, 5.0, True),
        (End.UNREADABLE, 5.0, True),
        (End.CUT, 5.0, False),  # the API process died at 10
        (End.CUT, 11.0, True),
        (End.FAILED, 11.0, False),
    ],
)
def test_what_is_bad(end: End, began: float, is_bad: bool) -> None:
    ends = Ends(last_api_death=10.0)
    ends.add("chat", end, "why", began)
    assert bool(ends.bad) is is_bad


def test_the_longest_outage_of_a_component_names_its_fault() -> None:
    outages = {Fault("kill", "aici"): [1.0, 3.0], Fault("stop", "aici"): [2.0], NONE: [9.0]}
    assert report.of_components(outages).splitlines()[1:] == ["API process           3.00 s  kill"]


def test_a_slope_and_its_error() -> None:
    at_s, noise = np.arange(0.0, 3600.0, 5.0), np.random.default_rng(1).normal(0.0, 1.0, 720)
    rate, error = soak.slope(at_s, 100 + 8 * at_s / 3600 + noise)
    assert abs(rate - 8) < 3 * error
    assert 0.03 < error < 0.5
    flat = [soak.Sample(float(at), "flat", 50.0 + float(more), 1, 0) for at, more in zip(at_s, noise, strict=True)]
    grows = [soak.Sample(each.at_s, "grows", each.private_mib + each.at_s / 100, 1, 0) for each in flat]
    lines = soak.table({"flat": flat, "grows": grows}).splitlines()
    assert lines[1].endswith("flat")
    assert lines[2].endswith("grows")


@pytest.mark.e2e
def test_a_short_run_and_a_short_soak(tmp_path: Path) -> None:
    plan = ChaosRun(num_requests=60, num_clients=6, faults=chosen(SHORT), times=1, pause_s=0.1, seed=1)
    with Served(write_chat_model(tmp_path / "model"), tmp_path, "--max-num-seqs", "8", "--threads", "1") as served:
        assert run_chaos(plan, served) == []
        samples = io.BytesIO()
        ends = asyncio.run(soak.soak(served, minutes=0.05, num_clients=2, every_s=0.5, samples=samples))
    assert ends.bad == []
    read = soak.read([*samples.getvalue().splitlines(keepends=True), b'{"cut off'])
    assert {"aici", "aici-engine", "aicirt"} <= set(read)
    assert read["aici"][-1].private_mib > 1
