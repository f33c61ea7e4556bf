"""Protocol v2 (after March 2024): `mid_process` alone, told the sampled token; branches and splices; v2 mask rows."""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.wire.support import puppet, vocabularies
from tests.wire.support.engine import PATIENT, Binary, Engine, data, error, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.puppet import ECHO, allow, branches, log, masked, splice, unmasked

VERSIONS = ("v2",)
VOCAB = 261
NUM_ELTS = (VOCAB + 1000) & ~63


class Masks:
    """Check the region against the header in the response."""

    def __init__(self, engine: Engine) -> None:
        fields = struct.unpack_from("<4I", engine.bin)
        self.magic, self.stride, self.count, self.dtype = fields
        self.start = 64 + 4 * ((self.count + 3) & ~3)
        self.owners = struct.unpack_from(f"<{self.count}I", engine.bin, 64)


def row(engine: Engine, reply: Any, index: int) -> set[int]:
    """Return the tokens allowed by mask `index`, located by the offsets in the response."""
    assert 0 <= index < reply["num_masks"]
    start = reply["first_mask_byte_offset"] + index * reply["mask_num_bytes"]
    values = struct.unpack_from(f"<{reply['mask_num_elts']}f", engine.bin, start)
    assert set(values) <= {0.0, float("-inf")}
    return {token for token, value in enumerate(values) if value == 0.0}


def step(guests: Guests, body: puppet.Script | dict[int, puppet.Script]) -> tuple[Any, Any]:
    """Return the data and the entry of the first step of a new guest, which is freed afterwards."""
    req_id, seq_id = guests.request(mid=body), fresh()
    reply = data(guests.try_step([{"id": seq_id, "req_id": req_id}]))
    guests.free(seq_id)
    return reply, reply["seqs"][str(seq_id)]


class TestResponse:
    def test_its_fields(self, guests: Guests) -> None:
        reply, entry = step(guests, puppet.DEFAULTS["v2"]["mid"])
        assert set(reply) >= {"seqs", "dtype", "first_mask_byte_offset", "mask_num_bytes", "mask_num_elts", "num_masks"}
        assert entry.pop("micros") % 10 == 0
        (branch,) = entry.pop("result")["branches"]
        assert entry == {"error": "", "storage": [], "logs": ""}
        assert branch == {"sample_mask": 0, "temperature": None, "splices": []}
        assert row(guests.engine, reply, 0) == {1, 2}

    def test_the_region(self, guests: Guests) -> None:
        """For 1 MiB, 261 tokens and f32: 1216 elements per mask slot, with the format's leeway."""
        reply, _ = step(guests, puppet.DEFAULTS["v2"]["mid"])
        masks = Masks(guests.engine)
        assert NUM_ELTS == 1216
        assert (masks.magic, masks.stride, masks.dtype) == (0xF01291B7, 4 * NUM_ELTS, 1)
        assert masks.count == ((1 << 20) - 128) // (4 * NUM_ELTS + 8) == 215
        assert masks.start == 928
        assert (reply["dtype"], reply["first_mask_byte_offset"]) == ("f32", masks.start)
        assert (reply["mask_num_bytes"], reply["mask_num_elts"]) == (4 * NUM_ELTS, NUM_ELTS)

    def test_no_ops(self, guests: Guests) -> None:
        reply = data(guests.try_step([]))
        assert reply["seqs"] == {}
        assert reply["num_masks"] >= 1

    def test_no_masks(self, guests: Guests) -> None:
        """Upstream's count underflows here."""
        reply, entry = step(guests, branches(puppet.NOOP))
        assert entry["error"] == ""
        assert reply["num_masks"] >= 1

    def test_rows_are_told_apart(self, guests: Guests) -> None:
        tokens = {fresh(): token for token in (0, 7, 31, 32, 260)}
        ops = [
            {"id": seq_id, "req_id": guests.request(mid=allow(token) + branches(masked()))}
            for seq_id, token in tokens.items()
        ]
        reply = data(guests.try_step(ops))
        indices = {k: entry["result"]["branches"][0]["sample_mask"] for k, entry in reply["seqs"].items()}
        assert len(set(indices.values())) == len(tokens)
        assert reply["num_masks"] == max(indices.values()) + 1
        seen = {int(k): row(guests.engine, reply, index) for k, index in indices.items()}
        assert seen == {seq_id: {token} for seq_id, token in tokens.items()}
        guests.free(*tokens)

    def test_slots_are_given_back(self, guests: Guests) -> None:
        """More steps than mask slots, also of sequence 0, whose slots upstream leaks."""
        req_id = guests.request()
        ops: list[dict[str, Any]] = [{"id": 0, "req_id": req_id}]
        for _ in range(240):
            (branch,) = guests.step(ops)[0]["result"]["branches"]
            assert branch["sample_mask"] == 0
            ops = [{"id": 0, "sampled": 1, "tokens": [1]}]
        assert set(Masks(guests.engine).owners) <= {0xFFFFFFFF, 0}
        guests.free(0)
        guests.step([])
        assert set(Masks(guests.engine).owners) == {0xFFFFFFFF}


