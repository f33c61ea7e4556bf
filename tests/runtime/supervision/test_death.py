"""Any process may be killed at any time: nobody hangs, and nothing is left."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aici_base.errors import AiciError, RuntimeDiedError, UnavailableError
from aici_base.ids import SeqId
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.memory import shm
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import wat
from tests.runtime.support.leak import used_slots
from tests.runtime.support.processes import PATIENCE_S, bind, fork, members, one, replaced, wait_until


def spinning() -> bytes:
    return wat.Module().build(mid=wat.SPIN)


def test_names_of_processes(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    parent = bind(runtime, 1, wat.plain())
    assert sorted(members(runtime.pid).values()) == ["aicirt", "aicirt-seq", "aicirt-side", "aicirt-spawner"]
    fork(runtime, parent, 2)  # from now on the request shares variables
    assert sorted(members(runtime.pid).values()) == [
        "aicirt", "aicirt-comms", "aicirt-seq", "aicirt-seq", "aicirt-side", "aicirt-spawner"
    ]  # fmt: skip


def test_close_leaves_nothing(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    seq_id = bind(runtime, 1, spinning())
    runtime.send_mid([MidOp(seq_id)])
    runtime.close()
    assert members(runtime.pid) == {}
    with pytest.raises(RuntimeDiedError, match="has been closed"):
        runtime.recv_mid()
    runtime.close()


def test_names_are_gone_once_ready(start_runtime: Callable[..., Runtime]) -> None:
    start_runtime()
    assert [name for name in os.listdir("/dev/shm") if f"aici-{os.getpid()}-" in name] == []


def test_a_killed_stepper_ends_the_whole(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    seq_id = bind(runtime, 1, spinning())
    runtime.send_mid([MidOp(seq_id)])
    threading.Timer(0.05, os.kill, (runtime.pid, signal.SIGKILL)).start()
    with pytest.raises(RuntimeDiedError, match="has died"):
        runtime.recv_mid()  # waiting, with a runaway guest
    wait_until(lambda: not members(runtime.pid))
    for call in (lambda: runtime.send_mid([]), runtime.recv_mid, runtime.get_tags, lambda: runtime.discard("x")):
        with pytest.raises(RuntimeDiedError):
            call()


@pytest.mark.parametrize("victim", ["aicirt-spawner", "aicirt-side"])
def test_a_killed_part_is_replaced(start_runtime: Callable[..., Runtime], victim: str) -> None:
    runtime = start_runtime(max_step_time_ms=400)
    good, bad = bind(runtime, 1, wat.plain()), bind(runtime, 2, spinning())
    module_id = runtime.mk_module(wat.plain()).module_id
    runtime.instantiate(req_id="before", prompt=[], module_id=module_id, module_arg="").result(PATIENCE_S)
    runtime.send_mid([MidOp(good), MidOp(bad)])
    replaced(runtime, victim)
    answers = runtime.recv_mid().seqs
    assert answers[good].error == ""
    assert answers[bad].error.startswith("Worker: timeout; ")
    after = bind(runtime, 3, wat.plain())
    runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(4), "before")], freed=[bad])
    runtime.send_mid([MidOp(good), MidOp(SeqId(5), good), MidOp(after), MidOp(SeqId(6), after), MidOp(SeqId(4))])
    assert {answer.error for answer in runtime.recv_mid().seqs.values()} == {""}
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[SeqId(n) for n in range(1, 7)])
    parts = ["aicirt", "aicirt-side", "aicirt-spawner"]
    wait_until(lambda: sorted(members(runtime.pid, states="RSDTtZ").values()) == parts)  # no zombie either
    as_new = descriptors(start_runtime().pid)
    wait_until(lambda: descriptors(runtime.pid) == as_new)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("name", ["aicirt-spawner", "aicirt-side", "aicirt-seq"])
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
def test_crashes(start_runtime: Callable[..., Runtime], name: str, number: signal.Signals) -> None:
    """wasmtime survives a first SIGSEGV sent from outside. No process survives a second."""
    runtime = start_runtime()
    good = bind(runtime, 1, wat.plain())
    bind(runtime, 2, wat.plain())
    victim = max(pid for pid, found in members(runtime.pid).items() if found == name)

    def is_gone() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, number)
        return victim not in members(runtime.pid)

    wait_until(is_gone)
    runtime.send_mid([MidOp(good), MidOp(SeqId(2))])
    errors = sorted(answer.error for answer in runtime.recv_mid().seqs.values())
    assert errors == (["", "Worker: died"] if name == "aicirt-seq" else ["", ""])
    bind(runtime, 3, wat.plain())


def test_requests_wait_for_the_next_spawner(start_runtime: Callable[..., Runtime]) -> None:
    """Only a request taken by the spawner could fail, and a stopped spawner has taken none."""
    runtime = start_runtime()
    module_id = runtime.mk_module(wat.plain()).module_id
    os.kill(one(runtime, "aicirt-spawner"), signal.SIGSTOP)
    futures = [runtime.instantiate(req_id=f"r{n}", prompt=[], module_id=module_id, module_arg="") for n in range(20)]
    replaced(runtime, "aicirt-spawner")
    for future in futures:
        future.result(PATIENCE_S)


def test_what_the_side_process_had_taken_fails(start_runtime: Callable[..., Runtime]) -> None:
    """The guest without a waiting request is ended, too."""
    runtime = start_runtime(max_init_time_ms=60_000)
    good = bind(runtime, 1, wat.plain())
    before = sorted(members(runtime.pid).values())
    module_id = runtime.mk_module(wat.Module().build(create=wat.SPIN + "(i32.const 0)")).module_id
    endless = [runtime.instantiate(req_id=f"r{n}", prompt=[], module_id=module_id, module_arg=n) for n in range(3)]
    wait_until(lambda: list(members(runtime.pid).values()).count("aicirt-seq") == 4)
    replaced(runtime, "aicirt-side")
    for future in endless:
        assert isinstance(error := future.exception(PATIENCE_S), UnavailableError)
        assert error.message == "the process that served this request was killed"
    wait_until(lambda: sorted(members(runtime.pid).values()) == before)
    runtime.send_mid([MidOp(good)])
    assert runtime.recv_mid().seqs[good].error == ""


def test_parts_that_die_again_and_again(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    for name in ("aicirt-spawner", "aicirt-side") * 2:
        replaced(runtime, name)
    runtime.get_tags()
    os.kill(one(runtime, "aicirt-spawner"), signal.SIGKILL)
    assert runtime.wait_ended(PATIENCE_S)
    with pytest.raises(RuntimeDiedError, match=r"error: aicirt-spawner was killed \(signal 9\), the 5th of such"):
        runtime.get_tags()


def test_guests_that_nobody_binds_expire(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(extra_args=("--unbound-timeout=1",))
    module_id = runtime.mk_module(wat.plain()).module_id
    bound = bind(runtime, 1, wat.plain())
    runtime.instantiate(req_id="late", prompt=[], module_id=module_id, module_arg="").result(PATIENCE_S)
    wait_until(lambda: list(members(runtime.pid).values()).count("aicirt-seq") == 1)
    with pytest.raises(AiciError, match="invalid req_id late"):
        runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(2), "late")], freed=[])
    runtime.send_mid([MidOp(bound)])
    assert runtime.recv_mid().seqs[bound].error == ""


def test_pending_futures_fail_when_the_runtime_dies(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    module = wat.Module()
    module_id = runtime.mk_module(module.build(create=wat.SPIN + "(i32.const 0)")).module_id
    future = runtime.instantiate(req_id="r", prompt=[], module_id=module_id, module_arg="")
    os.kill(runtime.pid, signal.SIGKILL)
    assert isinstance(future.exception(PATIENCE_S), RuntimeDiedError)
    wait_until(lambda: not members(runtime.pid))


def test_a_killed_worker_hurts_nobody_else(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(max_step_time_ms=60_000)
    good, bad = bind(runtime, 1, wat.plain()), None
    before = set(members(runtime.pid))
    bad = bind(runtime, 2, spinning())
    worker = next(pid for pid, name in members(runtime.pid).items() if pid not in before and name == "aicirt-seq")
    for _ in range(2):  # once in the middle of a step, once long after death
        runtime.send_mid([MidOp(bad), MidOp(good)])
        time.sleep(0.05)
        if worker in members(runtime.pid):
            os.kill(worker, signal.SIGKILL)
        answers = runtime.recv_mid().seqs
        assert (answers[bad].error, answers[good].error) == ("Worker: died", "")
    runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[bad])
    wait_until(lambda: set(members(runtime.pid)) == before)  # the variables went too


def test_a_stopped_worker_is_killed(start_runtime: Callable[..., Runtime]) -> None:
    """Neither an epoch nor a signal reaches a stopped process."""
    runtime = start_runtime(max_step_time_ms=20)
    seq_id = bind(runtime, 1, wat.plain())
    worker = one(runtime, "aicirt-seq")
    os.kill(worker, signal.SIGSTOP)
    runtime.send_mid([MidOp(seq_id)])
    assert runtime.recv_mid().seqs[seq_id].error.startswith("Worker: stopped; ")  # the guest is not to blame
    wait_until(lambda: worker not in members(runtime.pid))


def test_killed_variables_fail_their_request_only(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    module = wat.Module()
    reads = module.build(mid=module.store('{"ReadVar":{"name":"a"}}') + module.answer(wat.SAMPLE))
    seq_id = bind(runtime, 1, reads)
    fork(runtime, seq_id, 3)
    os.kill(one(runtime, "aicirt-comms"), signal.SIGKILL)
    good = bind(runtime, 2, reads)
    runtime.send_mid([MidOp(seq_id), MidOp(good)])
    answers = runtime.recv_mid().seqs
    assert "the variables of this request are gone" in answers[seq_id].error
    assert answers[good].error == ""


def test_a_branch_whose_parent_dies_before_it_tells_of_it(start_runtime: Callable[..., Runtime]) -> None:
    """Kill the parent at a random moment of the fork. The fork exists or not; nobody knows the pid."""
    runtime = start_runtime()
    for number in range(0, 50, 2):
        parent, child = bind(runtime, number, wat.plain()), SeqId(number + 1)
        pid = one(runtime, "aicirt-seq")
        runtime.send_mid([MidOp(parent), MidOp(child, parent)])
        time.sleep(number / 50 * 0.006)
        os.kill(pid, signal.SIGKILL)
        runtime.recv_mid()
        runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[parent, child])
        wait_until(lambda: "aicirt-seq" not in members(runtime.pid).values())
    wait_until(lambda: used_slots(runtime.pid) == 0)


def test_variables_that_are_gone_fail_the_fork_only(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    parent = bind(runtime, 1, wat.plain())
    fork(runtime, parent, 2)
    os.kill(one(runtime, "aicirt-comms"), signal.SIGKILL)
    wait_until(lambda: "aicirt-comms" not in members(runtime.pid).values())
    runtime.send_mid([MidOp(parent), MidOp(SeqId(3), parent)])
    answers = runtime.recv_mid().seqs
    assert answers[parent].error == ""
    assert answers[SeqId(3)].error.startswith("Worker: cannot fork: ")


def test_a_dead_parent_takes_no_slot(start_runtime: Callable[..., Runtime]) -> None:
    forks = NUM_WORKER_SLOTS // 2
    runtime = start_runtime(max_step_time_ms=10_000, extra_args=(f"--wasm-max-forks={forks + 1}",))
    dead = bind(runtime, 1, wat.plain())
    os.kill(one(runtime, "aicirt-seq"), signal.SIGKILL)
    wait_until(lambda: "aicirt-seq" not in members(runtime.pid).values())
    time.sleep(0.1)  # time for the runtime to hear of the death
    runtime.send_mid([MidOp(SeqId(2), dead)])
    assert runtime.recv_mid().seqs[SeqId(2)].error == "Worker: died"
    parent = bind(runtime, 3, wat.plain())
    runtime.send_mid([MidOp(parent), *(MidOp(SeqId(10 + k), parent) for k in range(forks))])
    assert {entry.error for entry in runtime.recv_mid().seqs.values()} == {""}


def test_close_from_two_threads(start_runtime: Callable[..., Runtime]) -> None:
    """Close from two threads: when either returns, nothing is left, and a waiting thread is told."""
    runtime = start_runtime()
    runtime.send_mid([MidOp(bind(runtime, 1, spinning()))])

    def close() -> dict[int, str]:
        runtime.close()
        return members(runtime.pid)

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(runtime.recv_mid)
        closing = [pool.submit(close) for _ in range(2)]
        assert [future.result(PATIENCE_S) for future in closing] == [{}, {}]
        assert isinstance(waiting.exception(PATIENCE_S), RuntimeDiedError)
    with pytest.raises(RuntimeDiedError, match="has been closed"):
        runtime.mask_rows(1)


_ODD_ENGINE = """
import signal, sys
from pathlib import Path
from aici_runtime.client import Runtime, RuntimeConfig
from aici_base.errors import UsageError
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
with Runtime(RuntimeConfig(tokenizer=Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))) as runtime:
    runtime.wait_ready()
    print(next(line for line in open(f"/proc/{runtime.pid}/status") if line.startswith("SigBlk")).split()[1])
    try:
        runtime.mk_module(b"no module")
    except UsageError:
        print("refused")
