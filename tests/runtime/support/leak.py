"""Thousands of requests with random forks and kills against a runtime; compares its holdings before and after.

    python -m tests.runtime.support.leak -n 10000 [--seed N] [--futex] [--pool] [--stop]

Prints the work done and the leaks, as JSON. Exits with 1 after a leak or a wrong mask. With `--stop`, processes are
stopped for a while and not killed, within the patience of the runtime; then a failed request also exits with 1. Knows
the processes by name only, and looks at them from outside.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aici_base.errors import AiciError
from aici_base.ids import SeqId
from aici_runtime.client import Runtime
from aici_runtime.config import RuntimeConfig
from aici_runtime.memory.worker_slots import REGISTER_BYTES, REGISTER_NAME, num_used_slots
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import tokenizer, wat

if TYPE_CHECKING:
    from concurrent.futures import Future

PROCESSES = ("aicirt", "aicirt-spawner", "aicirt-side")
TEMPLATE = "aicirt-template"
POOL = "aicirt-pool"
_PATIENCE_S = 60.0
_AT_ONCE = 12
_PART_DIES_EVERY_S = 3.0
"""A runtime gives up when service processes die five times within ten seconds, as documented."""

_GROWTH_KIB = 8 * 1024
"""Slack of a process's memory, for allocators."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Memory and descriptors by process, without the descriptors for templates.

    Shared memory counts in part in `pss_kib`, the less the more processes share; `anonymous_kib` counts all.
    """

    processes: dict[str, int]
    pss_kib: dict[str, int]
    anonymous_kib: dict[str, int]
    descriptors: dict[str, int]
    slots: int
    files: int
    shared: list[str]


def members(group: int, states: str = "RSDTtZ") -> dict[int, str]:
    """Return the processes of a group by pid, with names, zombies included."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            state, _, pgid = rest.split()[:3]
            if int(pgid) == group and state in states:
                found[int(entry.name)] = name
    return found


def holdings(runtime: Runtime, folder: Path) -> Holdings:
    """Return the holdings once only the permanent processes are left."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = members(runtime.pid)
        slots = used_slots(runtime.pid) - list(found.values()).count(POOL)  # the pool has a slot, too
        if (slots == 0 and set(found.values()) <= {*PROCESSES, TEMPLATE, POOL}) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    parts = {name: pid for pid, name in found.items() if name in PROCESSES}
    # A template keeps a fork ready, for which the side process holds nothing.
    templates = sum(name == TEMPLATE and found.get(_parent(pid)) != TEMPLATE for pid, name in found.items())
    descriptors = {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in parts.items()}
    descriptors["aicirt-side"] -= 2 * templates + list(found.values()).count(POOL)
    descriptors["aicirt"] -= 2 * list(found.values()).count(POOL)
    return Holdings(
        processes=dict(Counter(name for name in found.values() if name not in (TEMPLATE, POOL))),
        pss_kib={name: _kib(pid, "Pss") for name, pid in parts.items()},
        anonymous_kib={name: _kib(pid, "Anonymous") for name, pid in parts.items()},
        descriptors=descriptors,
        slots=slots,
        files=sum(path.is_file() for path in folder.rglob("*")),
        shared=[name for name in os.listdir("/dev/shm") if f"aici-{os.getpid()}-" in name],
    )


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _kib(pid: int, kind: str) -> int:
    match = re.search(rf"^{kind}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(match[1]) if match else 0


def used_slots(pid: int) -> int:
    """Count in the memory of the stepper, in the register of slots."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if end - begin == REGISTER_BYTES and "rw-s" in line:
            with Path(f"/proc/{pid}/mem").open("rb") as memory:
                memory.seek(begin)
                register = memory.read(REGISTER_BYTES)
            if register.startswith(REGISTER_NAME):
                return num_used_slots(register)
    raise AssertionError("the runtime has no table of slots")


def leaks(before: Holdings, after: Holdings) -> list[str]:
    found = [
        f"{name}: {was} before, {now} after"
        for name, was, now in (
            ("processes", before.processes, after.processes),
            ("descriptors", before.descriptors, after.descriptors),
            ("slots", 0, after.slots),
            ("files", before.files, after.files),
            ("shared objects", [], after.shared),
        )
        if was != now
    ]
    for name, kib in after.anonymous_kib.items():
        if kib > before.anonymous_kib[name] + _GROWTH_KIB:
            found.append(f"memory of {name}: {before.anonymous_kib[name]} KiB before, {kib} KiB after")
    return found


_ANYTHING = 0xFF
_PLAIN = 0b110
_GROWN = 0b1010