class TestBranches:
    @pytest.mark.parametrize(
        ("items", "told"),
        [
            ([], []),
            ([puppet.NOOP], [{"sample_mask": None, "temperature": None, "splices": [[[], 0, []]]}]),
            ([unmasked(splice(0, 7, 8))], [{"sample_mask": None, "temperature": None, "splices": [[[], 0, [7, 8]]]}]),
            ([unmasked(splice(3, 7))], [{"sample_mask": None, "temperature": None, "splices": [[[], 3, [7]]]}]),
            ([unmasked(splice(3))], [{"sample_mask": None, "temperature": None, "splices": [[[], 3, []]]}]),
            ([masked(temperature="0.5")], [{"sample_mask": 0, "temperature": 0.5, "splices": []}]),
            (
                [masked(splices=",".join((splice(1, 5, when="1"), splice(0, 6, 7, when="2, 3"))))],
                [{"sample_mask": 0, "temperature": None, "splices": [[[1], 1, [5]], [[2, 3], 0, [6, 7]]]}],
            ),
            ([masked(), puppet.NOOP], [{"sample_mask": 0, "temperature": None, "splices": []},
                                       {"sample_mask": None, "temperature": None, "splices": [[[], 0, []]]}]),
        ],
    )  # fmt: skip
    def test_they_are_passed_on(self, guests: Guests, items: list[str], told: list[Any]) -> None:
        _, entry = step(guests, allow(1, 2) + branches(*items))
        assert entry["error"] == ""
        names = ("when_sampled", "backtrack", "ff_tokens")
        for branch in told:
            branch["splices"] = [dict(zip(names, values, strict=True)) for values in branch["splices"]]
        assert entry["result"] == {"branches": told}

    def test_several_masks(self, guests: Guests) -> None:
        reply, entry = step(guests, allow(1) + allow(2, 260) + branches(masked(0), masked(1)))
        indices = [branch["sample_mask"] for branch in entry["result"]["branches"]]
        assert [row(guests.engine, reply, index) for index in indices] == [{1}, {2, 260}]

    def test_a_mask_that_no_branch_names(self, guests: Guests) -> None:
        """The mask slot of the fork is returned with all other slots."""
        for _ in range(3):
            _, entry = step(guests, allow(1) + allow(2) + branches(puppet.NOOP))
            assert entry["error"] == ""
        guests.step([])
        assert set(Masks(guests.engine).owners) == {0xFFFFFFFF}

    @pytest.mark.parametrize(
        "result",
        [
            '{"branches":[{"sample_mask":999999,"temperature":null,"splices":[]}]}',
            '{"branches":[{"sample_mask":-1,"temperature":null,"splices":[]}]}',
            '{"branches":[{"sample_mask":4000000000,"temperature":null,"splices":[]}]}',
            '{"branches":[{"sample_mask":null,"temperature":"hot","splices":[]}]}',
            '{"branches":[{"sample_mask":null,"temperature":null,"splices":[{"backtrack":0,"ff_tokens":[]}]}]}',
            '{"branches":[{"sample_mask":null,"temperature":null,"splices":[{"when_sampled":[],"backtrack":-1,"ff_tokens":[]}]}]}',
            '{"branches":[{"sample_mask":null,"temperature":null,"splices":[{"when_sampled":[],"backtrack":0,"ff_tokens":[1.5]}]}]}',
            '{"branches":[{"splices":7}]}',
            '{"branches":{}}',
            '{"branches":[5]}',
            "{}",
            '"Stop"',
            "nonsense",
            "",
        ],
    )
    def test_malformed(self, guests: Guests, result: str) -> None:
        _, entry = step(guests, allow(1) + puppet.answer(result))
        assert entry["error"].startswith("Error (mid): ")

    def test_an_offset_of_the_step_before(self, guests: Guests) -> None:
        """A number counts only if it was handed out in the same call."""
        late = branches(masked())
        req_id, seq_id = guests.request(mid={0: allow(1) + late, 1: puppet.log("x") + late}), fresh()
        guests.step([{"id": seq_id, "req_id": req_id}])
        assert guests.mid(seq_id, sampled=1, tokens=[1])["error"].startswith("Error (mid): ")
        guests.free(seq_id)

    def test_stray_bits_are_dropped(self, guests: Guests) -> None:
        """Guests write one element beyond the vocabulary; elements beyond the vocabulary deny."""
        full = puppet.words(puppet.MASK_AT, *[0xFFFFFFFF] * 40) + puppet.bias()
        reply, entry = step(guests, full + branches(masked()))
        allowed = row(guests.engine, reply, entry["result"]["branches"][0]["sample_mask"])
        assert allowed >= set(range(VOCAB))
        assert max(allowed) < (VOCAB + 31) // 32 * 32


