"""`aicirt --futex`: driven by hand, and through our own client."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aici_base.errors import RuntimeDiedError
from aici_base.ids import SeqId
from aici_runtime.client import Runtime
from aici_runtime.memory import shm
from aici_runtime.memory.futex import Futex
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import wat

SIZE = 1 << 20


def test_the_wire_by_hand(byte_level: Path, cache_dir: Path) -> None:
    prefix = shm.unique_prefix()
    names = [f"{prefix}{name}" for name in ("cmd", "resp", "cmd-side", "resp-side")]
    regions = [shm.create_region(name, SIZE) for name in (*names, f"{prefix}bin-shm")]
    flags = [f"--tokenizer={byte_level}", f"--cache-dir={cache_dir}", f"--name={prefix}", "--server", "--futex"]
    command = [sys.executable, "-m", "aici_runtime.main", *flags, "--json-size=1", "--bin-size=1"]
    runtime = subprocess.Popen(command)
    wakers = [Futex(regions[0]), Futex(regions[2])]

    def ask(side: int, **request: object) -> object:
        commands, responses = regions[2 * side : 2 * side + 2]
        payload = json.dumps(request).encode()
        commands[4 : 4 + len(payload)] = payload
        commands[:4] = struct.pack("<I", len(payload))
        wakers[side].wake(0)
        deadline = time.monotonic() + 20
        while (length := struct.unpack_from("<I", responses, SIZE // 2)[0]) in (0, 0xFFFFFFFF):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        start = SIZE // 2 + 4
        answer = json.loads(responses[start : start + length])
        responses[SIZE // 2 : start] = bytes(4)
        return answer

    try:
        for side in (0, 1):
            assert ask(side, op="ping") == {"type": "ok", "data": {"pong": 1}}
        left = [name for name in os.listdir("/dev/shm") if name.startswith(prefix[1:])]
        assert left == [f"{prefix[1:]}bin-shm"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert (second.returncode, second.stdout) == (2, "")
        assert second.stderr.startswith(f"error: there is no shared object {prefix}cmd\n")
    finally:
        os.killpg(runtime.pid, signal.SIGKILL)
        runtime.wait()
        for owner in (*wakers, *regions):
            owner.close()
        shm.unlink_region(f"{prefix}bin-shm")


def test_our_client(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(sync="futex")
    assert not any(f"aici-{os.getpid()}-" in name for name in os.listdir("/dev/shm"))
    module_id = runtime.mk_module(wat.plain()).module_id
    runtime.instantiate(req_id="r", prompt=[], module_id=module_id, module_arg="").result(10)
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(1), "r")], freed=[])
    runtime.send_mid([MidOp(SeqId(1))])
    assert runtime.recv_mid().seqs[SeqId(1)].error == ""


def test_whoever_waits_learns_of_a_death(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(sync="futex")
    module_id = runtime.mk_module(wat.Module().build(create=wat.SPIN + "(i32.const 0)")).module_id
    future = runtime.instantiate(req_id="r", prompt=[], module_id=module_id, module_arg="")
    os.kill(runtime.pid, signal.SIGSTOP)
    threading.Timer(0.05, os.kill, (runtime.pid, signal.SIGKILL)).start()
    runtime.send_mid([])
    with pytest.raises(RuntimeDiedError, match="has died"):
        runtime.recv_mid()
    assert isinstance(future.exception(10), RuntimeDiedError)


@pytest.mark.parametrize("sync", ["semaphore", "futex"])
def test_signals_interrupt_nothing(start_runtime: Callable[..., Runtime], sync: str) -> None:
    """The runtime's main thread handles SIGCHLD, which interrupts waits."""
    runtime = start_runtime(sync=sync)
    done = threading.Event()

    def disturb() -> None:
        while not done.wait(0.0002):
            os.kill(runtime.pid, signal.SIGCHLD)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(500):
            runtime.ping()
    finally:
        done.set()
        thread.join()
