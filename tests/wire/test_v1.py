"""Protocol v1 (early 2024): `post_pre_process`, `mid_process` with `clone_id`, and the flat matrix of masks."""

import struct
from typing import Any

import pytest

from tests.wire.support import puppet
from tests.wire.support.engine import Engine, error, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.puppet import ECHO, NO_STOP, PRE_GO, SAMPLE, answer, log

VERSIONS = ("v1",)
VOCAB = 261
GO = {"suspend": False, "num_forks": 1, "ff_tokens": []}


def row(engine: Engine, index: int) -> set[int]:
    """Return the tokens allowed by row `index`."""
    values = struct.unpack_from(f"<{VOCAB}f", engine.bin, index * VOCAB * 4)
    assert set(values) <= {0.0, -100.0}
    return {token for token, value in enumerate(values) if value == 0.0}


def pre(guests: Guests, body: puppet.Script, **callbacks: Any) -> Any:
    return guests.first(pre=body, **callbacks)


class TestPostPre:
    def test_the_first_call_binds(self, guests: Guests) -> None:
        req_id, seq_id = guests.request(), fresh()
        reply = guests.post_pre(pre_ops=[{"id": seq_id, "req_id": req_id}], freed=[seq_id])
        entry = reply["pre_seqs"].pop(str(seq_id))
        assert reply == {"post_seqs": {}, "pre_seqs": {}}
        assert entry.pop("micros") % 10 == 0
        assert entry == {"error": "", "result": GO, "storage": [], "logs": ""}

    def test_every_live_sequence_is_asked_before_any_is_freed(self, guests: Guests) -> None:
        one, two = guests.bind(), guests.bind()
        assert set(guests.post_pre(freed=[one])["pre_seqs"]) == {str(one), str(two)}
        assert set(guests.post_pre(freed=[two])["pre_seqs"]) == {str(two)}
        assert guests.post_pre()["pre_seqs"] == {}

    @pytest.mark.parametrize(("backtrack", "seen"), [(None, 0), (0, 0), (1, 0), (3, 2)])
    def test_post_is_told_before_pre(self, guests: Guests, backtrack: int | None, seen: int) -> None:
        seq_id = guests.bind(pre=log("pre;") + PRE_GO, post=ECHO + NO_STOP)
        op = {"id": seq_id, "tokens": [5, 6]} | ({} if backtrack is None else {"backtrack": backtrack})
        reply = guests.post_pre(post_ops=[op], freed=[seq_id])
        post, before = reply["post_seqs"][str(seq_id)], reply["pre_seqs"][str(seq_id)]
        assert post["logs"] == f'{{"tokens":[5,6],"backtrack":{seen}}}'
        assert (post["result"], before["logs"]) == ({"stop": False}, "pre;")

    def test_the_argument_of_pre(self, guests: Guests) -> None:
        assert pre(guests, ECHO + PRE_GO)["logs"] == "{}"

    def test_stop(self, guests: Guests) -> None:
        seq_id = guests.bind(post=answer('{"stop":true}'))
        reply = guests.post_pre(post_ops=[{"id": seq_id, "tokens": [1]}], freed=[seq_id])
        assert reply["post_seqs"][str(seq_id)]["result"] == {"stop": True}

    @pytest.mark.parametrize(
        "result",
        [
            {"suspend": True, "num_forks": 1, "ff_tokens": []},
            {"suspend": False, "num_forks": 0, "ff_tokens": []},
            {"suspend": False, "num_forks": 3, "ff_tokens": []},
        ],
    )
    def test_results_of_pre(self, guests: Guests, result: dict[str, Any]) -> None:
        text = f'{{"suspend":{str(result["suspend"]).lower()},"num_forks":{result["num_forks"]},"ff_tokens":[]}}'
        assert pre(guests, answer(text))["result"] == result

    def test_rounds_of_forced_tokens_are_joined(self, guests: Guests) -> None:
        forced = {k: answer(f'{{"suspend":false,"num_forks":1,"ff_tokens":[{k},9]}}') for k in range(3)}
        entry = pre(guests, forced | {3: PRE_GO}, post=ECHO + NO_STOP)  # type: ignore[arg-type]
        assert entry["result"] == GO | {"ff_tokens": [0, 9, 1, 9, 2, 9]}
        assert entry["logs"] == "".join(f'{{"tokens":[{k},9],"backtrack":0}}' for k in range(3))

    def test_post_may_stop_them(self, guests: Guests) -> None:
        entry = pre(guests, answer('{"suspend":false,"num_forks":1,"ff_tokens":[7]}'), post=answer('{"stop":true}'))
        assert entry["result"] == {"suspend": False, "num_forks": 0, "ff_tokens": [7]}

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            ('{"suspend":false,"num_forks":1,"ff_tokens":[7]}', "too many ff_tokens rounds from pre_process"),
            ('{"suspend":true,"num_forks":2,"ff_tokens":[]}', ""),
            ('{"suspend":true,"num_forks":1,"ff_tokens":[7]}', ""),
            ('{"suspend":false,"num_forks":2,"ff_tokens":[7]}', ""),
            ('{"suspend":false,"num_forks":-1,"ff_tokens":[]}', ""),
            (
                f'{{"suspend":false,"num_forks":1,"ff_tokens":[{VOCAB}]}}',
                f"ff_token out of range ({VOCAB} >= {VOCAB} at 0)",
            ),
            ('{"suspend":false,"num_forks":1}', ""),
            ('{"suspend":1,"num_forks":1,"ff_tokens":[]}', ""),
            ("[]", ""),
            ("nonsense", ""),
        ],
    )
    def test_a_failure_of_pre(self, guests: Guests, result: str, text: str) -> None:
        entry = pre(guests, answer(result))
        assert entry["error"].startswith("Error (pre): ")
        assert text in entry["error"]
        assert entry["result"] == GO
        assert entry["logs"].endswith("\n" + entry["error"])

    def test_a_failure_of_post(self, guests: Guests) -> None:
        seq_id = guests.bind(post=puppet.TRAP)
        reply = guests.post_pre(post_ops=[{"id": seq_id, "tokens": [1]}], freed=[seq_id])
        post = reply["post_seqs"][str(seq_id)]
        assert post["error"].startswith("Error (post): ")
        assert post["result"] == {"stop": True}
        assert "Previous WASM Error" in reply["pre_seqs"][str(seq_id)]["error"]


