"""Mask rows of protocol v2: the row of a late guest belongs to the guest until the answer or the guest's end."""

import base64
import hashlib
import os
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.runtime.support import scripted
from tests.runtime.support.leak import used_slots
from tests.runtime.support.raw import RawEngine
from tests.runtime.support.scripted import Answer
from tests.support.processes import command, descendants, wait_until

LIMITS = ("--wasm-max-step-time=500", "--templates=0", "--bias-dtype=bool", "--cap-fork")


class Engine:
    """A runtime with guests that allow given tokens, per branch, at every step."""

    def __init__(self, raw: RawEngine) -> None:
        self.raw = raw

    def process(self, name: str) -> int:
        (pid,) = (pid for pid in descendants(self.raw.process.pid) if command(pid) == name)
        return pid

    def start(self, seq_id: int, *words: int) -> dict[str, object]:
        """Return the op of the first step. `words`: the first word of every mask."""
        wasm = scripted.abi_v2()
        self.raw.side(op="mk_module", binary=base64.b64encode(wasm).decode())
        masks = [{"sample_mask": number, "temperature": None, "splices": []} for number in range(1, len(words) + 1)]
        request = {
            "prompt": [1],
            "module_id": hashlib.sha256(wasm).hexdigest(),
            "module_arg": scripted.argument([Answer({"branches": masks}, words)] * 3),
        }
        answer = self.raw.side(op="instantiate", req_id=f"r{seq_id}", **request)
        assert answer["type"] == "ok", answer
        return {"id": seq_id, "req_id": f"r{seq_id}", "backtrack": 0, "tokens": [], "sampled": None}

    def step(self, *ops: dict[str, object], freed: Sequence[int] = ()) -> dict[int, list[tuple[int, int]]]:
        """Run a step. Return the mask row and the first word of every mask, by sequence."""
        data = self.raw.call(op="mid_process", ops=ops, freed=freed)["data"]

        def word(slot: int) -> int:
            start = data["first_mask_byte_offset"] + slot * data["mask_num_bytes"]
            return int(struct.unpack_from("<I", self.raw.bin, start)[0])

        def masks(answer: dict[str, Any]) -> list[tuple[int, int]]:
            slots = [branch["sample_mask"] for branch in answer["result"]["branches"]]
            return [(slot, word(slot)) for slot in slots if slot is not None]

        return {int(number): masks(answer) for number, answer in data["seqs"].items()}


@contextmanager
def engine(byte_level: Path, cache_dir: Path, *flags: str) -> Iterator[Engine]:
    raw = RawEngine(byte_level, cache_dir, *LIMITS, *flags)
    try:
        yield Engine(raw)
    finally:
        raw.close()


def goes_on(seq_id: int) -> dict[str, object]:
    return {"id": seq_id, "backtrack": 0, "tokens": [2], "sampled": 2}


def test_masks_of_one_guest_beside_a_late_one(byte_level: Path, cache_dir: Path) -> None:
    with engine(byte_level, cache_dir) as it:
        assert it.step(it.start(1, 2)) == {1: [(0, 2)]}
        os.kill(it.process("aicirt-seq"), signal.SIGSTOP)
        assert it.step(goes_on(1)) == {1: []}
        found = it.step(it.start(2, 4, 8), it.start(3, 16))
        assert {seq_id: [word for _, word in masks] for seq_id, masks in found.items()} == {2: [4, 8], 3: [16]}


def test_a_late_guest_that_leaves_its_pool(byte_level: Path, cache_dir: Path) -> None:
    with engine(byte_level, cache_dir, "--placement=pool", "--pool-size=1") as it:
        it.step(it.start(1, 2))
        pool = it.process("aicirt-pool")
        os.kill(pool, signal.SIGSTOP)
        assert it.step(goes_on(1), freed=[1]) == {1: []}
        os.kill(pool, signal.SIGCONT)
        assert wait_until(lambda: used_slots(it.raw.process.pid) == 1, 10)  # the slot of the pool
        assert it.step(it.start(2, 4)) == {2: [(0, 4)]}