class TestArgument:
    def test_the_guest_is_told(self, guests: Guests) -> None:
        body = ECHO + puppet.DEFAULTS["v2"]["mid"]
        req_id, seq_id = guests.request(mid=body), fresh()
        first = guests.step([{"id": seq_id, "req_id": req_id}])[seq_id]
        assert json.loads(first["logs"]) == {"backtrack": 0, "tokens": [], "sampled": None, "fork_group": [seq_id]}
        later = guests.mid(seq_id, backtrack=2, tokens=[5, 6], sampled=5)
        assert json.loads(later["logs"]) == {"backtrack": 2, "tokens": [5, 6], "sampled": 5, "fork_group": [seq_id]}
        guests.free(seq_id)

    def test_optional_fields(self, guests: Guests) -> None:
        seq_id = guests.bind(mid=ECHO + puppet.DEFAULTS["v2"]["mid"])
        op = {"id": seq_id, "backtrack": 0, "tokens": [1], "req_id": None, "clone_id": None, "clone_idx": None}
        reply = data(guests.engine.call("mid_process", ops=[op], freed=[]))
        assert json.loads(reply["seqs"][str(seq_id)]["logs"])["sampled"] is None
        guests.free(seq_id)

    def test_the_prompt_may_be_rewritten(self, guests: Guests) -> None:
        entry = guests.instantiate(f"r{fresh()}", [1, 2], prompt=puppet.answer('{"prompt":[9,8,7]}'))
        assert (entry["error"], entry["result"]["prompt"]) == ("", [9, 8, 7])

    def test_a_guest_of_march_2024_leaves_it_as_it_is(self, guests: Guests) -> None:
        """Rewriting of prompts came a month after ABI v2: before, the result was empty."""
        entry = guests.instantiate(f"r{fresh()}", [1, 2], prompt=puppet.NOTHING)
        assert (entry["error"], entry["result"]["prompt"]) == ("", [1, 2])

    @pytest.mark.parametrize("prompt", ["[]", '{"prompt":[999]}', '{"prompt":[-1]}', '{"prompt":7}'])
    def test_a_prompt_that_is_none(self, guests: Guests, prompt: str) -> None:
        entry = guests.instantiate(f"r{fresh()}", prompt=puppet.answer(prompt))
        assert entry["error"].startswith("Error (setup): ")

    def test_the_setup_has_its_own_log_and_variables(self, guests: Guests) -> None:
        write = '{"WriteVar":{"name":"a","value":"01","op":"Set","when_version_is":null}}'
        req_id, seq_id = f"r{fresh()}", fresh()
        entry = guests.instantiate(req_id, prompt=log("up;") + puppet.store(write) + puppet.SAME_PROMPT)
        assert entry["logs"] == 'up;{"WriteVar":{"version":1}}'
        assert len(entry["storage"]) == 1
        first = guests.step([{"id": seq_id, "req_id": req_id}])[seq_id]
        assert (first["logs"], first["storage"]) == ("", [])
        guests.free(seq_id)

    def test_config(self, guests: Guests) -> None:
        body = "".join(puppet.config(name) for name in ("fork", "backtrack", "ff_tokens", "nope", ""))
        _, entry = step(guests, body + puppet.DEFAULTS["v2"]["mid"])
        assert entry["logs"] == "11100"


