"""Replicas on the machines that join: whole engines, one a machine, with Ray where it is installed."""

import importlib.util
import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import write_tiny_model
from tests.support.clusters import ServedCluster, processes_in
from tests.support.netns import Network
from tests.support.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]

PATIENCE_S = 180


@pytest.fixture
def cluster(network: Network, tmp_path: Path) -> ServedCluster:
    model = write_tiny_model(tmp_path / "tiny", context=2048, num_heads=2)
    return ServedCluster(network, tmp_path, model=model)


def replicas(cluster: ServedCluster) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{cluster.url}/replicas", timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["replicas"]
    return found


def served_by(cluster: ServedCluster) -> list[str]:
    """Return the nodes of the replicas that take requests."""
    return sorted(each["node"] for each in replicas(cluster) if each["state"] == "up")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (aici[cluster])")
def test_machines_that_join_by_ray_have_a_replica_each(cluster: ServedCluster) -> None:
    address = f"{cluster.head.address}:4243"
    server = cluster.serve("--cluster", "--cluster-address", address, "--replicas", "2")
    server.wait_for(lambda line: "aici node join" in line)
    nodes = [cluster.join(name, address) for name in ("a", "b")]
    cluster.wait_ready()
    assert wait_until(lambda: served_by(cluster) == ["a", "b"], PATIENCE_S), server.said[-20:]
    assert processes_in(cluster.head, "engine_process.main") == []
    text, _ = cluster.complete(40)
    before = {each["node"]: each["requests"] for each in replicas(cluster)}

    # A machine is lost: requests succeed elsewhere, with the same text.
    cluster.network.machines["a"].crash()
    assert [cluster.complete(40)[0] for _ in range(2)] == [text] * 2
    assert wait_until(lambda: served_by(cluster) == ["b"], PATIENCE_S)
    assert sum(before.values()) == 1

    # A new machine takes the lost machine's part.
    nodes.append(cluster.join("c", address))
    assert wait_until(lambda: served_by(cluster) == ["b", "c"], PATIENCE_S), server.said[-20:]
    assert cluster.complete(40)[0] == text

    for running in (server, *nodes[1:]):
        running.process.terminate()
    for running in (server, *nodes[1:]):
        running.process.wait(60)


def test_a_node_leaves_without_a_failed_request(cluster: ServedCluster) -> None:
    """Static nodes: two machines, a replica each; then a third machine takes the part of a machine that leaves."""
    cluster.write_token()
    nodes = {name: cluster.join(name, port=7100) for name in "abc"}
    addresses = [node.wait_for(lambda line: line.startswith("tcp://") and line.strip()) for node in nodes.values()]
    server = cluster.serve("--nodes", ",".join(addresses), "--replicas", "2")
    cluster.wait_ready()
    assert wait_until(lambda: len(served_by(cluster)) == 2, PATIENCE_S), server.said[-20:]
    leaving, staying = served_by(cluster)
    (free,) = {"a", "b", "c"} - {leaving, staying}
    expected, _ = cluster.complete(40)
    texts: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            texts.append(cluster.complete(40)[0])

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        command = cluster.run(leaving, "node", "leave", "--name", leaving)
        assert command.process.wait(PATIENCE_S) == 0
        assert nodes[leaving].process.wait(60) == 0
        assert wait_until(lambda: served_by(cluster) == sorted([staying, free]), PATIENCE_S), server.said[-20:]
    finally:
        stop.set()
        asking.join()
    assert texts
    assert set(texts) == {expected}

    # The end of the server ends the engines, and the nodes stay.
    server.process.terminate()
    server.process.wait(60)
    for name in (staying, free):
        machine = cluster.network.machines[name]
        assert wait_until(lambda machine=machine: not processes_in(machine, "aici_cli engine"), 60)  # type: ignore[misc]
        assert nodes[name].process.poll() is None
