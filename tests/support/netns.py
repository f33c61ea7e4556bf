"""Machines on one Linux, made of namespaces (network, PID, mount with a /dev/shm, IPC, host name), joined by a switch.

    with Network() as network:
        node = network.machine("a", memory_bytes=512 << 20)
        process = node.start([sys.executable, "-m", "aici_cli", "stage", "--listen", f"tcp://{node.address}:0"])
        node.unplug()

Needs root. `missing()` says why machines cannot be had here; the fixture `network` of tests/cluster/conftest.py skips
with that reason. The test's own process is on the switch too, as `network.host_address`.

Only two things have names that another run could meet: one interface of the host (`aici-N`, made atomically) and
folders of cgroups (with the process's id). Processes alone hold the namespaces, and each machine ends when its
starter's end of a socket closes: even kill -9 of pytest leaves no namespace, interface, bridge or process. The next
run removes cgroup folders of runs that were killed.
"""

import contextlib
import functools
import json
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_INIT = Path(__file__).with_name("machine_init.py")
_CGROUP_PREFIX = "aici-test-"
_NETWORKS = 250  # of 198.18.0.0/15, which is set aside for measurements: no route of a user leads there
_host_links: set[str] = set()  # every interface of the host that this process made


class Process:
    """A process in a machine. `pid` is its id outside the machine; signals go by pidfd, never to another process."""

    def __init__(self, pidfd: int, status: int, streams: Mapping[str, IO[str]], argv: Sequence[str]) -> None:
        self._pidfd, self._status = pidfd, status
        self.argv = list(argv)
        self.pid = _pid_of(pidfd)
        self.stdin, self.stdout, self.stderr = (streams.get(name) for name in ("stdin", "stdout", "stderr"))
        self.returncode: int | None = None

    def __repr__(self) -> str:
        return f"Process({self.pid}, {self.argv}, returncode={self.returncode})"

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """Return the exit code (minus the signal's number), or None while the process runs."""
        return self._ended(0)

    def wait(self, timeout_s: float = 60) -> int:
        """Return the exit code.

        Raises:
            TimeoutError: the process still runs.
        """
        if (code := self._ended(timeout_s)) is None:
            raise TimeoutError(f"{self} still runs after {timeout_s} s")
        return code

    def _ended(self, timeout_s: float) -> int | None:
        if self.returncode is None and wait([self._status], timeout_s):
            # The end of file without a status: the machine was gone before.
            self.returncode = int(os.read(self._status, 32) or -signal.SIGKILL)
        return self.returncode

    def close(self) -> None:
        """Kill the process if it runs, and close its streams."""
        self.kill()
        with contextlib.suppress(TimeoutError):
            self.wait(10)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        os.close(self._pidfd)
        os.close(self._status)