"""


def test_an_engine_in_odd_surroundings(byte_level: Path, cache_dir: Path, tmp_path: Path) -> None:
    """Start in a folder with a file named like a standard module, with signals ignored and blocked."""
    (tmp_path / "select.py").write_text("raise SystemExit('not this one')")
    command = [sys.executable, "-P", "-c", _ODD_ENGINE, str(byte_level), str(cache_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.split() == ["0" * 16, "refused"], done.stderr


def test_standard_error_that_nobody_reads() -> None:
    """The runtime's output is read even when nobody can receive the output."""
    script = "import sys; [sys.stderr.write('x' * 99 + '\\n') for _ in range(5000)]"
    code = f"""
import sys
from aici_runtime.runtime_process import RuntimeProcess
sys.stderr.close()
child = RuntimeProcess([sys.executable, "-c", {script!r}])
child.wait_ended()
print(len(child.last_words()))
child.end()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.stdout == "3000\n"


def test_a_cache_that_cannot_be_written(start_runtime: Callable[..., Runtime], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    runtime = start_runtime(cache_dir=file)
    with pytest.raises(UnavailableError, match=f"cannot write {file}/modules: "):
        runtime.mk_module(wat.plain())


_ENGINE = """
import os, sys
from pathlib import Path
from aici_runtime.memory import shm
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.wire import MidOp, PreOp
runtime = Runtime(RuntimeConfig(tokenizer=Path(sys.argv[1]), cache_dir=Path(sys.argv[2]), sync=sys.argv[5]))
print(os.getpid(), runtime.pid, flush=True)
if sys.argv[3] == "starting":
    os.kill(os.getpid(), 9)
