"""A cluster is found on the network of two machines, and a stranger's announcement is not believed."""

import importlib.util
import subprocess
import sys

import pytest

from aici_engine.cluster.token import ClusterToken
from tests.support.netns import Machine, Network

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("zeroconf") is None, reason="zeroconf is not installed (aici[cluster])"
)

ANNOUNCE = """
import sys
from aici_engine.cluster.discovery import announced
from aici_engine.cluster.token import ClusterToken

class Token(ClusterToken):
    cluster = property(lambda self: sys.argv[3])

with announced(sys.argv[1], Token(bytes.fromhex(sys.argv[2]))):
    print("announced", flush=True)
    sys.stdin.read()
"""
DISCOVER = """
import sys
from aici_base.errors import NotFoundError
from aici_engine.cluster.discovery import discover
from aici_engine.cluster.token import ClusterToken
try:
    print(discover(ClusterToken(bytes.fromhex(sys.argv[1])), timeout_s=float(sys.argv[2])))
except NotFoundError as error:
    print(error)
"""
OURS, THEIRS = ClusterToken(b"o" * 32), ClusterToken(b"t" * 32)


def announce(machine: Machine, token: ClusterToken, name: str) -> str:
    """Announce a cluster of this public name, and return its address."""
    address = f"{machine.address}:4243"
    argv = [sys.executable, "-c", ANNOUNCE, address, token.secret.hex(), name]
    announcing = machine.start(argv, stdin=subprocess.PIPE)
    assert announcing.stdout is not None
    assert announcing.stdout.readline() == "announced\n"
    return address


def find(machine: Machine, token: ClusterToken, seconds: float) -> str:
    finding = machine.start([sys.executable, "-c", DISCOVER, token.secret.hex(), str(seconds)])
    assert finding.stdout is not None
    assert finding.wait(30) == 0
    return finding.stdout.readline().strip()


def test_a_cluster_is_found_by_whoever_has_its_token(network: Network) -> None:
    head, stranger, node = (network.machine(name) for name in ("head", "stranger", "node"))
    announce(stranger, THEIRS, OURS.cluster)
    assert find(node, OURS, 2) == f"no server of cluster {OURS.cluster} announces itself on this network"
    address = announce(head, OURS, OURS.cluster)
    assert find(node, OURS, 15) == address
