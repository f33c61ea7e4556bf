"""Random messages in random order. A model of the protocol predicts well-formed answers; every message is answered
once.

Malformed messages are mutations of well-formed messages, of plausible ids, and of nothing. `--fuzz N`: see conftest.py.
"""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.support import puppet
from tests.wire.support.engine import SIDES, Side, Sync, fresh
from tests.wire.support.fuzzing import Arena
from tests.wire.support.shapes import check_envelope, check_mid, check_post_pre

REQUESTS = tuple(f"wild{k}" for k in range(3))
SEQUENCES = (0, 1, 2, 3, 2**31, 2**32 - 1)
"""Ids in malformed messages. Well-formed messages use other ids, so the model knows the state of theirs."""

MODULE = "the module"
TEXTS = st.text(max_size=8)
NUMBERS = st.one_of(
    st.integers(-2, 3), st.sampled_from([2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**30]), st.floats(allow_nan=False)
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
IDS = st.one_of(st.sampled_from(SEQUENCES), st.sampled_from(SEQUENCES), VALUES)
TOKENS = st.lists(st.integers(-1, 300), max_size=3) | VALUES
OP = st.fixed_dictionaries(
    {"id": IDS},
    optional={
        "req_id": st.sampled_from(REQUESTS) | VALUES,
        "tokens": TOKENS,
        "backtrack": NUMBERS | VALUES,
        "sampled": NUMBERS | VALUES,
        "clone_id": IDS,
        "clone_idx": NUMBERS | VALUES,
    },
)
OP_LISTS = st.lists(OP | VALUES, max_size=3) | VALUES
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "ops": OP_LISTS,
    "post_ops": OP_LISTS,
    "pre_ops": OP_LISTS,
    "freed": st.lists(IDS, max_size=3) | VALUES,
    "req_id": st.sampled_from(REQUESTS) | VALUES,
    "prompt": TOKENS,
    "module_id": st.just(MODULE) | st.just(MODULE) | VALUES,
    "module_arg": VALUES,
    "binary": st.sampled_from(["", "QUJD"]) | VALUES,
    "tags": st.lists(TEXTS, max_size=2) | VALUES,
    "$rid": TEXTS | VALUES,
    "$auth": st.fixed_dictionaries({"user": TEXTS, "is_admin": st.booleans()}) | VALUES,
}
NEEDED = {
    "post_pre_process": ("post_ops", "pre_ops", "freed"),
    "mid_process": ("ops", "freed"),
    "instantiate": ("req_id", "prompt", "module_id"),
    "mk_module": ("binary",),
    "set_tags": ("module_id", "tags"),
}


def _message(op: str) -> st.SearchStrategy[dict[str, Any]]:
    needed = {name: FIELDS[name] for name in NEEDED.get(op, ())}
    others = {name: values for name, values in FIELDS.items() if name not in needed}
    named = {"op": st.just(op)}
    return st.fixed_dictionaries(named | needed, optional=others) | st.fixed_dictionaries(named, optional=FIELDS)


MALFORMED = st.one_of(*map(_message, (*NEEDED, "ping", "tokens", "get_tags", "nope")))


@st.composite
def _noise(draw: st.DrawFn) -> bytes:
    """A message with bytes removed or replaced."""
    text = json.dumps(draw(MALFORMED)).encode()
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 4)) :]


SEEDS = st.integers(0, 2**32)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["instantiate", "bind"]), st.none(), st.none()),
    st.tuples(st.sampled_from(["step", "post_pre", "clone", "free"]), SEEDS, st.none()),
    st.tuples(st.just("ask"), MALFORMED, st.sampled_from(SIDES)),
    st.tuples(st.just("ask"), st.one_of(st.binary(min_size=1, max_size=40), _noise()), st.sampled_from(SIDES)),
)


