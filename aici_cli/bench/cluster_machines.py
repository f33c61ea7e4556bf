"""Machines for `aici bench cluster`: network namespaces on one switch, or processes of this machine without root."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, Self

_PREFIX: Final = "aici-bench-"
_SUBNET: Final = "198.19.0"


class BenchMachine(Protocol):
    """`address`: where the processes of the machine listen."""

    name: str
    address: str

    def start(self, argv: Sequence[str], **how: Any) -> "subprocess.Popen[str]":
        """Start a process in the machine. `how`: see subprocess.Popen."""

    def set_link(self, state: str) -> None:
        """Set the link to the switch "up" or "down". With "down", packets vanish and connections stay."""


class LoopbackMachine(BenchMachine):
    """Processes of this machine, on the loopback device: the link is never down."""

    def __init__(self, name: str) -> None:
        self.name, self.address = name, "127.0.0.1"

    def start(self, argv: Sequence[str], **how: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(argv, text=True, **how)

    def set_link(self, state: str) -> None:
        raise NotImplementedError


class NamespaceMachine(BenchMachine):
    """A network namespace with one link to the switch."""

    def __init__(self, name: str, address: str, *, switch: str, namespace: str) -> None:
        self.name, self.address = name, address
        self._switch, self._namespace = switch, namespace
        _ip("netns", "add", namespace)
        _ip("link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", name, "netns", switch)
        _ip("-n", switch, "link", "set", name, "master", "br0", "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", device, "up")

    def start(self, argv: Sequence[str], **how: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(["ip", "netns", "exec", self._namespace, *argv], text=True, **how)

    def set_link(self, state: str) -> None:
        _ip("-n", self._switch, "link", "set", self.name, state)


class BenchNetwork:
    """A context manager: at the end, the namespaces are gone. End the processes first.

    `is_real`: the machines are namespaces. `why`: else, why not.
    """

    def __init__(self) -> None:
        self.why = _missing()
        self.is_real = not self.why
        self._names: list[str] = []

    def __enter__(self) -> Self:
        _sweep()
        if self.is_real:
            switch = self._new_name("switch")
            _ip("netns", "add", switch)
            _ip("-n", switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", switch, "link", "set", "br0", "up")
        return self

    def __exit__(self, *exc: object) -> None:
        for name in reversed(self._names):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    @property
    def kind(self) -> str:
        return "namespaces" if self.is_real else "loopback"

    def machine(self, name: str) -> BenchMachine:
        """Make a machine. `name`: at most 15 letters, different from the other names."""
        if not self.is_real:
            return LoopbackMachine(name)
        switch, namespace = self._names[0], self._new_name(name)
        address = f"{_SUBNET}.{len(self._names)}"
        return NamespaceMachine(name, address, switch=switch, namespace=namespace)

    def _new_name(self, name: str) -> str:
        self._names.append(f"{_PREFIX}{os.getpid()}-{name}")
        return self._names[-1]


def _missing() -> str:
    """Return why this process cannot make network namespaces, or an empty text."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program ip (iproute2) is not installed"
    probe = f"{_PREFIX}{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return made.stderr.strip() if made.returncode else ""


def _sweep() -> None:
    """Delete the namespaces of benchmarks that were killed."""
    with contextlib.suppress(OSError):
        for path in Path("/run/netns").glob(f"{_PREFIX}*"):
            owner = path.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path(f"/proc/{owner}").exists():
                subprocess.run(["ip", "netns", "delete", path.name], capture_output=True)


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)
