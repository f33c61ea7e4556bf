"""Native code in a guest's process, in the real sandbox: every attempt is stopped."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aici_base.ids import SeqId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp
from aici_runtime.workers import sandbox, syscall_filter
from aici_runtime.workers.sandbox import Wall
from tests.runtime import walls
from tests.runtime.support import wat
from tests.runtime.support.native_code import ATTEMPTS
from tests.runtime.support.processes import bind, fork, members, one
from tests.support.processes import wait_until

pytestmark = pytest.mark.skipif(bool(syscall_filter.missing()), reason="no seccomp for this kernel or processor")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root becomes somebody else"
)


def stands(name: str) -> bool:
    """Whether a wall stands on this machine, for this user."""
    return Wall(name) in sandbox.survey()


def done(outcomes: dict[str, str]) -> set[str]:
    """Return the attempts that nothing has stopped."""
    return {name for name, outcome in outcomes.items() if not outcome.startswith("stopped: ")}


def test_every_attempt_is_stopped() -> None:
    unstoppable = set() if stands("a limit of processes") else {"make a thousand processes"}
    assert done(walls.outcomes_here()) == unstoppable


@needs_root
def test_every_attempt_is_stopped_for_a_user() -> None:
    outcomes = walls.outcomes_of(walls.NOBODY)
    assert len(outcomes) == len(ATTEMPTS)
    assert done(outcomes) <= {"make a thousand processes"}  # the kernel may refuse namespaces to users


@needs_root
def test_a_guest_has_neither_the_channels_nor_rights(tmp_path: Path) -> None:
    """As root sees the process: no channel of the engine, no capability, not root, and few descriptors."""
    with Runtime(walls.config(tmp_path, f"--trace={tmp_path}/trace")) as runtime:
        runtime.wait_ready()
        walls.attempt(runtime, SeqId(1), [])
        process = Path(f"/proc/{one(runtime, 'aicirt-seq')}")
        mapped = {
            line.split(maxsplit=5)[5] for line in (process / "maps").read_text().splitlines() if "/dev/shm" in line
        }
        assert not [name for name in mapped if "cmd" in name or "resp" in name or "sem." in name]
        opened = {os.readlink(entry) for entry in (process / "fd").iterdir()}
        assert not [name for name in opened if "/dev/shm" in name or "trace" in name]
        status = (process / "status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "CapBnd:\t0000000000000000" in status
        assert ("Uid:\t0" not in status) == stands("a user without rights")
        is_apart = (process / "ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        assert is_apart == stands("namespaces of network and IPC")


def shared_by(pid: int) -> set[str]:
    """Return the files that a process can write by shared mappings, by inode and name."""
    lines = (line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    return {" ".join(fields[4:]) for fields in lines if fields[1] == "rw-s"}


@needs_root
def test_a_pool_shares_the_slots_of_its_guests_and_nothing_else(tmp_path: Path) -> None:
    with Runtime(walls.config(tmp_path, "--placement=pool")) as runtime:
        runtime.wait_ready()
        for number in (1, 2):
            bind(runtime, number, walls.module([]))
        bind(runtime, 3, wat.plain())
        fork(runtime, SeqId(1), 4)
        found = [shared_by(pid) for pid, name in members(runtime.pid).items() if name == "aicirt-pool"]
        assert sorted(len(files) for files in found) == [2, 4]  # one of the pool itself
        assert len(set.union(*found)) == 6
        runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[SeqId(2), SeqId(4)])
        assert wait_until(
            lambda: (
                sum(len(shared_by(pid)) for pid, name in members(runtime.pid).items() if name == "aicirt-pool") == 4
            ),
            10,
        )


@needs_root
def test_a_guest_shares_its_own_slot_and_nothing_else(tmp_path: Path) -> None:
    """Also a fork of a sequence, and a fork of a template."""
    with Runtime(walls.config(tmp_path)) as runtime:
        runtime.wait_ready()
        for number in (1, 2, 3):
            bind(runtime, number, walls.module([]))
        fork(runtime, SeqId(1), 4)
        found = [shared_by(pid) for pid, name in members(runtime.pid).items() if name == "aicirt-seq"]
        assert [len(files) for files in found] == [1, 1, 1, 1]
        assert len(set.union(*found)) == 4
        assert all("aici-slot" in name for name in set.union(*found))


def test_a_guest_cannot_report_for_others(tmp_path: Path) -> None:
    with Runtime(walls.config(tmp_path)) as runtime:
        runtime.wait_ready()
        victim = bind(runtime, 1, wat.plain())
        assert "done" in walls.attempt(runtime, SeqId(2), ["forge reports"])["forge reports"]
        bind(runtime, 3, wat.plain())  # the reports were read
        runtime.send_mid([MidOp(victim)])
        assert runtime.recv_mid().seqs[victim].error == ""


def test_a_guest_cannot_answer_for_others(tmp_path: Path) -> None:
    with Runtime(walls.config(tmp_path)) as runtime:
        runtime.wait_ready()
        victim = bind(runtime, 1, wat.plain())
        hostile = bind(runtime, 2, walls.module(["forge an answer"]))
        runtime.send_mid([MidOp(victim), MidOp(hostile)])
        answers = runtime.recv_mid().seqs
        assert (answers[victim].error, answers[victim].result, answers[victim].logs) == ("", None, "")
        assert answers[hostile].error == "Worker: the answer of the worker cannot be read"
        runtime.send_mid([MidOp(victim)])
        assert runtime.recv_mid().seqs[victim].error == ""


def test_a_guest_cannot_have_others_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names a process of the user as its fork, which the runtime would kill at the end of the fork."""
    with subprocess.Popen(["sleep", "60"]) as victim:
        monkeypatch.setenv("AICI_TEST_VICTIM", str(victim.pid))
        with Runtime(walls.config(tmp_path)) as runtime:
            runtime.wait_ready()
            walls.attempt(runtime, SeqId(1), ["lie about a fork"])
            runtime.send_mid([MidOp(SeqId(1)), MidOp(SeqId(2), SeqId(1))])
            assert runtime.recv_mid().seqs[SeqId(2)].error != ""
            bind(runtime, 3, wat.plain())
        assert victim.poll() is None
        victim.kill()


def test_the_survey_names_every_wall_once() -> None:
    names = [wall.name for wall in sandbox.survey()]
    assert "a filter of system calls" in names
    assert len(names) == len(set(names))


def test_pools_keep_all_walls(tmp_path: Path) -> None:
    """But a pool has room for the memories of many guests."""
    with Runtime(walls.config(tmp_path, "--placement=pool")) as runtime:
        runtime.wait_ready()
        outcomes = walls.attempt(runtime, SeqId(1), list(ATTEMPTS))
    unstoppable = set() if stands("a limit of processes") else {"make a thousand processes"}
    assert done(outcomes) == unstoppable | {"map 2 GiB of memory"}
