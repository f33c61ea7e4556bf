"""The machines of tests/support/netns.py are separate, can be hurt, and leave nothing."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import netns
from tests.support.processes import wait_until

_ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
while data := connection.recv(65536):
    connection.sendall(data)
"""


def _echo(machine: netns.Machine) -> tuple[netns.Process, socket.socket]:
    process = machine.start([sys.executable, "-c", _ECHO, machine.address])
    assert process.stdout is not None
    connection = socket.create_connection((machine.address, int(process.stdout.readline())), 10)
    return process, connection


def _round_trip(connection: socket.socket, data: bytes = b"hello") -> bytes:
    connection.sendall(data)
    said = b""
    while len(said) < len(data):
        said += connection.recv(65536)
    return said


def test_a_machine_sees_its_own_processes_and_network_alone(network: netns.Network) -> None:
    machine = network.machine("a")
    script = "import os, socket; print(os.getpid(), socket.gethostname(), os.listdir('/dev/shm'))"
    process = machine.start([sys.executable, "-c", script])
    assert process.stdout is not None
    pid, name, shared = process.stdout.readline().split()
    assert (name, shared) == ("a", "[]")
    assert int(pid) < 100 < process.pid
    assert process.wait() == 0


def test_exit_codes_and_signals_arrive(network: netns.Network) -> None:
    machine = network.machine("a")
    assert machine.start([sys.executable, "-c", "raise SystemExit(7)"]).wait() == 7
    assert machine.start(["/nonexistent"], stderr=subprocess.DEVNULL).wait() == 127
    sleeping = machine.start(["sleep", "100"])
    assert sleeping.poll() is None
    sleeping.kill()
    assert sleeping.wait() == -signal.SIGKILL
    sleeping.kill()  # of a process that has ended: nothing happens


def test_a_pulled_cable_is_silent_and_what_was_sent_arrives_later(network: netns.Network) -> None:
    process, connection = _echo(network.machine("a"))
    with connection:
        assert _round_trip(connection) == b"hello"
        network.machines["a"].unplug()
        connection.settimeout(0.3)
        connection.sendall(b"held")
        with pytest.raises(TimeoutError):
            connection.recv(10)
        network.machines["a"].plug()
        connection.settimeout(20)
        assert connection.recv(10) == b"held"
    assert process.wait() == 0


def test_the_rate_of_a_link_is_limited_both_ways(network: netns.Network) -> None:
    machine = network.machine("a")
    machine.limit_rate(10_000_000)
    _, connection = _echo(machine)
    with connection:
        began = time.monotonic()
        assert len(_round_trip(connection, bytes(200_000))) == 200_000
        # 1.6 Mbit there, and back beside it: the bucket holds 16 KiB.
        assert time.monotonic() - began > 0.12
        machine.limit_rate(None)
        assert _round_trip(connection) == b"hello"


def test_a_memory_limit_kills_who_takes_more(network: netns.Network) -> None:
    machine = network.machine("a", memory_bytes=100 << 20)
    assert machine.start([sys.executable, "-c", "bytearray(30 << 20)"]).wait() == 0
    greedy = machine.start([sys.executable, "-c", "bytearray(200 << 20)"], stderr=subprocess.DEVNULL)
    assert greedy.wait() == (-signal.SIGKILL if machine.memory_limit == "cgroup" else 1)


def test_a_machine_that_lost_its_power_boots_again_at_its_address(network: netns.Network) -> None:
    machine = network.machine("a")
    process, connection = _echo(machine)
    with connection:
        assert _round_trip(connection) == b"hello"
        machine.crash()
        assert process.returncode == -signal.SIGKILL
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):  # nobody said good-bye
            connection.recv(1)
    machine.boot()
    _, connection = _echo(machine)
    with connection:
        assert _round_trip(connection) == b"hello"


def test_machines_reach_each_other(network: netns.Network) -> None:
    server, client = network.machine("a"), network.machine("b")
    process = server.start([sys.executable, "-c", _ECHO, server.address])
    assert process.stdout is not None
    ask = "import socket, sys; s = socket.create_connection(tuple(sys.argv[1:]), 5); s.sendall(b'x'); print(s.recv(1))"
    asking = client.start([sys.executable, "-c", ask, server.address, process.stdout.readline().strip()])
    assert asking.stdout is not None
    assert asking.stdout.readline() == "b'x'\n"


def test_nothing_is_left_after_a_failure() -> None:
    if reason := netns.missing():
        pytest.skip(reason)
    with contextlib.suppress(ZeroDivisionError), netns.Network() as network:
        machine = network.machine("a", memory_bytes=100 << 20)
        machine.start(["sh", "-c", "sleep 100 & sleep 100"])
        assert netns.left_behind() != []
        _ = 1 / 0
    assert wait_until(lambda: netns.left_behind() == [], 5), netns.left_behind()
    assert not list(Path("/run/netns").glob("aici*"))


def test_nothing_is_left_after_kill_9() -> None:
    """A test run that was killed leaves its cgroup folder alone, and the next network removes the folder."""
    if reason := netns.missing():
        pytest.skip(reason)
    script = (
        "import time; from tests.support import netns\n"
        "n = netns.Network(); m = n.machine('a', memory_bytes=100 << 20)\n"
        "print(n.host_link, m.start(['sleep', '100']).pid, m._cgroup, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        link, pid, cgroup = run.stdout.readline().split()
        assert Path(f"/sys/class/net/{link}").exists()
        os.kill(run.pid, signal.SIGKILL)
    assert wait_until(lambda: not Path(f"/sys/class/net/{link}").exists(), 10)
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10)
    with contextlib.suppress(OSError), netns.Network():
        pass
    assert not Path(cgroup).exists()
