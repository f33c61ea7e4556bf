"""Guests that are late at random, and engines that do with them whatever they like, within the protocol or not."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.support import puppet
from tests.wire.support.engine import Binary, Engine, Version, fresh
from tests.wire.support.fuzzing import Arena, Fuzz
from tests.wire.support.guests import Guests
from tests.wire.support.shapes import check_entry

VERSIONS = ("head",)
LATE = "⏲ timeout [deadline: "
TURNS = st.sampled_from([1, 1, 10_000_000, 40_000_000, 200_000_000, 0])
"""Of a loop: a millisecond for each million or so; 0 for ever."""

WHAT = st.sampled_from(["wait", "wait", "wait", "sample", "skip", "free", "fork"])


@pytest.fixture(scope="module")
def late(aicirt: Binary, version: Version, fuzz: Fuzz) -> Iterator[Arena]:
    """With a step of 25 ms and ten rounds."""
    with Engine(aicirt, version, extra=aicirt.few_templates()) as engine:
        yield Arena(engine, fuzz)


def test_whoever_waits_for_whom(late: Arena) -> None:
    @late.fuzz.settings(few=8)
    @given(
        turns=st.lists(st.lists(TURNS, min_size=1, max_size=4), min_size=1, max_size=3),
        steps=st.lists(st.lists(WHAT, min_size=6, max_size=6), min_size=3, max_size=14),
    )
    def run(turns: list[list[int]], steps: list[list[str]]) -> None:
        crowd = Crowd(late.guests, turns)
        for step in steps:
            crowd.step(step)
        late.fuzz.done["late"] += crowd.num_late
        late.guests.free(*crowd.ids)
        late.engine.is_well()

    run()
    late.check_leaks()


class Crowd:
    """Guests of which each callback takes as many turns as it is told. `is_late` by the latest response."""

    def __init__(self, guests: Guests, turns: list[list[int]]) -> None:
        self.guests = guests
        self.ids: list[int] = []
        self.num_late = 0
        self._late: set[int] = set()
        self._unbound = {}
        for each in turns:
            seq_id = fresh()
            mid = {k: puppet.spin(n) + puppet.DEFAULTS["head"]["mid"] for k, n in enumerate(each)}
            self._unbound[seq_id] = guests.request(mid=mid)
            self.ids.append(seq_id)

    def step(self, what: list[str]) -> None:
        ops: list[dict[str, Any]] = []
        freed, told_late = [], False
        for seq_id, does in zip(list(self.ids), what, strict=False):
            if seq_id in self._unbound:
                ops.append({"id": seq_id, "req_id": self._unbound.pop(seq_id)})
            elif does == "free":
                freed.append(seq_id)
                ops.append({"id": seq_id})
            elif does == "fork" and len(self.ids) < 6:
                self.ids.append(fresh())
                ops += [{"id": seq_id}, {"id": self.ids[-1], "clone_id": seq_id, "clone_idx": 1}]
            elif does == "sample":
                ops.append({"id": seq_id, "sampled": 1, "tokens": [1]})
                told_late |= seq_id in self._late
            elif does != "skip":
                ops.append({"id": seq_id})
        response = self.guests.try_step(ops, freed)
        if response["type"] == "error":
            assert told_late, response
            for op in ops:  # nothing has changed, but that these are not there
                if op.get("clone_id") is not None:
                    self.ids.remove(op["id"])
                elif "req_id" in op:
                    self._unbound[op["id"]] = op["req_id"]
            return
        seqs = {int(key): entry for key, entry in response["data"]["seqs"].items()}
        assert set(seqs) == {op["id"] for op in ops}
        for seq_id, entry in seqs.items():
            self._check(seq_id, entry)
        self.ids = [seq_id for seq_id in self.ids if seq_id not in freed]

    def _check(self, seq_id: int, entry: Any) -> None:
        result = check_entry(entry)
        if entry["error"]:
            assert result is None
            assert entry["error"].startswith("Worker: "), entry
            self._late.discard(seq_id)
        elif entry["logs"].startswith(LATE):
            assert result["branches"][0]["sample_mask"] is None
            self._late.add(seq_id)
            self.num_late += 1
        else:
            assert [type(branch["sample_mask"]) for branch in result["branches"]] == [int], entry
            self._late.discard(seq_id)
