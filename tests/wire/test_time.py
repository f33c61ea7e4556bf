"""Time limits: which guest is late, what the engine is told, and that other guests are unaffected."""

from typing import Any

import pytest

from tests.wire.support import puppet
from tests.wire.support.engine import Binary, Engine, Version, error, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.puppet import branches, masked, spin, when

SPLICE = {"when_sampled": [], "backtrack": 0, "ff_tokens": []}
NOOP = {"branches": [{"sample_mask": None, "temperature": None, "splices": [SPLICE]}]}
GO = '{"WriteVar":{"name":"go","value":"","op":"Set","when_version_is":null}}'


def test_instantiate(aicirt: Binary, version: Version) -> None:
    with Engine(aicirt, version, extra=("--wasm-max-init-time=700",)) as engine:
        guests = Guests(engine)
        assert "timeout" in error(guests.try_instantiate(f"r{fresh()}", prompt=spin()))
        assert guests.request()
        engine.is_well()


@pytest.fixture(scope="module")
def v1(aicirt: Binary) -> Any:
    with Engine(aicirt, "v1", extra=("--wasm-max-pre-step-time=400", "--wasm-max-step-time=400")) as engine:
        yield Guests(engine)


class TestDoc:
    def test_a_runaway_in_mid(self, v1: Guests) -> None:
        runaway, good = v1.bind(mid=spin()), v1.bind()
        seqs = v1.step([{"id": runaway}, {"id": good}])
        assert seqs[runaway]["error"].startswith("Worker: timeout")
        assert seqs[runaway]["result"] is None
        assert seqs[good]["error"] == ""
        assert v1.mid(runaway)["error"]
        v1.free(runaway, good)
        v1.engine.is_well()

    def test_a_runaway_in_pre(self, v1: Guests) -> None:
        runaway, good, req_id = fresh(), v1.bind(), v1.request(pre=spin())
        seqs = v1.post_pre(pre_ops=[{"id": runaway, "req_id": req_id}])["pre_seqs"]
        assert seqs[str(runaway)]["error"].startswith("Worker: timeout")
        assert seqs[str(runaway)]["result"] is None
        assert seqs[str(good)]["error"] == ""
        v1.free(runaway, good)
        v1.engine.is_well()

    def test_a_runaway_in_post(self, v1: Guests) -> None:
        runaway, good = v1.bind(post=spin()), v1.bind()
        reply = v1.post_pre(post_ops=[{"id": runaway, "tokens": [1]}], freed=[runaway])
        for entry in (reply["post_seqs"][str(runaway)], reply["pre_seqs"][str(runaway)]):
            assert entry["error"].startswith("Worker: timeout")
            assert entry["result"] is None
        assert reply["pre_seqs"][str(good)]["error"] == ""
        v1.free(good)
        v1.engine.is_well()


@pytest.fixture(scope="module")
def v2(aicirt: Binary) -> Any:
    """With upstream's limits of 25 ms and ten rounds. A guest made late by a busy machine has its rounds too."""
    with Engine(aicirt, "v2") as engine:
        yield Guests(engine)


class TestHead:
    def test_ten_rounds_and_the_end(self, v2: Guests) -> None:
        runaway, good = fresh(), v2.bind()
        ops: list[dict[str, Any]] = [{"id": runaway, "req_id": v2.request(mid=spin())}, {"id": good}]
        for k in range(1, 11):
            seqs = v2.step(ops)
            late = seqs[runaway]
            assert (late["error"], late["result"]) == ("", NOOP)
            assert late["logs"] == f"⏲ timeout [deadline: 25ms; step {k}/10]\n"
            assert seqs[good]["error"] == ""
            ops = [{"id": runaway}, {"id": good}]
        end = v2.step(ops)[runaway]
        assert end["error"].startswith("Worker: timeout")
        assert end["result"] is None
        v2.free(runaway, good)
        v2.engine.is_well()

    def test_the_answer_may_come_later(self, aicirt: Binary) -> None:
        """A fork waits for a variable that the other fork writes one step later. The waiting fork is not called
        again."""
        with Engine(aicirt, "v2", extra=("--wasm-max-timeout-steps=1000",)) as engine:
            guests, parent, child = Guests(engine), fresh(), fresh()
            answer = puppet.await_variable("go") + puppet.log("done") + puppet.allow(5) + branches(masked())
            later = when(child, answer) + when(parent, branches(puppet.NOOP))
            write = when(child, puppet.TRAP) + puppet.store(GO) + branches(puppet.NOOP)
            req_id = guests.request(mid={0: branches(*[puppet.NOOP] * 2), 1: later, 2: write})
            guests.step([{"id": parent, "req_id": req_id}])
            came = guests.step([{"id": parent}, {"id": child, "clone_id": parent, "clone_idx": 1}])[child]
            assert (came["result"], came["logs"]) == (NOOP, "⏲ timeout [deadline: 25ms; step 1/1000]\n")
            while came["logs"].startswith("⏲"):
                came = guests.step([{"id": parent}, {"id": child}])[child]
            assert (came["error"], came["logs"]) == ("", "done")
            assert came["result"]["branches"][0]["sample_mask"] is not None

    def test_who_is_late_is_not_told_more(self, v2: Guests) -> None:
        """Upstream's runtime aborts if an engine appends to a sequence whose guest still computes."""
        runaway = fresh()
        v2.step([{"id": runaway, "req_id": v2.request(mid=spin())}])
        response = v2.try_step([{"id": runaway, "sampled": 1, "tokens": [1]}])
        assert response["type"] == "error" or response["data"]["seqs"][str(runaway)]["error"]
        v2.free(runaway)
        v2.engine.is_well()

    def test_it_needs_no_capability(self, aicirt: Binary) -> None:
        """Being late is answered by an empty splice, although a splice of the guest itself needs a capability."""
        with Engine(aicirt, "v2", capabilities=()) as engine:
            guests, runaway = Guests(engine), fresh()
            late = guests.step([{"id": runaway, "req_id": guests.request(mid=spin())}])[runaway]
            assert (late["error"], late["result"]) == ("", NOOP)

    def test_who_is_late_can_be_freed(self, v2: Guests) -> None:
        runaway = fresh()
        v2.step([{"id": runaway, "req_id": v2.request(mid=spin())}])
        v2.free(runaway)
        reply = v2.try_step([{"id": runaway}])
        assert error(reply) == f"invalid id {runaway}"
