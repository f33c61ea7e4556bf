"""The processes of a runtime, seen from outside, and guests bound by hand."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from aici_base.ids import SeqId
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp, PreOp

PATIENCE_S = 10.0


def members(group: int, states: str = "RSDTt") -> dict[int, str]:
    """Return the processes of a group by pid, with names. Only live processes, unless `states` says otherwise.

    Without templates, which outlive their requests.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                state, _, pgid = rest.split()[:3]
            except (OSError, ValueError):
                continue
            if int(pgid) == group and state in states and name != "aicirt-template":
                found[int(entry.name)] = name
    return found


def one(runtime: Runtime, name: str) -> int:
    return next(pid for pid, found in members(runtime.pid).items() if found == name)


def wait_until(what: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def bind(runtime: Runtime, number: int, wasm: bytes) -> SeqId:
    module_id = runtime.mk_module(wasm).module_id
    runtime.instantiate(req_id=f"r{number}", prompt=[], module_id=module_id, module_arg="").result(PATIENCE_S)
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(number), f"r{number}")], freed=[])
    return SeqId(number)


def fork(runtime: Runtime, parent: SeqId, number: int) -> SeqId:
    runtime.send_mid([MidOp(parent), MidOp(SeqId(number), parent)])
    assert {entry.error for entry in runtime.recv_mid().seqs.values()} == {""}
    return SeqId(number)


def replaced(runtime: Runtime, name: str) -> int:
    """Kill a service process. Return the pid of the replacement."""
    old = one(runtime, name)
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: any(pid != old and found == name for pid, found in members(runtime.pid).items()))
    return one(runtime, name)