def _guests() -> list[tuple[bytes, int, int]]:
    """Controllers: the tokens below 8 allowed by each, and the share of requests."""
    write = '{"WriteVar":{"name":"n","value":"00","op":"Append"}}'
    modules = [wat.Module() for _ in range(6)]
    grow = f"(drop (memory.grow (i32.const 200))) (call $allow (i32.const {_GROWN}))"
    return [
        (wat.plain(), _PLAIN, 40),
        (modules[0].build(mid=modules[0].store(write) + modules[0].answer(wat.SAMPLE)), _ANYTHING, 30),
        (modules[1].build(mid=grow + modules[1].answer(wat.SAMPLE)), _GROWN, 10),
        (modules[2].build(mid=wat.TRAP), 0, 8),
        (modules[3].build(create=wat.TRAP), 0, 5),
        (modules[4].build(prompt="(call $exit (i32.const 1))"), 0, 5),
        (modules[5].build(mid=wat.SPIN), 0, 1),
    ]


_ARGUMENTS = ("a", "b", "c")
_OF_GUESTS = ("well", "late", "ended", "discarded", "Error (", "Worker: cannot clone #: ")
"""Outcomes caused by guests alone. A clone of a late or failed sequence fails, too."""

_STOP_MAX_S = 0.7


class Storm:
    """An engine with up to _AT_ONCE requests at once."""

    def __init__(self, runtime: Runtime, seed: int, *, stops: bool = False) -> None:
        self._runtime = runtime
        self._choose = random.Random(seed)
        self._stops = stops
        guests = _guests()[: -1 if stops else None]  # the last controller times out, which must not happen here
        self._modules = [runtime.mk_module(wasm).module_id for wasm, _, _ in guests]
        self._weights = [weight for _, _, weight in guests]
        self._allowed = {module_id: tokens for module_id, (_, tokens, _) in zip(self._modules, guests, strict=True)}
        self._tokens: dict[str, int] = {}  # by request
        self._starting: dict[str, Future[Any]] = {}
        self._running: dict[str, list[SeqId]] = {}
        self._next_seq = 1
        self._part_dies_at = time.monotonic()
        self._begun = 0
        self.outcomes: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self._victims: set[int] = set()

    def run(self, num_requests: int) -> None:
        end = self._begun + num_requests
        while self._begun < end or self._starting or self._running:
            while self._begun < end and len(self._starting) + len(self._running) < _AT_ONCE:
                self._begin()
            self._bind()
            self._step()
            if self._choose.random() < 0.4:
                self._stop() if self._stops else self._kill()
        self._touch_templates()

    def _touch_templates(self) -> None:
        """Use every template, so that the side process finds the killed ones. Killed processes may still answer."""
        while members(self._runtime.pid).keys() & self._victims:
            time.sleep(0.01)
        self._victims.clear()
        for module_id in self._modules:
            for arg in _ARGUMENTS:
                req_id = f"t{self._new_id()}"
                self._runtime.instantiate(req_id=req_id, prompt=[], module_id=module_id, module_arg=arg).exception(
                    _PATIENCE_S
                )
                self._runtime.discard(req_id)

    def _begin(self) -> None:
        self._begun += 1
        req_id = f"r{self._begun}"
        module_id = self._choose.choices(self._modules, self._weights)[0]
        arg = self._choose.choice(_ARGUMENTS)
        self._tokens[req_id] = self._allowed[module_id]
        self._starting[req_id] = self._runtime.instantiate(
            req_id=req_id, prompt=[], module_id=module_id, module_arg=arg
        )
        if self._choose.random() < 0.05:
            self._runtime.discard(req_id)
            self.outcomes["discarded"] += 1
            del self._starting[req_id]

    def _bind(self) -> None:
        """Return the guests that are up. Wait for a guest when nothing else is to do."""
        if self._starting and not self._running:
            next(iter(self._starting.values())).exception(_PATIENCE_S)
        for req_id, future in list(self._starting.items()):
            if not future.done():
                continue
            del self._starting[req_id]
            if error := future.exception():
                self._note(str(error))
                continue
            seq_id = self._new_id()
            try:
                pre = self._runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(seq_id, req_id)], freed=[])
            except AiciError as refusal:  # killed before the bind
                self._note(refusal.message)
                continue
            self._running[req_id] = [seq_id]
            self._note(pre.pre[seq_id].error)

    def _step(self) -> None:
        ops: list[MidOp] = []
        tokens: list[int] = []
        for req_id, seq_ids in self._running.items():
            ops += [MidOp(seq_id) for seq_id in seq_ids]
            while self._choose.random() < 0.2 and len(seq_ids) < 6:
                child = self._new_id()
                ops.append(MidOp(child, self._choose.choice(seq_ids)))
                seq_ids.append(child)
            tokens += [self._tokens[req_id]] * (len(ops) - len(tokens))
        if ops:
            self._runtime.send_mid(ops)
            seqs = self._runtime.recv_mid().seqs
            rows = self._runtime.mask_rows(len(ops))
            for row, (op, allowed) in enumerate(zip(ops, tokens, strict=True)):
                if seqs[op.id].error or seqs[op.id].result is not None:
                    self._note(seqs[op.id].error or "late")
                else:
                    self._note("" if rows[row, 0] == allowed else f"mask {rows[row, 0]:b}, not {allowed:b}")
        freed = []
        for req_id, seq_ids in list(self._running.items()):
            if self._choose.random() < 0.5:
                freed += self._running.pop(req_id)
                self.outcomes["ended"] += 1
            elif len(seq_ids) > 1 and self._choose.random() < 0.3:
                freed.append(seq_ids.pop(self._choose.randrange(len(seq_ids))))
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=freed)

    def _kill(self) -> None:
        if self._choose.random() < 0.05 and time.monotonic() > self._part_dies_at:
            self._part_dies_at = time.monotonic() + _PART_DIES_EVERY_S
            names = {"aicirt-spawner", "aicirt-side"}
        else:
            names = {"aicirt-seq", "aicirt-comms", TEMPLATE, POOL}
        victims = [(pid, name) for pid, name in members(self._runtime.pid, "RSD").items() if name in names]
        if victims:
            pid, name = self._choose.choice(victims)
            signal_to(pid, signal.SIGKILL)
            self.killed[name] += 1
            self._victims.add(pid)

    def _stop(self) -> None:
        found = list(members(self._runtime.pid, "RSD").items())
        workers = [(pid, name) for pid, name in found if name in ("aicirt-seq", POOL)]
        for pid, name in {self._choose.choice(found), *self._choose.sample(workers, min(2, len(workers)))}:
            signal_to(pid, signal.SIGSTOP)
            self.killed[name] += 1
            seconds = _STOP_MAX_S * self._choose.random() ** 4
            threading.Timer(
                seconds, signal_to, (pid, signal.SIGCONT)
            ).start()  # a request may wait for the killed process

    def _new_id(self) -> SeqId:
        self._next_seq += 1
        return SeqId(self._next_seq)

    def _note(self, error: str) -> None:
        """Return the beginning of an error, without numbers."""
        text = error.splitlines()[0] if error else "well"
        self.outcomes[re.sub(r"\d+", "#", text)[:60]] += 1


