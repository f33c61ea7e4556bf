"""`aici serve` over machines that join: real daemons, real stages, the real model, and Ray where it is installed."""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clusters import ServedCluster, processes_in
from tests.support.netns import Machine, Network
from tests.support.processes import alive, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray"), pytest.mark.timeout(400)]


@pytest.fixture
def cluster(network: Network, tmp_path: Path) -> ServedCluster:
    return ServedCluster(network, tmp_path)


def stage_in(machine: Machine) -> int:
    return processes_in(machine, " stage ")[0]


def killer(machine: Machine, word: str) -> Callable[[], None]:
    """Return what kills the first process of a machine with `word` in its command line."""
    (pid, *_) = processes_in(machine, word)
    return lambda: os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (aici[cluster])")
def test_machines_join_by_ray(cluster: ServedCluster) -> None:
    begin = time.monotonic()

    def tell(what: str, gap_s: float = 0.0) -> None:
        print(f"{time.monotonic() - begin:6.1f} s: {what}; longest wait for a token {gap_s:.2f} s", file=sys.stderr)

    address = f"{cluster.head.address}:4243"
    server = cluster.serve("--cluster", "--cluster-address", address, "--min-nodes", "2", "--memory", "550MiB")
    server.wait_for(lambda line: "aici node join" in line)
    cluster.join("a", address, memory="700MiB")
    cluster.join("b", address, memory="600MiB")
    cluster.wait_ready()
    tell("ready")
    text, gap = cluster.complete(200)
    tell("undisturbed", gap)
    assert {node["name"]: node["ray"] for node in cluster.state()["nodes"]} == {"a": "joined", "b": "joined"}
    a, b = cluster.network.machines["a"], cluster.network.machines["b"]
    stages = [stage_in(a), stage_in(b)]

    # Ray of a node dies, and Ray of the head stands still: no token is late, and the stages live on.
    again, gap = cluster.during(killer(b, "raylet/raylet"))
    tell("raylet killed", gap)
    assert again == text
    (gcs,) = processes_in(cluster.head, "gcs_server")
    os.kill(gcs, signal.SIGSTOP)
    again, gap = cluster.complete(200)
    os.kill(gcs, signal.SIGCONT)
    tell("GCS stood still", gap)
    assert again == text
    assert [stage_in(a), stage_in(b)] == stages

    # The engine process dies: the next one finds the stages, with their weights.
    (engine,) = processes_in(cluster.head, "engine_process.main")
    killed = time.monotonic()
    os.kill(engine, signal.SIGKILL)
    assert wait_until(lambda: processes_in(cluster.head, "engine_process.main") not in ([], [engine]), 30)
    assert wait_until(lambda: is_ready(cluster), 120)
    tell(f"driver restarted in {time.monotonic() - killed:.1f} s")
    assert cluster.complete(200)[0] == text
    assert [stage_in(a), stage_in(b)] == stages

    # Nothing is left when everybody was asked to end.
    everybody = {pid for machine in (a, b, cluster.head) for pid in processes_in(machine, "aici")}
    for running in (server, *cluster.nodes.values()):
        running.process.terminate()
    for running in (server, *cluster.nodes.values()):
        running.process.wait(30)
    assert wait_until(lambda: not alive(everybody), 20), everybody
    tell("ended")


def is_ready(cluster: ServedCluster) -> bool:
    try:
        return bool(cluster.state()["state"] == "ready")
    except (OSError, KeyError, TypeError):
        return False


def test_a_spare_takes_over_and_a_node_leaves(cluster: ServedCluster) -> None:
    begin = time.monotonic()

    def tell(what: str, gap_s: float = 0.0) -> None:
        print(f"{time.monotonic() - begin:6.1f} s: {what}; longest wait for a token {gap_s:.2f} s", file=sys.stderr)

    cluster.write_token()
    nodes = {name: cluster.join(name, port=7100) for name in "abc"}
    addresses = [node.wait_for(lambda line: line.startswith("tcp://") and line.strip()) for node in nodes.values()]
    nodes["c"].process.terminate()
    nodes["c"].process.wait()
    flags = ["--min-nodes", "2", "--memory", "550MiB", "--replay-timeout", "120"]
    cluster.serve("--nodes", ",".join(addresses), *flags)
    cluster.wait_ready()
    text, gap = cluster.complete(200)
    tell("undisturbed", gap)
    assert used(cluster) == {"a", "b"}

    cluster.join("c", port=7100)
    assert wait_until(lambda: states(cluster).get("c") == "ready", 60)
    a = cluster.network.machines["a"]
    again, gap = cluster.during(a.crash)
    tell("machine lost, spare took over", gap)
    assert again == text
    assert used(cluster) == {"b", "c"}

    # The lost machine is back, with nothing to do; then another machine leaves.
    a.boot()
    cluster.join("a", port=7100)
    assert wait_until(lambda: states(cluster).get("a") == "ready", 60)
    leaving = cluster.run("b", "node", "leave", "--name", "b")
    again, gap = cluster.complete(200)
    leaving.process.wait(120)
    cluster.nodes["b"].process.wait(30)
    tell("node left", gap)
    assert again == text
    assert wait_until(lambda: is_ready(cluster) and used(cluster) == {"a", "c"}, 120)
    again, gap = cluster.complete(200)
    assert again == text


def used(cluster: ServedCluster) -> set[str]:
    return {node["name"] for node in cluster.state()["nodes"] if node["first"] is not None}


def states(cluster: ServedCluster) -> dict[str, str]:
    return {node["name"]: node["state"] for node in cluster.state()["nodes"]}
