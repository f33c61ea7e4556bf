"""The settings of a node daemon: keys, host, and the measurement of the machine."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_engine.cluster.node_messages import NodeReport

_MEASURE: Final = """
import msgspec, sys
from aici_engine.cluster.node_info import describe_node
memory, threads = (int(text) or None for text in sys.argv[1:])
sys.stdout.buffer.write(msgspec.json.encode(describe_node(memory_bytes=memory, num_threads=threads)))
"""
_MEASURE_S: Final = 120.0


def measure(name: str, *, memory_bytes: int | None, num_threads: int | None, labels: Mapping[str, str]) -> NodeReport:
    """Measure the machine in a child process, which takes the memory of torch with it. Takes some seconds."""
    command = [sys.executable, "-P", "-c", _MEASURE, str(memory_bytes or 0), str(num_threads or 0)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_MEASURE_S)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"the machine could not be measured within {_MEASURE_S:g} s") from error
    if done.returncode:
        raise AiciError(f"the machine could not be measured: {done.stderr.decode(errors='replace').strip()[-2000:]}")
    found = msgspec.json.decode(done.stdout, type=dict)
    return NodeReport(name=name, labels=dict(labels), is_leaving=False, ray="off", stages=[], **found)


def key_file(name: str) -> Path:
    """Return the file with the key pair of the node `name` of this user: the node keeps its address."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "aici" / f"node-{name}.key"


def host_towards(address: str) -> str:
    """Return this machine's own address on the way to HOST:PORT. Nothing is sent."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{address!r} cannot be reached: {error}", hint="give HOST:PORT, as `aici serve --cluster` prints it"
        ) from error


def default_name() -> str:
    """Return the machine's name, as a label can be."""
    return re.sub(r"[^a-zA-Z0-9-]+", "-", socket.gethostname()).strip("-")[:40] or "node"