def signal_to(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def faults(storm: Storm, *, stops: bool) -> list[str]:
    """Return the outcomes of requests not hit by a kill."""
    if stops:
        return [outcome for outcome in storm.outcomes if not outcome.startswith(_OF_GUESTS)]
    return [outcome for outcome in storm.outcomes if outcome.startswith("mask")]


def run(
    runtime: Runtime, folder: Path, *, num_requests: int, seed: int, stops: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Run a tenth of the requests first, to bring everything to its steady size."""
    storm = Storm(runtime, seed, stops=stops)
    storm.run(max(50, num_requests // 10))
    before = holdings(runtime, folder)
    started = time.monotonic()
    storm.run(num_requests)
    seconds = time.monotonic() - started
    after = holdings(runtime, folder)
    report = {
        "requests": num_requests,
        "seconds": round(seconds, 1),
        "outcomes": dict(storm.outcomes.most_common()),
        "killed": dict(storm.killed),
        "before": asdict(before),
        "after": asdict(after),
    }
    return report, leaks(before, after) + faults(storm, stops=stops)


def config(
    tokenizer_dir: Path, cache_dir: Path, *, futex: bool, pool: bool = False, stops: bool = False
) -> RuntimeConfig:
    return RuntimeConfig(
        tokenizer=tokenizer_dir,
        cache_dir=cache_dir,
        max_pre_step_time_ms=50,
        max_step_time_ms=50,
        max_init_time_ms=20_000 if stops else 2000,
        late_steps=1000 if stops else 2,
        sync="futex" if futex else "semaphore",
        # Without templates: guests in pools never touch those of guests that were too many at once.
        extra_args=("--placement=pool", "--templates=0") if pool else (),
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--futex", action="store_true")
    parser.add_argument("--pool", action="store_true")
    parser.add_argument("--stop", action="store_true")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        vocabulary = tokenizer.byte_level(Path(folder))
        with Runtime(config(vocabulary, cache, futex=flags.futex, pool=flags.pool, stops=flags.stop)) as runtime:
            runtime.wait_ready()
            report, leaked = run(runtime, cache, num_requests=flags.n, seed=flags.seed, stops=flags.stop)
    print(json.dumps(report | {"leaked": leaked}, indent=1))
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
