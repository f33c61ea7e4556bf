"""Guests that are late at random, and engines that react in any way, inside the protocol or not."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.support import puppet
from tests.wire.support.engine import Binary, Engine, Version, data, fresh
from tests.wire.support.fuzzing import Arena, Fuzz
from tests.wire.support.guests import Guests, masks
from tests.wire.support.shapes import check_entry

LATE = "⏲ timeout [deadline: "
TURNS = st.sampled_from([1, 1, 10_000_000, 40_000_000, 200_000_000, 0])
"""Iterations of a loop: about a million per millisecond; 0 means forever."""

WHAT = st.sampled_from(["wait", "wait", "wait", "sample", "skip", "free", "fork"])


def arena_of(aicirt: Binary, version: Version, fuzz: Fuzz, *flags: str) -> Iterator[Arena]:
    with Engine(aicirt, version, extra=(*flags, *aicirt.few_templates())) as engine:
        yield Arena(engine, fuzz)


@pytest.fixture(scope="module")
def late(aicirt: Binary, fuzz: Fuzz) -> Iterator[Arena]:
    """Protocol v2: steps of 25 ms and ten rounds."""
    yield from arena_of(aicirt, "v2", fuzz)


@pytest.fixture(scope="module")
def early(aicirt: Binary, fuzz: Fuzz) -> Iterator[Arena]:
    """Protocol v1: upstream kills a late guest at once; our runtime can wait for a second."""
    if not aicirt.few_templates():
        pytest.skip("it has no flag for that")
    yield from arena_of(aicirt, "v1", fuzz, "--wasm-max-step-time=25", "--wasm-max-timeout-steps=40")


def test_an_engine_of_the_earlier_protocol_waits(early: Arena) -> None:
    """The engine follows the answers and need not know of lateness."""

    @early.fuzz.settings(few=6)
    @given(turns=st.lists(st.lists(TURNS, min_size=1, max_size=6), min_size=1, max_size=3), steps=st.integers(2, 12))
    def run(turns: list[list[int]], steps: int) -> None:
        live = {}
        for token, each in enumerate(turns):
            callbacks = {
                name: {k: puppet.spin(n) + usual for k, n in enumerate(each[at::3] or [1])}
                for at, (name, usual) in enumerate(
                    (("mid", puppet.allow(token) + puppet.SAMPLE), ("pre", puppet.PRE_GO), ("post", puppet.NO_STOP))
                )
            }
            live[fresh()] = (token, early.guests.request(**callbacks))
        waits(early, live, steps)
        early.guests.free(*live)
        early.engine.is_well()

    run()
    early.check_leaks()


def waits(arena: Arena, live: dict[int, tuple[int, str]], steps: int) -> None:
    pre_ops = [{"id": seq_id, "req_id": req_id} for seq_id, (_, req_id) in live.items()]
    post_ops: list[dict[str, Any]] = []
    for _ in range(steps):
        pre = arena.guests.post_pre(pre_ops=pre_ops, post_ops=post_ops)["pre_seqs"]
        assert all(entry["error"] == "" or entry["error"].startswith("Worker: timeout") for entry in pre.values()), pre
        running = [s for s in live if pre[str(s)]["error"] == "" and not pre[str(s)]["result"]["suspend"]]
        arena.fuzz.done["late"] += len(live) - len(running)
        reply = data(arena.guests.try_step([{"id": seq_id} for seq_id in running]))
        pre_ops, post_ops = [], []
        for row, seq_id in enumerate(running):
            entry = reply["seqs"][str(seq_id)]
            if entry["error"] == "" and entry["result"] is None:
                assert masks(arena.engine, reply, entry, row) == [{live[seq_id][0]}]
                post_ops.append({"id": seq_id, "tokens": [1]})
            elif entry["error"] == "":
                assert (entry["result"]["backtrack"], entry["result"]["ff_tokens"], entry["logs"]) == (1, [], "")
                post_ops.append({"id": seq_id, "tokens": [], "backtrack": 1})
            else:
                assert entry["error"].startswith("Worker: timeout"), entry


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
    """Guests whose callbacks take a given number of turns. `is_late`: from the latest response."""

    def __init__(self, guests: Guests, turns: list[list[int]]) -> None:
        self.guests = guests
        self.ids: list[int] = []
        self.num_late = 0
        self._late: set[int] = set()
        self._unbound: dict[int, str] = {}
        self._token: dict[int, int] = {}  # the token allowed by the guest, and by its forks
        for each in turns:
            seq_id = fresh()
            own = puppet.allow(len(self.ids)) + puppet.branches(puppet.masked())
            self._unbound[seq_id] = guests.request(mid={k: puppet.spin(n) + own for k, n in enumerate(each)})
            self._token[seq_id] = len(self.ids)
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
                self._token[self.ids[-1]] = self._token[seq_id]
                ops += [{"id": seq_id}, {"id": self.ids[-1], "clone_id": seq_id, "clone_idx": 1}]
            elif does == "sample":
                ops.append({"id": seq_id, "sampled": 1, "tokens": [1]})
                told_late |= seq_id in self._late
            elif does != "skip":
                ops.append({"id": seq_id})
        response = self.guests.try_step(ops, freed)
        if response["type"] == "error":
            assert told_late, response
            for op in ops:  # nothing changes, except that the sequences are gone
                if op.get("clone_id") is not None:
                    self.ids.remove(op["id"])
                elif "req_id" in op:
                    self._unbound[op["id"]] = op["req_id"]
            return
        seqs = {int(key): entry for key, entry in response["data"]["seqs"].items()}
        assert set(seqs) == {op["id"] for op in ops}
        for seq_id, entry in seqs.items():
            self._check(seq_id, entry, masks(self.guests.engine, response["data"], entry, 0))
        self.ids = [seq_id for seq_id in self.ids if seq_id not in freed]

    def _check(self, seq_id: int, entry: Any, allowed: list[set[int]]) -> None:
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
            assert allowed == [{self._token[seq_id]}]
            self._late.discard(seq_id)