class Model:
    """The conversation of one example: instantiated requests and live sequences."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.guests, self.engine = arena, arena.guests, arena.engine
        self.is_v2 = arena.version == "v2"
        self.unbound: list[str] = []
        self.live: dict[int, str] = {}

    def ask(self, message: bytes | dict[str, Any], side: Side = "") -> Any:
        """The answer comes exactly once, in the right shape, and the channel is unchanged."""
        if isinstance(message, dict) and message.get("module_id") == MODULE:
            message = message | {"module_id": self.engine.upload(puppet.module(self.engine.version))}
        response = self.engine.ask(message, side)
        if isinstance(message, dict):
            rid = message.get("$rid")
            check_envelope(response, rid if isinstance(rid, str) else None)
        else:  # the remainder may contain a request id
            check_envelope(response, response.get("$rid"))
        self.arena.fuzz.done["messages"] += 1
        assert self.engine.ask({"op": "ping", "$rid": "p"}, side) == {"type": "ok", "data": {"pong": 1}, "$rid": "p"}
        return response

    # Well-formed messages and their answers.

    def instantiate(self) -> None:
        req_id = f"r{fresh()}"
        entry = self.guests.instantiate(req_id)
        assert entry.get("error", "") == ""
        self.unbound.append(req_id)

    def bind(self) -> None:
        if self.unbound:
            seq_id, req_id = fresh(), self.unbound.pop()
            if self.is_v2:
                assert self.guests.step([{"id": seq_id, "req_id": req_id}])[seq_id]["error"] == ""
            else:
                data = self.guests.post_pre(pre_ops=[{"id": seq_id, "req_id": req_id}])
                assert data["pre_seqs"][str(seq_id)]["error"] == ""
            self.live[seq_id] = req_id

    def step(self, chosen: random.Random) -> None:
        ops = [{"id": seq_id} for seq_id in self.live if chosen.random() < 0.7] + [self.arena.op()]
        chosen.shuffle(ops)
        reply = self.guests.try_step(ops)
        assert reply["type"] == "ok", reply
        check_mid(self.arena.version, reply["data"], len(ops))
        self.arena.check_neighbour(reply["data"])
        assert set(reply["data"]["seqs"]) == {str(op["id"]) for op in ops}
        assert not any(entry["error"] for entry in reply["data"]["seqs"].values()), reply

    def post_pre(self, chosen: random.Random) -> None:
        if self.is_v2:
            return
        ops = [{"id": seq_id, "tokens": [1], "backtrack": 0} for seq_id in self.live if chosen.random() < 0.5]
        data = self.guests.post_pre(post_ops=ops)
        check_post_pre(data)
        assert set(data["post_seqs"]) == {str(op["id"]) for op in ops}
        assert set(data["pre_seqs"]) >= {str(seq_id) for seq_id in self.live}

    def clone(self, chosen: random.Random) -> None:
        if self.live:
            parent, child = chosen.choice(list(self.live)), fresh()
            family = sum(req_id == self.live[parent] for req_id in self.live.values())
            op = {"id": child, "clone_id": parent} | ({"clone_idx": 1} if self.is_v2 else {})
            entry = self.guests.step([{"id": parent}, op])[child]
            if family < 16 and not entry["error"]:
                self.live[child] = self.live[parent]
            else:
                assert entry["error"] == "Worker: too many forks (max=16)"
                self.guests.free(child)

    def free(self, chosen: random.Random) -> None:
        if self.live:
            seq_id = chosen.choice(list(self.live))
            del self.live[seq_id]
            self.guests.free(seq_id)

    def end(self) -> None:
        """Free everything of this example, including whatever the runtime made of malformed messages."""
        for req_id in [*self.unbound, *REQUESTS]:
            seq_id = fresh()
            bound = {"id": seq_id, "req_id": req_id}
            response = self.guests.try_step([bound]) if self.is_v2 else self.guests.try_post_pre(pre_ops=[bound])
            if response["type"] == "ok":
                self.guests.free(seq_id)
        self.guests.free(*self.live, *SEQUENCES)
        if not self.is_v2:
            assert set(self.guests.post_pre()["pre_seqs"]) == {str(self.arena.neighbour)}
        self.arena.check_neighbour()


@pytest.fixture(scope="module", params=["sem", "futex"])
def sync(request: pytest.FixtureRequest) -> Sync:
    chosen: Sync = request.param
    return chosen


def test_every_message_is_answered_once(arena: Arena) -> None:
    @arena.fuzz.settings(few=30)
    @given(actions=st.lists(ACTIONS, min_size=5, max_size=40))
    def run(actions: list[tuple[str, Any, Any]]) -> None:
        model = Model(arena)
        for name, what, side in actions:
            if name == "ask":
                model.ask(what, side)
            elif what is None:
                getattr(model, name)()
            else:
                getattr(model, name)(random.Random(what))
        model.end()

    run()
    arena.check_leaks()
