"""`aici bench cluster`: the parts without a model, and the command with one machine."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from aici_cli.bench.cluster_links import ping
from aici_cli.bench.cluster_machines import BenchNetwork
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.token import ClusterToken
from tests.support.cli import aici


def test_a_link_is_measured(tmp_path: Path) -> None:
    token, _ = ClusterToken.read_or_create(tmp_path / "token")
    command = [sys.executable, "-P", "-m", "aici_cli.bench.cluster_links", "echo", "127.0.0.1", str(tmp_path / "token")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
        try:
            assert echo.stdout is not None
            rows = ping(StageAddress.parse(echo.stdout.readline().strip()), token, [64, 1 << 20])
        finally:
            echo.kill()
    assert [row["bytes"] for row in rows] == [64, 1 << 20]
    assert all(0 < row["round_trip_p50_us"] <= row["round_trip_p99_us"] for row in rows)


def test_machines_are_gone_afterwards() -> None:
    with BenchNetwork() as network:
        if not network.is_real:
            pytest.skip(network.why)
        near, far = network.machine("near"), network.machine("far")
        # Nobody listens there, but the other machine answers.
        connect = f"import socket, sys; sys.exit(socket.socket().connect_ex(({far.address!r}, 9)))"
        with near.start([sys.executable, "-c", connect]) as process:
            assert process.wait() == errno.ECONNREFUSED
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        assert names.count("aici-bench-") >= 3
    assert near.name not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def test_one_machine_is_measured() -> None:
    flags = ["--nodes", "1", "--batch", "2", "--num-tokens", "4", "--rounds", "1", "--no-links", "--no-recovery"]
    flags += ["--pin", "--prompt-tokens", "100"]
    done = aici("bench", "cluster", *flags, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["machines"], row["batch"], row["kind"]) for row in rows] == [(1, 2, "plain"), (1, 2, "regex")]
    assert all(row["tokens_per_s"] > 0 and row["hop_ms"] is None for row in rows)


def test_more_machines_than_cores_cannot_be_pinned() -> None:
    done = aici("bench", "cluster", "--pin", "--nodes", "9999")
    assert done.returncode == 2
    assert "--pin needs 9999 cores for 9999 machines" in done.stderr