class TestClone:
    def test_a_branch_comes_one_step_later(self, guests: Guests) -> None:
        """The fork starts from the memory of its parent, before the parent takes its next op."""
        body = ECHO + puppet.SEQ_ID
        two = allow(1) + allow(2) + branches(masked(0), masked(1))
        req_id, parent, child = guests.request(mid={0: two, 1: body + puppet.DEFAULTS["v2"]["mid"]}), fresh(), fresh()
        guests.step([{"id": parent, "req_id": req_id}])
        seqs = guests.step(
            [
                {"id": parent, "sampled": 1, "tokens": [1]},
                {"id": child, "clone_id": parent, "clone_idx": 1, "sampled": 2, "tokens": [2]},
            ]
        )
        group = [parent, child]
        for seq_id, token in ((parent, 1), (child, 2)):
            said, _, number = seqs[seq_id]["logs"].partition("}")
            told = {"backtrack": 0, "tokens": [token], "sampled": token, "fork_group": group}
            assert (json.loads(said + "}"), number) == (told, str(seq_id))
        guests.free(parent)
        assert guests.mid(child, sampled=1, tokens=[1])["error"] == ""
        guests.free(child)

    def test_the_group_is_in_order_of_clone_idx(self, guests: Guests) -> None:
        """The parent runs first, whatever the order of ops."""
        body = puppet.DEFAULTS["v2"]["mid"]
        req_id, parent = guests.request(mid={0: branches(*[puppet.NOOP] * 3), 1: ECHO + body}), fresh()
        guests.step([{"id": parent, "req_id": req_id}])
        one, two = fresh(), fresh()
        seqs = guests.step(
            [
                {"id": two, "clone_id": parent, "clone_idx": 2},
                {"id": one, "clone_id": parent, "clone_idx": 1},
                {"id": parent},
            ]
        )
        assert all(json.loads(seqs[s]["logs"])["fork_group"] == [parent, one, two] for s in (parent, one, two))
        guests.free(parent, one, two)

    def test_the_limit(self, guests: Guests) -> None:
        parent, clones = guests.bind(), [fresh() for _ in range(16)]
        ops = [{"id": clone, "clone_id": parent, "clone_idx": k} for k, clone in enumerate(clones, 1)]
        seqs = guests.step([{"id": parent}, *ops])
        assert [seqs[clone]["error"] for clone in clones] == [""] * 15 + ["Worker: too many forks (max=16)"]
        assert seqs[parent]["error"] == ""
        guests.free(parent, *clones)

    def test_a_parent_that_failed(self, guests: Guests) -> None:
        parent, child = guests.bind(mid={0: puppet.DEFAULTS["v2"]["mid"], 1: puppet.TRAP}), fresh()
        guests.mid(parent)
        seqs = guests.step([{"id": parent}, {"id": child, "clone_id": parent, "clone_idx": 1}])
        assert seqs[child]["error"]
        guests.free(parent, child)

    def test_variables_are_shared(self, guests: Guests) -> None:
        write = '{"WriteVar":{"name":"a","value":"01","op":"Append","when_version_is":null}}'
        body = puppet.store(write) + puppet.DEFAULTS["v2"]["mid"]
        req_id, parent, child = guests.request(mid={0: branches(*[puppet.NOOP] * 2), 1: body}), fresh(), fresh()
        guests.step([{"id": parent, "req_id": req_id}])
        seqs = guests.step([{"id": parent}, {"id": child, "clone_id": parent, "clone_idx": 1}])
        versions = {json.loads(seqs[s]["logs"])["WriteVar"]["version"] for s in (parent, child)}
        assert versions == {1, 2}
        guests.free(parent, child)


