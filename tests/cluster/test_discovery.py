"""A cluster is found by its name on the network of two machines."""

import importlib.util
import subprocess
import sys

import pytest

from tests.support.netns import Network

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("zeroconf") is None, reason="zeroconf is not installed (aici[cluster])"
)

ANNOUNCE = """
import sys, time
from aici_engine.cluster.discovery import announced
with announced(sys.argv[1], sys.argv[2]):
    print("announced", flush=True)
    sys.stdin.read()
"""
DISCOVER = """
import sys
from aici_base.errors import NotFoundError
from aici_engine.cluster.discovery import discover
try:
    print(discover(sys.argv[1], timeout_s=float(sys.argv[2])))
except NotFoundError as error:
    print(error)
"""


def test_a_cluster_is_found_by_its_public_name(network: Network) -> None:
    head, node = network.machine("head"), network.machine("node")
    address = f"{head.address}:4243"
    announcing = head.start([sys.executable, "-c", ANNOUNCE, address, "0123456789abcdef"], stdin=subprocess.PIPE)
    assert announcing.stdout is not None
    assert announcing.stdout.readline() == "announced\n"

    def find(cluster: str, seconds: str) -> str:
        finding = node.start([sys.executable, "-c", DISCOVER, cluster, seconds])
        assert finding.stdout is not None
        assert finding.wait(30) == 0
        return finding.stdout.readline().strip()

    assert find("0123456789abcdef", "15") == address
    assert find("fedcba9876543210", "1") == "no server of cluster fedcba9876543210 announces itself on this network"
