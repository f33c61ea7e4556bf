"""Random guests: hypothesis chooses what every callback returns, points to, stores and logs.

`--fuzz N` runs N random guests; without it the same few guests every time.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.wire.support import puppet
from tests.wire.support.engine import Version, data, fresh
from tests.wire.support.fuzzing import Arena
from tests.wire.support.guests import masks
from tests.wire.support.puppet import MASK, instruction
from tests.wire.support.shapes import VOCAB, check_entry, check_mid, check_post_pre

POINTERS = st.one_of(
    st.sampled_from([0, 1, 0x400, 0x8000, 0x18000, 0x40000, puppet.NUM_PAGES << 16, (puppet.NUM_PAGES << 16) - 1]),
    st.sampled_from([0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF0000, 1 << 26]),
    st.integers(0, 2**32 - 1),
)
LENGTHS = st.one_of(st.sampled_from([0, 1, 4, 33, 36, 40, 65_536, 0x7FFFFFFF, 0xFFFFFFFF]), st.integers(0, 2**32 - 1))
TOKENS = st.one_of(st.integers(0, VOCAB - 1), st.sampled_from([-1, VOCAB, 2**31, 2**32, 2**64]))
TOKEN_LISTS: st.SearchStrategy[Any] = st.one_of(st.lists(TOKENS, max_size=5), st.none(), st.integers(), st.just([[]]))
COUNTS = st.one_of(st.integers(0, 3), st.sampled_from([-1, 16, 17, 2**32 - 1, 2**32, 2**64, 1.5, None, "1", True]))
TEXTS = st.text(max_size=20)
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)


def some_fields(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Usually all fields; sometimes a field is missing or of another type."""
    return st.fixed_dictionaries(fields) | st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})


class Offset(str):
    """Placeholder for the offset of a mask in a result."""