class TestRefusedAsAWhole:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"post_ops": [{"id": 99_999_999, "tokens": []}]}, "invalid id 99999999"),
            ({"pre_ops": [{"id": 99_999_999, "req_id": "nope"}]}, "invalid req_id nope"),
            ({"post_ops": [{"tokens": []}]}, "id"),
            ({"post_ops": [{"id": 1, "tokens": "x"}]}, "tokens"),
            ({"post_ops": [{"id": 1, "tokens": [-1]}]}, "tokens"),
            ({"post_ops": [{"id": 1, "tokens": [2**32]}]}, "tokens"),
            ({"post_ops": [{"id": 1, "tokens": [1], "backtrack": -1}]}, "backtrack"),
            ({"post_ops": [{"id": 1, "tokens": [1], "backtrack": 0.5}]}, "backtrack"),
            ({"pre_ops": [{"id": 1, "req_id": 7}]}, "req_id"),
            ({"pre_ops": [{"id": -1, "req_id": "x"}]}, "id"),
            ({"pre_ops": [{"id": True, "req_id": "x"}]}, "id"),
            ({"post_ops": [1]}, "op"),
            ({"post_ops": None}, "post_ops"),
            ({"pre_ops": {}}, "pre_ops"),
            ({"freed": [-1]}, "freed"),
            ({"freed": 1}, "freed"),
        ],
    )
    def test_post_pre(self, guests: Guests, fields: dict[str, Any], text: str) -> None:
        assert text in error(guests.try_post_pre(**fields), is_user_error=False)

    @pytest.mark.parametrize("missing", ["post_ops", "pre_ops", "freed"])
    def test_a_missing_list(self, guests: Guests, missing: str) -> None:
        fields: dict[str, Any] = {"post_ops": [], "pre_ops": [], "freed": []}
        del fields[missing]
        assert missing in error(guests.engine.call("post_pre_process", **fields))

    def test_it_changes_nothing(self, guests: Guests) -> None:
        live, req_id, new = guests.bind(), guests.request(), fresh()
        duplicate = [{"id": new, "req_id": req_id}, {"id": live, "req_id": req_id}]
        assert error(guests.try_post_pre(pre_ops=duplicate)) in (f"duplicate id {live}", f"invalid req_id {req_id}")
        assert error(guests.try_post_pre(post_ops=[{"id": new, "tokens": []}], freed=[live])) == f"invalid id {new}"
        reply = guests.post_pre(pre_ops=[{"id": new, "req_id": req_id}], freed=[live, new])
        assert set(reply["pre_seqs"]) == {str(live), str(new)}

    def test_a_request_is_bound_once(self, guests: Guests) -> None:
        req_id, seq_id = guests.request(), fresh()
        guests.post_pre(pre_ops=[{"id": seq_id, "req_id": req_id}])
        again = guests.try_post_pre(pre_ops=[{"id": fresh(), "req_id": req_id}])
        assert error(again) == f"invalid req_id {req_id}"
        guests.free(seq_id)

    @pytest.mark.parametrize(
        ("ops", "text"),
        [
            ([{"id": 99_999_999}], "invalid id 99999999"),
            ([{"id": "1"}], "id"),
            ([{"id": 1, "clone_id": "2"}], "clone_id"),
            ([3], "op"),
            ("x", "ops"),
            (None, "ops"),
        ],
    )
    def test_mid(self, guests: Guests, ops: Any, text: str) -> None:
        assert text in error(guests.try_step(ops), is_user_error=False)

    def test_the_same_id_twice(self, guests: Guests) -> None:
        seq_id = guests.bind()
        assert error(guests.try_step([{"id": seq_id}] * 2)) == f"duplicate id {seq_id}"
        guests.free(seq_id)

    def test_more_rows_than_fit(self, guests: Guests) -> None:
        seq_id = guests.bind()
        clones = [{"id": fresh(), "clone_id": seq_id} for _ in range((1 << 20) // (VOCAB * 4))]
        assert error(guests.try_step([{"id": seq_id}, *clones])) == "shm size too small"
        guests.free(seq_id)


class TestMid:
    def test_rows_in_the_order_of_ops(self, guests: Guests) -> None:
        first, second = guests.bind(mid=puppet.allow(0, 31, 32, 260) + SAMPLE), guests.bind()
        reply = guests.try_step([{"id": second, "clone_id": None}, {"id": first}])["data"]
        assert reply["num_seqs"] == 2
        entry = reply["seqs"][str(first)]
        assert (entry["error"], entry["result"], entry["storage"], entry["logs"]) == ("", None, [], "")
        assert [row(guests.engine, k) for k in (0, 1)] == [{1, 2}, {0, 31, 32, 260}]
        guests.free(first, second)

    @pytest.mark.parametrize(
        ("result", "told", "allowed"),
        [
            ('"Stop"', None, {0}),
            ('{"Splice":{"backtrack":0,"ff_tokens":[7,8]}}', {"ff_tokens": [7, 8], "backtrack": 0}, {7}),
            ('{"Splice":{"backtrack":2,"ff_tokens":[]}}', {"ff_tokens": [], "backtrack": 3}, set(range(VOCAB))),
            ('{"Splice":{"backtrack":1,"ff_tokens":[5]}}', {"ff_tokens": [5], "backtrack": 2}, set(range(VOCAB))),
            ('{"SampleWithBias":{}}', None, set()),  # no bias at all: -100 everywhere constrains nothing
        ],
    )
    def test_results(self, guests: Guests, result: str, told: Any, allowed: set[int]) -> None:
        entry = guests.only_mid(answer(result))
        assert (entry["error"], entry["result"]) == ("", told)
        assert row(guests.engine, 0) == allowed

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            ('{"Splice":{"backtrack":0,"ff_tokens":[]}}', "empty Splice (both backtrack == 0 and ff_tokens == [])"),
            (
                f'{{"Splice":{{"backtrack":0,"ff_tokens":[1,{VOCAB}]}}}}',
                f"ff_token out of range ({VOCAB} >= {VOCAB} at 1)",
            ),
            ('{"Splice":{"backtrack":-1,"ff_tokens":[1]}}', ""),
            ('{"Splice":{"backtrack":1.5,"ff_tokens":[1]}}', ""),
            ('{"Splice":{"backtrack":1}}', ""),
            ('{"Nonsense":{}}', ""),
            ("{", ""),
            ("", ""),
        ],
    )
    def test_failures(self, guests: Guests, result: str, text: str) -> None:
        entry = guests.only_mid(answer(result))
        assert entry["error"].startswith("Error (mid): ")
        assert text in entry["error"]
        assert entry["result"] is None

    def test_biases_are_joined_and_stray_bits_dropped(self, guests: Guests) -> None:
        last = VOCAB // 32
        body = puppet.allow(1) + puppet.allow(2) + puppet.words(puppet.MASK_AT, 0, *[0] * (last - 1), 0xFFFFFFFF)
        guests.only_mid(body + puppet.bias() + SAMPLE)
        assert row(guests.engine, 0) == {1, 2, *range(last * 32, VOCAB)}

    def test_no_bias_outside_of_mid(self, guests: Guests) -> None:
        assert "FATAL ERROR: logit_ptr is empty\n" in pre(guests, puppet.allow(1) + PRE_GO)["logs"]
        seq_id = guests.bind(post=puppet.allow(1) + NO_STOP)
        reply = guests.post_pre(post_ops=[{"id": seq_id, "tokens": []}], freed=[seq_id])
        assert "FATAL ERROR: logit_ptr is empty\n" in reply["post_seqs"][str(seq_id)]["logs"]

    def test_no_ops(self, guests: Guests) -> None:
        assert guests.try_step([])["data"] == {"seqs": {}, "num_seqs": 0}

    def test_a_failed_guest_stays_failed(self, guests: Guests) -> None:
        seq_id = guests.bind(mid=puppet.TRAP)
        assert guests.mid(seq_id)["error"].startswith("Error (mid): ")
        assert "Previous WASM Error" in guests.mid(seq_id)["error"]
        guests.free(seq_id)


