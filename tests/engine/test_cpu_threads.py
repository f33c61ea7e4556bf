"""The number of threads by default: one a physical core, as torch has it."""

import os
from pathlib import Path

import pytest

from aici_engine.cpu_threads import default_threads


@pytest.mark.parametrize(("value", "wanted"), [("3", 3), ("2,4", 2), (" 5 ", 5)])
def test_the_environment_comes_first(value: str, wanted: int) -> None:
    assert default_threads({"OMP_NUM_THREADS": value}) == wanted


@pytest.mark.parametrize("value", ["", "0", "many", "-1"])
def test_two_threads_of_a_core_count_once(value: str, tmp_path: Path) -> None:
    for cpu in os.sched_getaffinity(0):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0-63\n")
    assert default_threads({"OMP_NUM_THREADS": value}, tmp_path) == 1


def test_without_a_topology_every_processor_is_a_core(tmp_path: Path) -> None:
    assert default_threads({}, tmp_path) == len(os.sched_getaffinity(0))