def render(value: Any) -> str:
    """JSON in which the guest replaces every `Offset`."""
    if isinstance(value, Offset):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{render(str(k))}:{render(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(render, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("@", "a")


SPLICES = some_fields(when_sampled=TOKEN_LISTS, backtrack=COUNTS, ff_tokens=TOKEN_LISTS)
MASKS = st.one_of(st.none(), st.sampled_from([Offset(MASK[0]), Offset(MASK[0]), Offset(MASK[1])]), COUNTS)
BRANCHES = some_fields(
    sample_mask=MASKS,
    temperature=st.one_of(st.none(), st.floats(), st.integers(-1, 2)),
    splices=st.lists(SPLICES, max_size=2),
)
RESULTS: dict[Version, dict[str, st.SearchStrategy[Any]]] = {
    "v1": {
        "prompt": st.just({}) | JUNK,
        "pre": some_fields(suspend=st.booleans(), num_forks=COUNTS, ff_tokens=TOKEN_LISTS) | JUNK,
        "mid": st.one_of(
            st.sampled_from(["Stop", {"SampleWithBias": {}}]),
            st.fixed_dictionaries({"Splice": some_fields(backtrack=COUNTS, ff_tokens=TOKEN_LISTS)}),
            JUNK,
        ),
        "post": some_fields(stop=st.booleans()) | JUNK,
    },
    "v2": {
        "prompt": some_fields(prompt=TOKEN_LISTS) | JUNK,
        "mid": some_fields(branches=st.lists(BRANCHES, max_size=3)) | JUNK,
    },
}
NAMES = st.sampled_from(["a", "b", "", "\u00fc"])
VALUES = st.one_of(st.sampled_from(["", "00", "6869", "FF", "0", "xx"]), st.binary(max_size=40).map(bytes.hex), JUNK)
COMMANDS = st.one_of(
    st.fixed_dictionaries({"ReadVar": some_fields(name=NAMES)}),
    st.fixed_dictionaries(
        {
            "WriteVar": some_fields(
                name=NAMES,
                value=VALUES,
                op=st.sampled_from(["Set", "Append"]),
                when_version_is=st.one_of(st.none(), st.integers(0, 3), COUNTS),
            )
        }
    ),
    JUNK,
)


def actions(version: Version) -> st.SearchStrategy[str]:
    """Actions of a guest before the answer."""
    wild = [
        st.builds(instruction, st.sampled_from(["L", "T", "K", "R", "a"]), POINTERS, LENGTHS),
        st.builds(instruction, st.just("E"), st.sampled_from([0, 1, 2, 3, 4, 5, 19, 20, 100, 2**32 - 1]), POINTERS),
        st.builds(instruction, st.just("w"), POINTERS, st.integers(0, 2**32 - 1)),
        st.builds(puppet.bias, POINTERS),
        st.sampled_from(
            [puppet.TRAP, puppet.STOP, puppet.RECURSE, instruction("y", 1), puppet.grow(1), puppet.grow(2000)]
        ),
    ]
    mild = [
        st.builds(puppet.log, TEXTS),
        st.builds(puppet.log_often, st.integers(1, 300), st.text(min_size=1, max_size=300)),
        st.builds(puppet.allow, *[st.integers(0, 300)] * 3),
        st.builds(puppet.allow, st.integers(0, VOCAB - 1)),
        st.builds(puppet.tokenize, TEXTS),
        st.builds(lambda command: puppet.store(render(command)), COMMANDS),
        st.sampled_from([puppet.dump(puppet.TRIE), puppet.echo(4), puppet.SEQ_ID, puppet.EOS, puppet.spin(10_000)]),
        st.builds(instruction, st.just("g"), st.integers(0, 3), POINTERS),
    ]
    if version == "v2":
        mild.append(st.builds(puppet.config, st.sampled_from(["fork", "backtrack", "ff_tokens", "x", ""])))
    return st.one_of(*mild, *mild, *wild)


def callbacks(version: Version) -> st.SearchStrategy[dict[str, Any]]:
    """Scripts by callback; the first call may differ from later calls."""
    bodies = {}
    for name, results in RESULTS[version].items():
        ends = st.builds(lambda result: puppet.answer(render(result)), results) | st.just("")
        usual = st.just(puppet.DEFAULTS[version][name])
        body = st.builds("{}{}".format, st.lists(actions(version), max_size=3).map("".join), usual | ends)
        bodies[name] = body | st.builds(lambda one, two: {0: one, 1: two}, usual, body)
    return st.fixed_dictionaries({}, optional=bodies)


@st.composite
def lives(draw: st.DrawFn, version: Version) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A guest, and the events of its sequence in every step."""
    tokens = st.lists(st.integers(0, VOCAB - 1), max_size=3)
    steps = st.fixed_dictionaries({"backtrack": st.integers(0, 3), "tokens": tokens, "forks": st.booleans()})
    return draw(callbacks(version)), draw(st.lists(steps, min_size=1, max_size=3))


def test_a_guest_harms_itself_alone(arena: Arena) -> None:
    """A guest behaves the same when started afresh, when made into a template, and when forked from the template."""

    @arena.fuzz.settings(few=40)
    @given(life=lives(arena.version))
    def run(life: Any) -> None:
        told = [Life(arena).live(*life) for _ in range(3)]
        shares = any(step["forks"] for step in life[1]) and "Var" in told[0]  # the order of two forks is undefined
        if not shares and not any("timeout" in one for one in told):  # the machine may be busy
            assert told[1:] == told[:1] * 2
        arena.engine.is_well()

    run()
    arena.check_leaks()


class Life:
    """Run a guest and its forks from start to end beside a neighbour, which must stay unaffected."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.guests = arena, arena.guests
        self.ids = [10**9 + fresh()]
        self.told: list[Any] = []

    def live(self, scripts: dict[str, Any], steps: list[dict[str, Any]]) -> str:
        """Return all answers of the runtime without times and sequence ids."""
        self.arena.fuzz.done["guests"] += 1
        if self._is_born(scripts):
            for number, step in enumerate(steps):
                self._step(number, step)
        self.guests.free(*self.ids)
        text = json.dumps(self.told)
        for number, seq_id in enumerate(self.ids):
            text = text.replace(str(seq_id), f"<{number}>")
        return text

    def _note(self, entry: Any) -> None:
        self.arena.fuzz.done["callbacks that failed" if entry.get("error") else "callbacks that went well"] += 1
        self.told.append({key: value for key, value in entry.items() if key != "micros"})

    def _is_born(self, scripts: dict[str, Any]) -> bool:
        req_id = f"r{fresh()}"
        bound = {"id": self.ids[0], "req_id": req_id}
        response = self.guests.try_instantiate(req_id, [1, 2], **scripts)
        if response["type"] == "error":
            self._note(response)
            self.arena.check_neighbour()
            return False
        self._note(response["data"])
        if not self.guests.is_v2:
            check_post_pre(reply := self.guests.post_pre(pre_ops=[bound]))
            self._note(reply["pre_seqs"][str(self.ids[0])])
            return True
        result = check_entry(response["data"])
        stepped = self.guests.try_step([bound, self.arena.op()])
        if response["data"]["error"]:  # the result stays for a while, but is useless
            assert stepped["type"] == "error" or stepped["data"]["seqs"][str(self.ids[0])]["error"]
            return False
        check_mid("v2", reply := data(stepped), 2)
        assert all(0 <= token < VOCAB for token in result["prompt"])
        self._note(reply["seqs"][str(self.ids[0])])
        return True

    def _step(self, number: int, step: dict[str, Any]) -> None:
        done = {"backtrack": step["backtrack"], "tokens": step["tokens"]}
        told = done | {"sampled": (step["tokens"] or [None])[0]} if self.guests.is_v2 else {}
        ops: list[dict[str, Any]] = [{"id": seq_id} | told for seq_id in self.ids]
        if step["forks"]:
            self.ids.append(10**9 + fresh())
            index = {"clone_idx": 1} if self.guests.is_v2 else {}
            ops.append({"id": self.ids[-1], "clone_id": self.ids[0]} | index | told)
        reply = data(self.guests.try_step([*ops, self.arena.op()]))
        check_mid(self.arena.version, reply, len(ops) + 1)
        self.arena.check_neighbour(reply)
        for row, seq_id in enumerate(self.ids):
            self._note(entry := reply["seqs"][str(seq_id)])
            self.told.append([sorted(mask) for mask in masks(self.arena.engine, reply, entry, row)])
        if not self.guests.is_v2:
            check_post_pre(reply := self.guests.post_pre(post_ops=[{"id": seq_id} | done for seq_id in self.ids]))
            for seq_id in self.ids:
                self._note(reply["post_seqs"][str(seq_id)])
                self._note(reply["pre_seqs"][str(seq_id)])
        self.arena.fuzz.done["steps"] += 1