class TestRefused:
    """Upstream aborts; here the command fails and changes nothing."""

    @pytest.mark.parametrize(
        "op",
        [
            {"id": 99_999_999},
            {"id": 99_999_999, "req_id": "nope"},
            {"id": 99_999_999, "clone_idx": 1},
            {"id": 99_999_999, "req_id": "nope", "clone_id": 1, "clone_idx": 1},
            {"id": "1"},
            {"id": -1},
            {"id": 1.5},
            {"id": None},
            {"backtrack": -1},
            {"backtrack": None},
            {"tokens": None},
            {"tokens": [-1]},
            {"tokens": ["x"]},
            {"tokens": 5},
            {"sampled": -1},
            {"sampled": "x"},
            {"req_id": 5},
            {"clone_id": "x", "clone_idx": 1},
            {"clone_idx": "x"},
        ],
    )
    def test_ops(self, guests: Guests, op: dict[str, Any]) -> None:
        seq_id = guests.bind()
        response = guests.try_step([{"id": seq_id} | op])
        assert response["type"] == "error" or next(iter(response["data"]["seqs"].values()))["error"]
        guests.free(seq_id)

    def test_a_clone_without_its_index(self, guests: Guests) -> None:
        seq_id, child = guests.bind(), fresh()
        response = guests.try_step([{"id": seq_id}, {"id": child, "clone_id": seq_id}])
        assert response["type"] == "error" or response["data"]["seqs"][str(child)]["error"]
        guests.free(seq_id, child)

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"ops": None}, "ops"),
            ({"ops": {}}, "ops"),
            ({"ops": [3]}, "op"),
            ({"freed": [-1]}, "freed"),
            ({"freed": 3}, "freed"),
        ],
    )
    def test_the_command(self, guests: Guests, fields: dict[str, Any], text: str) -> None:
        assert text in error(guests.engine.call("mid_process", **{"ops": [], "freed": []} | fields))

    def test_a_missing_field(self, guests: Guests) -> None:
        seq_id = guests.bind()
        for missing in ("backtrack", "tokens"):
            op = {"id": seq_id, "backtrack": 0, "tokens": []}
            del op[missing]
            assert missing in error(guests.engine.call("mid_process", ops=[op], freed=[]))
        guests.free(seq_id)

    def test_the_same_id_twice(self, guests: Guests) -> None:
        seq_id = guests.bind()
        assert error(guests.try_step([{"id": seq_id}] * 2)) == f"duplicate id {seq_id}"
        guests.free(seq_id)

    def test_a_request_is_bound_once(self, guests: Guests) -> None:
        req_id, seq_id = guests.request(), fresh()
        guests.step([{"id": seq_id, "req_id": req_id}])
        response = guests.try_step([{"id": fresh(), "req_id": req_id}])
        assert error(response) == f"invalid req_id {req_id}"
        live = guests.try_step([{"id": seq_id, "req_id": guests.request()}])
        assert error(live) == f"duplicate id {seq_id}"
        assert guests.mid(seq_id)["error"] == ""
        guests.free(seq_id)

    def test_the_other_op_set(self, guests: Guests) -> None:
        """A runtime speaks a single version."""
        seq_id = guests.bind()
        error(guests.try_post_pre())
        assert guests.mid(seq_id)["error"] == ""
        guests.free(seq_id)

    def test_more_ops_than_there_is_room_for(self, guests: Guests) -> None:
        """Upstream asks for as much memory as the flat matrix took."""
        seq_id = guests.bind()
        clones = [{"id": fresh(), "clone_id": seq_id, "clone_idx": k} for k in range(1, (1 << 20) // (VOCAB * 4) + 1)]
        assert error(guests.try_step([{"id": seq_id}, *clones])) == "shm size too small"
        guests.free(seq_id)


@pytest.fixture(scope="module")
def bare(aicirt: Binary) -> Iterator[Guests]:
    """A runtime whose engine has no capabilities."""
    with Engine(aicirt, "v2", extra=PATIENT["v2"], capabilities=()) as engine:
        yield Guests(engine)


class TestFirstOp:
    """Without a flag for either version, the first op selects the version."""

    def test_v2(self, aicirt: Binary) -> None:
        with Engine(aicirt, "v2", capabilities=(), dtype="", extra=PATIENT["v2"]) as engine:
            _, entry = step(Guests(engine), allow(1) + branches(masked()))
            assert entry["result"]["branches"][0]["sample_mask"] == 0
            assert Masks(engine).magic == 0xF01291B7
            error(Guests(engine).try_post_pre())

    def test_v1(self, aicirt: Binary) -> None:
        with Engine(aicirt, "v1", extra=PATIENT["v1"]) as engine:
            guests = Guests(engine)
            assert guests.mid(guests.bind())["result"] is None
            assert set(struct.unpack_from(f"<{VOCAB}f", engine.bin)) == {0.0, -100.0}
            assert data(engine.call("mid_process", ops=[], freed=[]))["num_seqs"] == 0  # an unknown field is ignored


class TestCapabilities:
    @pytest.mark.parametrize(
        ("items", "text"),
        [
            ([masked(), masked()], "forking not enabled in this host"),
            ([unmasked(splice(1, 5))], "backtracking not enabled in this host"),
            ([masked(splices=splice(2, 5, when="1"))], "backtracking not enabled in this host"),
            ([masked(splices=splice(1, 5, when="1"))], "ff_tokens not enabled in this host"),
            ([unmasked(splice(0, 5))], "ff_tokens not enabled in this host"),
            ([puppet.NOOP], "ff_tokens not enabled in this host"),
        ],
    )
    def test_refused(self, bare: Guests, items: list[str], text: str) -> None:
        req_id, seq_id = bare.request(mid=allow(1) + branches(*items)), fresh()
        assert text in bare.step([{"id": seq_id, "req_id": req_id}])[seq_id]["error"]
        assert bare.mid(seq_id)["error"]  # the guest has failed
        bare.free(seq_id)

    @pytest.mark.parametrize("items", [[], [masked()], [masked(temperature="0.7")]])
    def test_what_needs_none(self, bare: Guests, items: list[str]) -> None:
        _, entry = step(bare, allow(1) + branches(*items))
        assert entry["error"] == ""

    def test_config(self, bare: Guests) -> None:
        body = "".join(puppet.config(name) for name in ("fork", "backtrack", "ff_tokens"))
        assert step(bare, body + puppet.DEFAULTS["v2"]["mid"])[1]["logs"] == "000"


VALUES = {
    "f16": ("H", 0x0000, 0xFC00, 2, 2),
    "bf16": ("H", 0x0000, 0xFF80, 2, 3),
    "f32": ("I", 0x0000, 0xFF800000, 4, 1),
}


class TestTypes:
    @pytest.mark.parametrize("dtype", sorted(VALUES))
    def test_floats(self, aicirt: Binary, dtype: str) -> None:
        letter, allowed, denied, size, number = VALUES[dtype]
        with Engine(aicirt, "v2", dtype=dtype, extra=PATIENT["v2"]) as engine:
            guests = Guests(engine)
            reply, _ = step(guests, allow(0, 2, 260) + branches(masked()))
            masks = Masks(engine)
            assert (masks.dtype, masks.stride, reply["dtype"]) == (number, size * NUM_ELTS, dtype)
            assert masks.count == ((1 << 20) - 128) // (size * NUM_ELTS + 8)
            assert (reply["mask_num_bytes"], reply["mask_num_elts"]) == (size * NUM_ELTS, NUM_ELTS)
            values = struct.unpack_from(f"<{NUM_ELTS}{letter}", engine.bin, reply["first_mask_byte_offset"])
            assert {k for k, value in enumerate(values) if value == allowed} == {0, 2, 260}
            assert set(values) == {allowed, denied}

    def test_bool(self, aicirt: Binary) -> None:
        """Never worked in upstream: every mask fails an assertion there."""
        with Engine(aicirt, "v2", dtype="bool", extra=PATIENT["v2"]) as engine:
            reply, entry = step(Guests(engine), allow(0, 2, 260) + branches(masked()))
            assert (entry["error"], reply["dtype"], Masks(engine).dtype) == ("", "bool", 4)
            assert reply["mask_num_bytes"] >= (VOCAB + 7) // 8
            start = reply["first_mask_byte_offset"]
            bits = int.from_bytes(engine.bin[start : start + reply["mask_num_bytes"]], "little")
            assert bits == 1 << 0 | 1 << 2 | 1 << 260


def test_the_golden_header(aicirt: Binary, tmp_path: Path) -> None:
    """A region of 64 MiB, for as many tokens as Llama has."""
    other = replace(aicirt, tokenizer=vocabularies.wide(tmp_path, 32_000))
    with Engine(other, "v2", bin_mib=64, extra=PATIENT["v2"]) as engine:
        reply, _ = step(Guests(engine), puppet.DEFAULTS["v2"]["mid"])
        assert engine.bin[:16].hex() == "b79112f000030200fc01000001000000"
        assert (reply["first_mask_byte_offset"], reply["mask_num_elts"]) == (2096, 32960)
        assert row(engine, reply, 0) == {1, 2}