class Machine:
    """Namespaces with an init process. A machine that crashed may `boot` again, at the same address."""

    def __init__(self, name: str, memory_bytes: int | None = None) -> None:
        self.name, self.address, self.memory_bytes = name, "", memory_bytes
        self.processes: list[Process] = []
        self.on_boot: Callable[[], None] | None = None
        self.switch: Machine | None = None  # what `unplug` and `limit_rate` need of the network
        self.port = ""
        self._rlimit_bytes: int | None = None
        self._cgroup: Path | None = None
        self._up = False
        self._boot()

    @property
    def is_up(self) -> bool:
        return self._up

    def boot(self) -> None:
        """Make the namespaces of a crashed machine anew."""
        assert not self._up, f"{self.name} is up"
        self._boot()
        if self.on_boot is not None:
            self.on_boot()

    def _boot(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        init = [sys.executable, "-I", "-S", str(_INIT), str(theirs.fileno()), self.name]
        shm = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        unshare = ["unshare", "--net", "--pid", "--mount", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
        self._unshare = subprocess.Popen(
            [*unshare, "sh", "-c", shm, "sh", *init], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
        )
        theirs.close()
        said, fds, _, _ = socket.recv_fds(self._socket, 64, 1)
        if said != b"up":
            _, errors = self._unshare.communicate()
            self._socket.close()
            raise OSError(f"no namespaces: {errors.strip()}")
        self.pid = _pid_of(fds[0])
        os.close(fds[0])
        self._up = True
        if self.memory_bytes is not None:
            self._limit_memory(self.memory_bytes)
        self.inside("ip", "link", "set", "lo", "up")

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = None,
    ) -> Process:
        """Start a process in the machine. `env` adds to the test's environment. Streams are as subprocess.Popen's."""
        ours: dict[str, IO[str]] = {}
        given: list[int] = []
        for name, kind, writes in (("stdin", stdin, False), ("stdout", stdout, True), ("stderr", stderr, True)):
            if kind == subprocess.PIPE:
                reads_end, writes_end = os.pipe()
                given.append(writes_end if writes else reads_end)
                kept = reads_end if writes else writes_end
                ours[name] = open(kept, "r" if writes else "w", buffering=1, encoding="utf-8", errors="replace")  # noqa: SIM115
            elif kind == subprocess.DEVNULL:
                given.append(os.open(os.devnull, os.O_RDWR))
            else:
                given.append(os.dup(kind if kind is not None else ("stdin", "stdout", "stderr").index(name)))
        status, theirs = os.pipe()
        request = {
            "argv": list(argv),
            "env": {**os.environ, **(env or {})},
            "cwd": str(cwd or Path.cwd()),
        }
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*given, theirs])
            answer, fds, _, _ = socket.recv_fds(self._socket, 64, 1)
        finally:
            for fd in (*given, theirs):
                os.close(fd)
        if not answer:
            raise OSError(f"machine {self.name} has ended")
        process = Process(fds[0], status, ours, argv)
        if self._rlimit_bytes is not None:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (self._rlimit_bytes, self._rlimit_bytes))
        self.processes.append(process)
        return process

    def inside(self, *argv: str) -> str:
        """Run a command of the host (`ip`, `tc`) in the machine's network; return its stdout."""
        return _run("nsenter", f"--target={self.pid}", "--net", *argv)

    def unplug(self) -> None:
        """Pull the cable at the switch: no carrier, packets vanish, sockets stay."""
        self._of_switch("ip", "link", "set", self.port, "down")

    def plug(self) -> None:
        self._of_switch("ip", "link", "set", self.port, "up")

    def limit_rate(self, bits_per_s: int | None) -> None:
        """Limit the link in both directions with a token bucket (`tbf`); None takes the limit away."""
        for run, device in ((self.inside, "eth0"), (self._of_switch, self.port)):
            if bits_per_s is None:
                run("tc", "qdisc", "del", "dev", device, "root")
            else:
                rate, burst = f"{bits_per_s}bit", str(max(bits_per_s // 8 // 100, 16_384))
                run(
                    "tc",
                    "qdisc",
                    "replace",
                    "dev",
                    device,
                    "root",
                    "tbf",
                    "rate",
                    rate,
                    "burst",
                    burst,
                    "latency",
                    "2s",
                )

    def _of_switch(self, *argv: str) -> str:
        assert self.switch is not None
        return self.switch.inside(*argv)

    def crash(self) -> None:
        """Cut the power: the cable first, so that nobody hears a FIN, then every process. See `boot`."""
        if self.switch is not None and self._up:
            self._of_switch("ip", "link", "delete", self.port)
        self.close()

    def close(self) -> None:
        """End every process in the machine and give the namespaces back. Idempotent."""
        if not self._up:
            return
        self._up = False
        self._socket.close()  # the init process reads the end of file
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._unshare.wait(5)
        self._unshare.kill()  # its child too: --kill-child
        self._unshare.communicate()
        for process in self.processes:
            process.close()
        self.processes.clear()
        if self._cgroup is not None:
            _remove_cgroup(self._cgroup)
            self._cgroup = None

    # Memory

    @property
    def memory_limit(self) -> str:
        """How memory is limited: `cgroup` (the machine's), `rlimit` (each process's), or nothing."""
        return "cgroup" if self._cgroup is not None else "rlimit" if self._rlimit_bytes is not None else ""

    def memory_peak_bytes(self) -> int:
        """The most that the machine held since boot or `reset_memory_peak`, cached files included. Needs a cgroup."""
        return int(self._memory_file("memory.max_usage_in_bytes", "memory.peak").read_text())

    def reset_memory_peak(self) -> None:
        """Start the peak anew (version 1 of cgroups; version 2 refuses on older kernels)."""
        self._memory_file("memory.max_usage_in_bytes", "memory.peak").write_text("0")

    def memory_stat(self) -> dict[str, int]:
        """The cgroup's memory.stat: `rss` (or `anon`) is what processes allocated, `cache` (or `file`) is files."""
        lines = self._memory_file("memory.stat", "memory.stat").read_text().splitlines()
        return {name: int(value) for name, value in (line.split() for line in lines)}

    def _memory_file(self, version1: str, version2: str) -> Path:
        assert self._cgroup is not None, "memory is not limited by a cgroup"
        return self._cgroup / (version1 if (self._cgroup / version1).exists() else version2)

    def _limit_memory(self, limit: int) -> None:
        folder = _memory_cgroup()
        if folder is None:
            self._rlimit_bytes = limit
            return
        self._cgroup = folder / f"{_CGROUP_PREFIX}{os.getpid()}-{self.name}-{time.monotonic_ns()}"
        self._cgroup.mkdir()
        try:
            self._memory_file("memory.limit_in_bytes", "memory.max").write_text(str(limit))
            (self._cgroup / "cgroup.procs").write_text(str(self.pid))
        except OSError:
            _remove_cgroup(self._cgroup)
            self._cgroup, self._rlimit_bytes = None, limit


class Network:
    """A switch (a bridge in namespaces of its own), the machines on it, and an interface of the host."""

    def __init__(self) -> None:
        _sweep_cgroups()
        self.machines: dict[str, Machine] = {}
        self._switch = Machine("switch")
        try:
            self._switch.inside("ip", "link", "add", "br0", "type", "bridge")
            self._switch.inside("ip", "link", "set", "br0", "up")
            number = self._host_link()
        except BaseException:
            self._switch.close()
            raise
        self.host_link = f"aici-{number}"
        self._prefix = f"198.18.{number}"
        self.host_address = f"{self._prefix}.1"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def machine(self, name: str, *, memory_bytes: int | None = None) -> Machine:
        """Boot a machine and plug it in. `memory_bytes` limits all processes together (cgroup), or each (rlimit)."""
        machine = Machine(name, memory_bytes)
        number = len(self.machines) + 2
        self.machines[name] = machine
        machine.switch, machine.port, machine.address = self._switch, f"port{number}", f"{self._prefix}.{number}"
        machine.on_boot = functools.partial(self._plug_in, machine)
        self._plug_in(machine)
        return machine

    def close(self) -> None:
        """End every machine. Nothing is left: no process, namespace, interface or cgroup. Idempotent."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._forget_host_link)
            stack.callback(self._switch.close)
            for machine in self.machines.values():
                stack.callback(machine.close)

    def _plug_in(self, machine: Machine) -> None:
        _run("ip", "link", "add", "eth0", "netns", str(machine.pid), "type", "veth", "peer", "name", machine.port,
             "netns", str(self._switch.pid))  # fmt: skip
        self._on_bridge(machine.port)
        # The same hardware address after a reboot: neighbours remember it.
        machine.inside(
            "ip", "link", "set", "eth0", "address", f"02:00:00:00:00:{int(machine.address.split('.')[-1]):02x}"
        )
        machine.inside("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        machine.inside("ip", "link", "set", "eth0", "up")

    def _on_bridge(self, port: str) -> None:
        self._switch.inside("ip", "link", "set", port, "master", "br0")
        self._switch.inside("ip", "link", "set", port, "up")

    def _host_link(self) -> int:
        """Take the first number whose interface name is free: making the interface is atomic between test runs."""
        for number in range(1, _NETWORKS):
            peer = ["peer", "name", "port1", "netns", str(self._switch.pid)]
            link = ["ip", "link", "add", f"aici-{number}", "type", "veth", *peer]
            made = subprocess.run(link, capture_output=True, text=True)
            if made.returncode == 0:
                self._on_bridge("port1")
                _host_links.add(f"aici-{number}")
                _run("ip", "address", "add", f"198.18.{number}.1/24", "dev", f"aici-{number}")
                _run("ip", "link", "set", f"aici-{number}", "up")
                return number
            if "exist" not in made.stderr:
                break
        raise OSError(f"no interface for the host: {made.stderr.strip()}")

    def _forget_host_link(self) -> None:
        # The peer went with the switch's namespace, which the kernel takes apart a moment after its last process.
        subprocess.run(["ip", "link", "delete", self.host_link], capture_output=True)


@functools.cache
def missing() -> str:
    """Return why machines cannot be had here, or nothing."""
    if platform.system() != "Linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if absent := [tool for tool in ("ip", "tc", "unshare", "nsenter") if shutil.which(tool) is None]:
        return f"not installed: {', '.join(absent)} (iproute2, util-linux)"
    try:
        with Network() as network:
            network.machine("probe").limit_rate(10_000_000)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces here: {error}"
    return ""


def left_behind() -> list[str]:
    """What is still there of this process's networks: interfaces, cgroups, processes in other PID namespaces."""
    links = _host_links & {link["ifname"] for link in json.loads(_run("ip", "-j", "link"))}
    folder = _memory_cgroup()
    cgroups = [path.name for path in folder.glob(f"{_CGROUP_PREFIX}{os.getpid()}-*")] if folder is not None else []
    return [*links, *cgroups, *(f"process {pid}" for pid in _processes_elsewhere())]


def _processes_elsewhere() -> Iterator[int]:
    from tests.support.processes import descendants

    ours = os.readlink("/proc/self/ns/pid")
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") != ours:
                yield pid


def _pid_of(pidfd: int) -> int:
    """The process's id as this process sees it; the process may live in another PID namespace."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pid:")))


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def _memory_cgroup() -> Path | None:
    """The folder for new memory cgroups: this process's own group (version 1), or the root (version 2)."""
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" in groups:
        folder = Path("/sys/fs/cgroup/memory") / groups["memory"].lstrip("/")
        return folder if folder.exists() else None
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        if "memory" in (root / "cgroup.subtree_control").read_text().split():
            return root
    return None


def _remove_cgroup(folder: Path) -> None:
    for _ in range(200):  # a process that was killed is counted a moment longer
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return
    folder.rmdir()


def _sweep_cgroups() -> None:
    """Remove the cgroups of test runs that were killed."""
    for folder in (_memory_cgroup() or Path("/nonexistent")).glob(f"{_CGROUP_PREFIX}*"):
        owner = folder.name.removeprefix(_CGROUP_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
