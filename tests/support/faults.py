"""What can happen to a stage of a pipeline, and how it is mended. Needs a Pipeline with relays."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.pipelines import Pipeline, StageRun
from tests.support.processes import command, descendants

LOST = r"computed anew"
"""A line of the log of the driver, which has lost a stage."""


@dataclass(frozen=True)
class Fault:
    """`hurt` and `mend` take the stage that it happens to."""

    name: str
    hurt: Callable[[StageRun], None]
    mend: Callable[[StageRun], None]


def _kill(stage: StageRun) -> None:
    stage.process.kill()
    stage.process.wait(10)


def _stall(stage: StageRun) -> None:
    assert stage.relay is not None
    stage.relay.stall()


def _resume(stage: StageRun) -> None:
    assert stage.relay is not None
    stage.relay.resume(lost=True)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill -9", _kill, lambda stage: stage.start()),
        Fault("link down", lambda stage: stage.machine.unplug(), lambda stage: stage.machine.plug()),
        Fault("half-open", _stall, _resume),
        Fault(
            "SIGSTOP",
            lambda stage: stage.process.signal(signal.SIGSTOP),
            lambda stage: stage.process.signal(signal.SIGCONT),
        ),
    )
}


def noticed_after(pipeline: Pipeline, moment: float, timeout_s: float) -> float:
    """Wait for the line of the driver's log that a stage is lost; return the seconds since `moment`."""
    return pipeline.server.said.wait(LOST, timeout_s, since=moment)[0] - moment


def was_noticed(pipeline: Pipeline, since: float) -> bool:
    return pipeline.server.said.first(LOST, since=since) is not None


@dataclass(frozen=True)
class Holdings:
    """What a process holds: to be compared before and after."""

    fds: int
    threads: int
    resident_bytes: int


def holdings(pid: int) -> Holdings:
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    fds = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Holdings(fds, int(fields["Threads"]), int(fields["VmRSS"].split()[0]) << 10)


def named(pipeline: Pipeline, name: str) -> list[int]:
    """The ids of the server's processes with this short name: `aici-engine`, `aicirt`, `aicirt-seq`, ..."""
    return sorted(pid for pid in descendants(pipeline.server.process.pid) if command(pid) == name)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process's threads so far, from the scheduler's own clock (nanoseconds)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def bytes_read(pid: int) -> int:
    """Bytes that a process read from storage so far, cached or not, and received."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"])


def settle(pipeline: Pipeline, timeout_s: float = 30) -> dict[str, float]:
    """Wait until the server holds no request, page or guest; return what it still holds after the time, or nothing."""
    deadline = time.monotonic() + timeout_s
    while True:
        stats = pipeline.server.stats()
        held = {
            name: stats[name] for name in ("active_requests", "waiting_requests", "admitted_sequences", "cache_usage")
        }
        held["guests"] = len(named(pipeline, "aicirt-seq"))
        held = {name: value for name, value in held.items() if value}
        if not held or time.monotonic() > deadline:
            return held
        time.sleep(0.05)


def anonymous_bytes(pid: int) -> int:
    """Memory that a process allocated and holds, without pages of files."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) << 10


def put_first(pid: int) -> None:
    """Give a process real-time priority: figures that a busy machine would spoil. For some seconds only."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(10))


def asked_twice(traces: Iterable[Path]) -> list[str]:
    """Read recordings of a runtime (AICI_TRACE). Return the guests that answered a second time before they heard the
    token of the first answer, as `guest 5 of FILE`."""
    twice = []
    for trace in traces:
        asked: set[int] = set()
        for line in trace.read_text().splitlines():
            exchange = json.loads(line)
            command = exchange["cmd"] or {}
            if command.get("op") != "turn_process":
                continue
            asked -= {op["id"] for op in command["post_ops"]} | set(command["freed"])
            # A guest that was asked and then forces tokens instead gives no answer, and a late guest gives none yet.
            answers = exchange["resp"]["data"]["seqs"].items()
            now = {int(guest) for guest, answer in answers if not (answer["result"] or {}).get("late")}
            twice += [f"guest {guest} of {trace.name}" for guest in asked & now]
            asked |= now
    return twice