runtime.wait_ready()
module_id = runtime.mk_module(Path(sys.argv[4]).read_bytes()).module_id
runtime.instantiate(req_id="r", prompt=[], module_id=module_id, module_arg="").result()
runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(1, "r")], freed=[])
runtime.send_mid([MidOp(1)])
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("sync", ["semaphore", "futex"])
@pytest.mark.parametrize("when", ["starting", "stepping"])
def test_a_killed_engine_takes_its_runtime_along(
    byte_level: Path, cache_dir: Path, tmp_path: Path, when: str, sync: str
) -> None:
    guest = tmp_path / "spin.wasm"
    guest.write_bytes(spinning())
    arguments = [str(byte_level), str(cache_dir), when, str(guest), sync]
    done = subprocess.run([sys.executable, "-c", _ENGINE, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    engine, group = done.stdout.split()
    wait_until(lambda: not members(int(group)))
    if when == "starting":  # the only moment with names in /dev/shm; the next engine sweeps them
        shm.sweep()
    assert list(Path("/dev/shm").glob(f"*aici-{engine}-*")) == []


def test_failure_to_start_says_why(byte_level: Path, cache_dir: Path, tmp_path: Path) -> None:
    odd = tmp_path / "tokenizer.json"
    odd.write_text('{"model":{"vocab":{"a":0}},"decoder":{"type":"ByteLevel"}}')
    for config, words in (
        (RuntimeConfig(tokenizer=odd, cache_dir=cache_dir), f"error: {odd} cannot be loaded as a tokenizer: "),
        (RuntimeConfig(tokenizer=Path("/nowhere"), cache_dir=cache_dir), "no tokenizer at /nowhere"),
        (RuntimeConfig(tokenizer=byte_level, cache_dir=cache_dir, extra_args=("--name=x",)), "--name must start"),
    ):
        with Runtime(config) as runtime, pytest.raises(RuntimeDiedError, match=words):
            runtime.wait_ready()


def test_two_runtimes_in_one_process(start_runtime: Callable[..., Runtime]) -> None:
    first, second = start_runtime(), start_runtime()
    bind(first, 1, wat.plain())
    bind(second, 1, wat.plain())
    first.close()
    second.send_mid([MidOp(SeqId(1))])
    assert second.recv_mid().seqs[SeqId(1)].error == ""


def test_idle_costs_nothing(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime()
    for number in range(1, 5):
        bind(runtime, number, wat.plain())

    def ticks() -> int:
        stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in members(runtime.pid))
        return sum(int(stat[11]) + int(stat[12]) for stat in stats)

    time.sleep(0.2)
    before = ticks()
    time.sleep(1.0)
    assert ticks() == before
