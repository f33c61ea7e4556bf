"""How the cores are divided among replicas."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aici_engine.server.fleet.cores import CoreShare, divide, physical_cores


@given(st.integers(1, 64), st.integers(1, 16))
def test_every_core_has_one_replica_and_shares_are_even(num_cores: int, num_replicas: int) -> None:
    cores = [(core, core + num_cores) for core in range(num_cores)]
    shares = divide(cores, num_replicas)
    assert len(shares) == num_replicas
    if num_replicas > num_cores or num_replicas == 1:
        assert {share.cpus for share in shares} == {()}
        return
    given_out = [cpu for share in shares for cpu in share.cpus]
    assert sorted(given_out) == sorted(cpu for core in cores for cpu in core)
    threads = [share.num_threads for share in shares]
    assert sum(threads) == num_cores
    assert max(threads) - min(threads) <= 1
    assert all(len(share.cpus) == 2 * share.num_threads for share in shares)


def test_threads_are_divided_and_every_replica_has_one() -> None:
    assert [share.num_threads for share in divide([(0,), (1,), (2,), (3,)], 2, 3)] == [2, 1]
    assert [share.num_threads for share in divide([(0,), (1,)], 2, 1)] == [1, 1]
    assert divide([(0,), (1,)], 3) == [CoreShare((), 1)] * 3
    assert divide([(0,), (1,), (2,), (3,)], 2, pins=False) == [CoreShare((), 2)] * 2


def test_siblings_are_one_core(tmp_path: Path) -> None:
    """Without files of the topology, every processor is a core."""
    alone = physical_cores(tmp_path)
    assert all(len(core) == 1 for core in alone)
    for (cpu,) in alone:
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0-1\n")
    assert physical_cores(tmp_path) == [tuple(cpu for (cpu,) in alone)]
