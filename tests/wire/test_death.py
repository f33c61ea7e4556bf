"""Processes that die: which other processes end, and which objects are left."""

import glob
import json
import os
import signal
import subprocess
import sys

import posix_ipc
import pytest

from tests.wire.support import puppet
from tests.wire.support.engine import PATIENT, SIDES, Binary, Engine, Side, Sync, Version, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.processes import members, until_ended, until_gone

ENGINE_IS_MISSED_S = 6.0


@pytest.mark.parametrize("sync", ["sem", "futex"])
@pytest.mark.parametrize("side", SIDES)
def test_stop_ends_all_of_it_and_has_no_answer(aicirt: Binary, version: Version, sync: Sync, side: Side) -> None:
    with Engine(aicirt, version, sync) as engine:
        Guests(engine).bind()
        engine.send({"op": "stop"}, side)
        assert engine.wait_exit() == 0
        until_gone(engine.process.pid)
        with pytest.raises(posix_ipc.BusyError):
            engine.receive(side, patience_s=0)


def test_sigterm_to_its_group(aicirt: Binary, version: Version) -> None:
    """As engines do on exit: the runtime leads its own process group."""
    with Engine(aicirt, version) as engine:
        Guests(engine).bind()
        assert os.getpgid(engine.process.pid) == engine.process.pid
        os.killpg(engine.process.pid, signal.SIGTERM)
        engine.wait_exit()
        until_gone(engine.process.pid)


@pytest.mark.parametrize("sync", ["sem", "futex"])
def test_an_engine_that_is_killed_takes_its_runtime_along(
    aicirt: Binary, version: Version, sync: Sync, pytestconfig: pytest.Config
) -> None:
    """Upstream's runtime waits forever."""
    given = {"command": aicirt.command, "folder": str(aicirt.folder), "tokenizer": str(aicirt.tokenizer)}
    arguments = json.dumps(given | {"version": version, "sync": sync})
    command = [sys.executable, "-m", "tests.wire.support.mortal", arguments]
    with subprocess.Popen(command, cwd=pytestconfig.rootpath, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        pid, prefix = json.loads(engine.stdout.readline())
        engine.kill()
    try:
        until_ended(pid, ENGINE_IS_MISSED_S)
        until_gone(pid, patience_s=ENGINE_IS_MISSED_S)
    finally:
        for path in glob.glob(f"/dev/shm{prefix}*") + glob.glob(f"/dev/shm/sem.{prefix[1:]}*"):
            os.unlink(path)


def test_a_worker_that_is_killed_fails_its_own_sequence(aicirt: Binary, version: Version) -> None:
    with Engine(aicirt, version, extra=PATIENT[version]) as engine:
        guests = Guests(engine)
        victim = guests.bind()
        (worker,) = members(engine.process.pid, "aicirt-seq")
        neighbour = guests.bind()
        os.kill(worker, signal.SIGKILL)
        seqs = guests.step([{"id": victim}, {"id": neighbour}])
        assert seqs[victim]["error"].startswith("Worker: ")
        assert seqs[victim]["result"] is None
        assert seqs[neighbour]["error"] == ""
        guests.free(victim, neighbour)
        engine.is_well()


def test_who_fails_at_birth_does_not_stay(aicirt: Binary, version: Version) -> None:
    """A guest that no sequence is bound to; in upstream the guest would live as long as the runtime."""
    with Engine(aicirt, version) as engine:
        Guests(engine).try_instantiate(f"r{fresh()}", prompt=puppet.TRAP)
        until_gone(engine.process.pid, "aicirt-seq")


def test_who_is_freed_is_gone(aicirt: Binary, version: Version) -> None:
    """Clones and failed guests end too."""
    with Engine(aicirt, version, extra=PATIENT[version]) as engine:
        guests = Guests(engine)
        parent, clone, failed = guests.bind(), fresh(), guests.bind(mid=puppet.TRAP)
        how = {"clone_id": parent} | ({"clone_idx": 1} if guests.is_v2 else {})
        guests.step([{"id": parent}, {"id": clone} | how, {"id": failed}])
        assert len(members(engine.process.pid, "aicirt-seq")) >= 2
        guests.free(parent, clone, failed)
        until_gone(engine.process.pid, "aicirt-seq")