class TestClone:
    def test_it_goes_on_from_its_parent(self, guests: Guests) -> None:
        parent, child = guests.bind(mid=ECHO + puppet.SEQ_ID + SAMPLE), fresh()
        seqs = guests.step([{"id": child, "clone_id": parent}, {"id": parent}])
        for seq_id in (parent, child):
            assert seqs[seq_id]["logs"] == f'{{"fork_group":[{child},{parent}]}}{seq_id}'
        assert guests.mid(child)["logs"] == f'{{"fork_group":[{child}]}}{child}'
        guests.free(parent)
        assert set(guests.post_pre(freed=[child])["pre_seqs"]) == {str(child)}  # the child outlives its parent

    def test_memories_are_separate(self, guests: Guests) -> None:
        parent, child = guests.bind(mid={k: puppet.allow(k) + SAMPLE for k in range(4)}), fresh()
        guests.mid(parent)
        guests.step([{"id": parent}, {"id": child, "clone_id": parent}])
        assert [row(guests.engine, k) for k in (0, 1)] == [{1}, {1}]
        guests.mid(child)
        guests.step([{"id": child}, {"id": parent}])
        assert [row(guests.engine, k) for k in (0, 1)] == [{3}, {2}]
        guests.free(parent, child)

    def test_errors_are_per_sequence(self, guests: Guests) -> None:
        parent, other, orphan = guests.bind(), guests.bind(), fresh()
        ops = [{"id": parent}, {"id": other, "clone_id": parent}, {"id": orphan, "clone_id": 88_888_888}]
        seqs = guests.step(ops)
        assert [seqs[parent]["error"], seqs[orphan]["error"]] == ["", "Worker: invalid id 88888888"]
        assert seqs[other]["error"] == f"Worker: duplicate id {other} (cloning {parent})"
        assert row(guests.engine, 0) == {1, 2}
        guests.free(parent, other, orphan)

    def test_the_limit(self, guests: Guests) -> None:
        parent, clones = guests.bind(), [fresh() for _ in range(16)]
        seqs = guests.step([{"id": parent}, *({"id": clone, "clone_id": parent} for clone in clones)])
        assert [seqs[clone]["error"] for clone in clones] == [""] * 15 + ["Worker: too many forks (max=16)"]
        guests.free(*clones)
        again = fresh()
        assert guests.step([{"id": again, "clone_id": parent}, {"id": parent}])[again]["error"] == ""
        guests.free(parent, again)


def test_a_response_that_does_not_fit_says_so(guests: Guests) -> None:
    """20 guests with 60 KB of log each exceed the mailbox of 1 MiB."""
    ids = [fresh() for _ in range(20)]
    noisy = puppet.log_often(600, "x" * 100) + PRE_GO
    pre_ops = [{"id": seq_id, "req_id": guests.request(pre=noisy)} for seq_id in ids]
    assert error(guests.try_post_pre(pre_ops=pre_ops)).startswith("msg too large; ")
    for seq_id in ids:  # every call frees one more guest, until the answer fits
        guests.try_post_pre(freed=[seq_id])
    assert guests.post_pre()["pre_seqs"] == {}
