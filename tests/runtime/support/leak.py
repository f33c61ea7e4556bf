"""Thousands of requests with forks and kills at random against one runtime, and what it holds before and after.

    python -m tests.runtime.support.leak -n 10000 [--seed N] [--futex] [--pool]

Prints what was done and what is left, as JSON; exits with 1 when something has leaked. It knows no names of parts but
those of the processes, and looks at these from outside.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aici_runtime.client import Runtime
from aici_runtime.config import RuntimeConfig
from aici_runtime.errors import AiciError
from aici_runtime.ids import SeqId
from aici_runtime.processes.slots import NUM_SLOTS, SLOT_BYTES, used_slots
from aici_runtime.wire import MidOp, PreOp
from tests.runtime.support import tokenizer, wat

if TYPE_CHECKING:
    from concurrent.futures import Future

PARTS = ("aicirt", "aicirt-forker", "aicirt-side")
TEMPLATE = "aicirt-template"
POOL = "aicirt-pool"
_PATIENCE_S = 60.0
_AT_ONCE = 12
_PART_DIES_EVERY_S = 3.0
"""A runtime whose parts die five times within ten seconds gives up, as it should."""

_GROWTH_KIB = 8 * 1024
"""Of a part's memory, for what allocators keep."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Memory and descriptors by part, those for templates left out of the latter. What a part has of the first weighs
    less in `pss_kib` the more processes share it; `anonymous_kib` counts all that it has."""

    processes: dict[str, int]
    pss_kib: dict[str, int]
    anonymous_kib: dict[str, int]
    descriptors: dict[str, int]
    slots: int
    files: int
    shared: list[str]


def members(group: int, states: str = "RSDTtZ") -> dict[int, str]:
    """Processes of a process group, by pid, with their names; zombies too."""
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
    """Once nobody is left but those that stay."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = members(runtime.pid)
        slots = num_used_slots(runtime.pid) - list(found.values()).count(POOL)  # a pool has one itself
        if (slots == 0 and set(found.values()) <= {*PARTS, TEMPLATE, POOL}) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    parts = {name: pid for pid, name in found.items() if name in PARTS}
    # A template has a fork of its own ready, which the side process holds nothing for.
    templates = sum(name == TEMPLATE and found.get(_parent(pid)) != TEMPLATE for pid, name in found.items())
    descriptors = {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in parts.items()}
    descriptors["aicirt-side"] -= 2 * templates
    descriptors["aicirt"] -= list(found.values()).count(POOL)
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


def num_used_slots(pid: int) -> int:
    """Read in the memory of the stepper: its table is the one shared mapping of that size."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if 0 < end - begin - NUM_SLOTS * SLOT_BYTES < SLOT_BYTES and "rw-s" in line:
            with Path(f"/proc/{pid}/mem").open("rb") as memory:
                memory.seek(begin + NUM_SLOTS * SLOT_BYTES)
                return used_slots(memory.read(end - begin - NUM_SLOTS * SLOT_BYTES))
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


def _guests() -> list[bytes]:
    write = '{"WriteVar":{"name":"n","value":"00","op":"Append"}}'
    modules = [wat.Module() for _ in range(6)]
    return [
        wat.plain(),
        modules[0].build(mid=modules[0].store(write) + modules[0].answer(wat.SAMPLE)),
        modules[1].build(mid="(drop (memory.grow (i32.const 200)))" + modules[1].answer(wat.SAMPLE)),
        modules[2].build(mid=wat.TRAP),
        modules[3].build(create=wat.TRAP),
        modules[4].build(mid=wat.SPIN),
        modules[5].build(prompt="(call $exit (i32.const 1))"),
    ]


_ARGUMENTS = ("a", "b", "c")
_WEIGHTS = (40, 30, 10, 8, 5, 1, 5)


class Storm:
    """One engine: up to _AT_ONCE requests are under way."""

    def __init__(self, runtime: Runtime, seed: int) -> None:
        self._runtime = runtime
        self._choose = random.Random(seed)
        self._modules = [runtime.mk_module(wasm).module_id for wasm in _guests()]
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
                self._kill()
        self._touch_templates()

    def _touch_templates(self) -> None:
        """So that the side process finds those that were killed. Whoever is killed may answer for some time."""
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
        module_id = self._choose.choices(self._modules, _WEIGHTS)[0]
        arg = self._choose.choice(_ARGUMENTS)
        self._starting[req_id] = self._runtime.instantiate(
            req_id=req_id, prompt=[], module_id=module_id, module_arg=arg
        )
        if self._choose.random() < 0.05:
            self._runtime.discard(req_id)
            self.outcomes["discarded"] += 1
            del self._starting[req_id]

    def _bind(self) -> None:
        """Those that are up. Waits for one when there is nothing else to do."""
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
            except AiciError as refusal:  # killed while nobody had bound it
                self._note(refusal.message)
                continue
            self._running[req_id] = [seq_id]
            self._note(pre.pre[seq_id].error)

    def _step(self) -> None:
        ops = []
        for seq_ids in self._running.values():
            ops += [MidOp(seq_id) for seq_id in seq_ids]
            while self._choose.random() < 0.2 and len(seq_ids) < 6:
                child = self._new_id()
                ops.append(MidOp(child, self._choose.choice(seq_ids)))
                seq_ids.append(child)
        if ops:
            self._runtime.send_mid(ops)
            for entry in self._runtime.recv_mid().seqs.values():
                self._note(entry.error)
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
            names = {"aicirt-forker", "aicirt-side"}
        else:
            names = {"aicirt-seq", "aicirt-comms", TEMPLATE, POOL}
        victims = [(pid, name) for pid, name in members(self._runtime.pid, "RSD").items() if name in names]
        if victims:
            pid, name = self._choose.choice(victims)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed[name] += 1
            self._victims.add(pid)

    def _new_id(self) -> SeqId:
        self._next_seq += 1
        return SeqId(self._next_seq)

    def _note(self, error: str) -> None:
        """By its beginning, numbers left out."""
        text = error.splitlines()[0] if error else "well"
        self.outcomes[re.sub(r"\d+", "#", text)[:60]] += 1


def run(runtime: Runtime, folder: Path, *, num_requests: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """A tenth of the requests first, which bring everything to the size that it is to keep."""
    storm = Storm(runtime, seed)
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
    return report, leaks(before, after)


def config(tokenizer_dir: Path, cache_dir: Path, *, futex: bool, pool: bool = False) -> RuntimeConfig:
    return RuntimeConfig(
        tokenizer=tokenizer_dir,
        cache_dir=cache_dir,
        max_pre_step_time_ms=50,
        max_step_time_ms=50,
        max_init_time_ms=2000,
        late_steps=2,
        sync="futex" if futex else "semaphore",
        extra_args=("--placement=pool",) if pool else (),
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--futex", action="store_true")
    parser.add_argument("--pool", action="store_true")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        with Runtime(config(tokenizer.byte_level(Path(folder)), cache, futex=flags.futex, pool=flags.pool)) as runtime:
            runtime.wait_ready()
            report, leaked = run(runtime, cache, num_requests=flags.n, seed=flags.seed)
    print(json.dumps(report | {"leaked": leaked}, indent=1))
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
