"""The protocol by hand: JSON over shared memory against a real `aicirt`, one op after the other, errors included."""

import base64
import hashlib
import itertools
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aici_runtime.ids import TokenId
from tests.runtime.support import wat
from tests.runtime.support.raw import RawEngine
from tests.runtime.support.tokenizer import BYTE_LEVEL_SIZE

ADMIN = {"user": "root", "is_admin": True}
_numbers = itertools.count(1)


def upload(raw: RawEngine, wasm: bytes) -> str:
    response = raw.side(op="mk_module", binary=base64.b64encode(wasm).decode(), **{"$auth": ADMIN, "$rid": "up"})
    return str(response["data"]["module_id"])


def instantiate(raw: RawEngine, wasm: bytes, **fields: Any) -> str:
    req_id = f"run-{next(_numbers)}"
    request = {"module_id": upload(raw, wasm), "prompt": [1], "module_arg": "", "req_id": req_id} | fields
    response = raw.side(op="instantiate", **request)
    micros = response["data"].pop("micros")
    assert micros % 10 == 0
    result = {"prompt": request["prompt"], "suspend": False, "num_forks": 1, "ff_tokens": []}
    assert response == {"type": "ok", "data": {"result": result, "error": "", "storage": [], "logs": ""}}
    return req_id


def bind(raw: RawEngine, wasm: bytes) -> int:
    """A fresh sequence."""
    seq_id = next(_numbers)
    post_pre(raw, pre_ops=[{"id": seq_id, "req_id": instantiate(raw, wasm)}])
    return seq_id


def post_pre(raw: RawEngine, **fields: Any) -> Any:
    return raw.call(op="post_pre_process", **{"post_ops": [], "pre_ops": [], "freed": []} | fields)


def error(response: Any) -> str:
    assert response["type"] == "error"
    assert isinstance(response["is_user_error"], bool)
    return str(response["error"])


@pytest.mark.parametrize("side", ["", "-side"])
class TestBothChannels:
    def ask(self, raw: RawEngine, side: str, payload: bytes) -> Any:
        raw.send_bytes(payload, side)
        return raw.receive(side)

    def test_ping(self, raw: RawEngine, side: str) -> None:
        assert self.ask(raw, side, b'{"op":"ping"}') == {"type": "ok", "data": {"pong": 1}}

    def test_rid_is_echoed(self, raw: RawEngine, side: str) -> None:
        assert self.ask(raw, side, b'{"op":"ping","$rid":"a\\"b"}')["$rid"] == 'a"b'
        assert self.ask(raw, side, b'{"op":"nope","$rid":"c"}')["$rid"] == "c"

    @pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"1", b"\xff", b'{"op":"ping"}x'])
    def test_bad_json(self, raw: RawEngine, side: str, payload: bytes) -> None:
        response = self.ask(raw, side, payload)
        assert set(response) == {"type", "error"}
        assert response["type"] == "json-error"

    def test_a_rid_that_leaves_no_room_for_an_answer(self, raw: RawEngine, side: str) -> None:
        payload = json.dumps({"op": "ping", "$rid": "x" * ((1 << 20) - 40)}).encode()
        assert self.ask(raw, side, payload) == {"type": "json-error", "error": "$rid too long"}

    @pytest.mark.parametrize("payload", [b'{"op":"nope"}', b"{}", b'{"op":7}'])
    def test_bad_op(self, raw: RawEngine, side: str, payload: bytes) -> None:
        assert error(self.ask(raw, side, payload)) == "bad op"


def test_tokens(raw: RawEngine) -> None:
    assert raw.call(op="tokens")["data"] == {"vocab_size": BYTE_LEVEL_SIZE, "eos_token_id": 0}


class TestModules:
    def test_mk_module(self, raw: RawEngine) -> None:
        wasm = wat.plain()
        response = raw.side(op="mk_module", binary=base64.b64encode(wasm).decode())
        data = response["data"]
        assert data["module_id"] == hashlib.sha256(wasm).hexdigest()
        assert data["wasm_size"] == len(wasm)
        assert data["compiled_size"] > len(wasm)
        assert type(data["time"]) is int

    def test_second_upload_is_not_compiled_again(self, raw: RawEngine, cache_dir: Path) -> None:
        (compiled,) = cache_dir.glob(f"modules/{upload(raw, wat.plain())}-*.cwasm")
        before = compiled.stat().st_mtime_ns
        upload(raw, wat.plain())
        assert compiled.stat().st_mtime_ns == before

    def test_lost_code_is_compiled_again(self, raw: RawEngine, cache_dir: Path) -> None:
        (compiled,) = cache_dir.glob(f"modules/{upload(raw, wat.plain())}-*.cwasm")
        compiled.unlink()
        instantiate(raw, wat.plain())
        assert compiled.is_file()

    @pytest.mark.parametrize("binary", [b"", b"not wasm", b"\0asm\1\0\0\0garbage"])
    def test_garbage(self, raw: RawEngine, binary: bytes, cache_dir: Path) -> None:
        response = raw.side(op="mk_module", binary=base64.b64encode(binary).decode())
        assert "cannot compile the module" in error(response)
        assert response["is_user_error"]
        assert not (cache_dir / "modules" / f"{hashlib.sha256(binary).hexdigest()}.wasm").exists()

    @pytest.mark.parametrize("binary", ["!", "ä"])
    def test_bad_base64(self, raw: RawEngine, binary: str) -> None:
        assert "binary is not base64" in error(raw.side(op="mk_module", binary=binary))

    def test_a_reason_longer_than_a_pipe(self, raw: RawEngine) -> None:
        """A name that is exported twice, of 90 000 bytes, is quoted in the reason."""
        name = b"\x90\xbf\x05" + b"n" * 90_000
        exports = b"\x02" + 2 * (name + b"\x00\x00")
        sections = [(1, b"\x01\x60\x00\x00"), (3, b"\x01\x00"), (7, exports), (10, b"\x01\x02\x00\x0b")]
        binary = b"\0asm\1\0\0\0"
        for number, body in sections:
            size = bytes([len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14])
            binary += bytes([number]) + size + body
        assert "duplicate export name" in error(raw.side(op="mk_module", binary=base64.b64encode(binary).decode()))

    def test_tags(self, raw: RawEngine) -> None:
        module_id = upload(raw, wat.plain())
        response = raw.side(op="set_tags", module_id=module_id, tags=["plain-latest", "ä1.0"], **{"$auth": ADMIN})
        tags = response["data"]["tags"]
        assert [tag["tag"] for tag in tags] == ["plain-latest", "ä1.0"]
        assert set(tags[0]) == {"tag", "module_id", "updated_at", "updated_by", "wasm_size", "compiled_size"}
        assert tags[0]["updated_by"] == "root"
        listed = raw.side(op="get_tags")["data"]["tags"]
        assert [tag["updated_at"] for tag in listed] == sorted((t["updated_at"] for t in listed), reverse=True)
        assert {tag["tag"] for tag in listed} >= {"plain-latest", "ä1.0"}
        instantiate(raw, wat.plain(), module_id="plain-latest")

    @pytest.mark.parametrize(
        ("tag", "text"),
        [
            ("x" * 51, "tag name too long"),
            ("abcdef0123456789abcdef", "tag name looks too hex"),
            ("", "tag name not identifier"),
            ("1a", "tag name not identifier"),
            ("../../evil", "tag name not identifier"),
            ("a/b", "tag name not identifier"),
            ("a b", "tag name not identifier"),
        ],
    )
    def test_bad_tags(self, raw: RawEngine, tag: str, text: str) -> None:
        module_id = upload(raw, wat.plain())
        assert error(raw.side(op="set_tags", module_id=module_id, tags=[tag], **{"$auth": ADMIN})) == text

    def test_tags_belong_to_their_user(self, raw: RawEngine) -> None:
        module_id = upload(raw, wat.plain())
        eve = {"user": "eve", "is_admin": False}
        for auth in (eve, {"user": "eve"}, None):
            response = raw.side(op="set_tags", module_id=module_id, tags=["other"], **{"$auth": auth})
            assert error(response) == "permission denied for tag name"
        assert raw.side(op="set_tags", module_id=module_id, tags=["eve.x"], **{"$auth": eve})["type"] == "ok"

    @pytest.mark.parametrize(
        ("module_id", "text"), [("plain-latest", "invalid module_id"), ("0" * 64, f"module {'0' * 64} not found")]
    )
    def test_only_modules_can_be_tagged(self, raw: RawEngine, module_id: str, text: str) -> None:
        assert error(raw.side(op="set_tags", module_id=module_id, tags=["a"], **{"$auth": ADMIN})) == text


class TestInstantiate:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"module_id": "missing"}, "tag missing not found"),
            ({"module_id": "../x"}, "tag ../x not found"),
            ({"module_id": "x" * 300}, f"tag {'x' * 300} not found"),
            ({"module_id": "gh:a/b"}, "controllers from GitHub are not supported"),
            ({"prompt": 5}, "field prompt missing or not list"),
            ({"prompt": [BYTE_LEVEL_SIZE]}, f"prompt token out of range: {BYTE_LEVEL_SIZE}"),
            ({"prompt": [-1]}, "field prompt is not a list of unsigned integers"),
            ({"prompt": [True]}, "field prompt is not a list of unsigned integers"),
            ({"req_id": 5}, "field req_id missing or not str"),
            ({"req_id": "x" * 2000}, "req_id too long"),
            (
                {"module_arg": json.loads("[" * 300 + "]" * 300)},
                "module_arg is nested too deeply: Recursion limit reached",
            ),
        ],
    )
    def test_refused(self, raw: RawEngine, fields: dict[str, Any], text: str) -> None:
        request = {"module_id": upload(raw, wat.plain()), "prompt": [1], "req_id": "r"} | fields
        assert error(raw.side(op="instantiate", **request)) == text

    @pytest.mark.parametrize(
        ("module_arg", "seen"),
        [("text", "text"), (None, "null"), ({"a": [1, 2]}, '{"a":[1,2]}'), ("x" * 300_000, None)],
    )
    def test_module_arg(self, raw: RawEngine, module_arg: Any, seen: str | None) -> None:
        req_id = instantiate(raw, wat.echo(), module_arg=module_arg, prompt=[3, 4])
        seq_id = next(_numbers)
        response = post_pre(raw, pre_ops=[{"id": seq_id, "req_id": req_id}], freed=[seq_id])
        logs = response["data"]["pre_seqs"][str(seq_id)]["logs"]
        # The log of the setup comes with the first step; the guest's buffer and the log hold 64 KiB.
        assert logs.startswith(seen + '{"prompt":[3,4]}' if seen else "x" * 40_000)

    @pytest.mark.parametrize(("prompt", "text"), [("", b"<s>"), ("hi", b"<s> hi")])
    def test_a_prompt_as_text(
        self, raw: RawEngine, token_of: Callable[[bytes], TokenId], prompt: str, text: bytes
    ) -> None:
        request = {"module_id": upload(raw, wat.plain()), "prompt": prompt, "req_id": f"run-{next(_numbers)}"}
        found = raw.side(op="instantiate", **request)["data"]["result"]["prompt"]
        assert found == [token_of(bytes([byte])) for byte in text]

    @pytest.mark.parametrize("length", [2000, 100_000, 600_000])
    def test_a_long_req_id_is_no_news(self, raw: RawEngine, length: int) -> None:
        assert error(raw.side(op="discard", req_id="x" * length)) == "req_id too long"
        discarded = instantiate(raw, wat.plain())
        raw.side(op="discard", req_id=discarded)
        assert error(post_pre(raw, pre_ops=[{"id": 1, "req_id": discarded}])) == f"invalid req_id {discarded}"

    def test_concurrent_requests(self, raw: RawEngine) -> None:
        """The slow one is answered last, and `$rid` says which is which."""
        slow = wat.Module()
        wasm = slow.build(create=_BURN + "(i32.const 1)")
        slow_id, fast_id = upload(raw, wasm), upload(raw, wat.plain())
        for rid, module_id in (("slow", slow_id), ("fast", fast_id)):
            request = {"op": "instantiate", "$rid": rid, "req_id": f"c-{rid}", "prompt": [], "module_id": module_id}
            raw.send_bytes(json.dumps(request).encode(), "-side")
        assert [raw.receive("-side")["$rid"] for _ in range(2)] == ["fast", "slow"]


def test_a_req_id_is_instantiated_once_at_a_time(raw: RawEngine) -> None:
    slow = wat.Module()
    request = {"op": "instantiate", "req_id": "twice", "prompt": []}
    request["module_id"] = upload(raw, slow.build(create=_BURN + "(i32.const 1)"))
    for _ in range(2):
        raw.send_bytes(json.dumps(request).encode(), "-side")
    assert error(raw.receive("-side")) == "duplicate req_id twice"
    assert raw.receive("-side")["type"] == "ok"


_BURN = """(block $done (loop $again (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
    (br_if $done (i32.eq (global.get $steps) (i32.const 300000000))) (br $again)))"""


class TestPostPre:
    def test_the_first_call_binds(self, raw: RawEngine) -> None:
        req_id, seq_id = instantiate(raw, wat.plain()), next(_numbers)
        response = post_pre(raw, pre_ops=[{"id": seq_id, "req_id": req_id}], freed=[seq_id])
        entry = response["data"]["pre_seqs"].pop(str(seq_id))
        assert response == {"type": "ok", "data": {"post_seqs": {}, "pre_seqs": {}}}
        assert entry.pop("micros") % 10 == 0
        assert entry == {
            "error": "",
            "result": {"suspend": False, "num_forks": 1, "ff_tokens": []},
            "storage": [],
            "logs": "",
        }

    def test_arguments_reach_the_guest(self, raw: RawEngine) -> None:
        seq_id = bind(raw, wat.echo())
        for backtrack, seen in ((None, 0), (0, 0), (1, 0), (3, 2)):
            op = {"id": seq_id, "tokens": [5, 6]} | ({} if backtrack is None else {"backtrack": backtrack})
            data = post_pre(raw, post_ops=[op])["data"]
            assert data["post_seqs"][str(seq_id)]["logs"] == f'{{"tokens":[5,6],"backtrack":{seen}}}'
            assert data["post_seqs"][str(seq_id)]["result"] == {"stop": False}
            assert data["pre_seqs"][str(seq_id)]["logs"] == "{}"
        post_pre(raw, freed=[seq_id])

    def test_pre_runs_for_every_live_sequence(self, raw: RawEngine) -> None:
        first, second = bind(raw, wat.plain()), bind(raw, wat.plain())
        data = post_pre(raw, post_ops=[{"id": first, "tokens": [1]}], freed=[second])["data"]
        assert set(data["post_seqs"]) == {str(first)}
        assert set(data["pre_seqs"]) == {str(first), str(second)}  # freed ones are answered once more
        assert set(post_pre(raw, freed=[first])["data"]["pre_seqs"]) == {str(first)}
        assert post_pre(raw)["data"] == {"post_seqs": {}, "pre_seqs": {}}

    def test_freeing_twice_is_no_error(self, raw: RawEngine) -> None:
        seq_id = bind(raw, wat.plain())
        post_pre(raw, freed=[seq_id])
        assert post_pre(raw, freed=[seq_id])["type"] == "ok"

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"post_ops": [{"id": 99_999, "tokens": []}]}, "invalid id 99999"),
            ({"pre_ops": [{"id": 99_999, "req_id": "nope"}]}, "invalid req_id nope"),
            ({"post_ops": [{"tokens": []}]}, "field id missing or not int"),
            ({"post_ops": [{"id": 1, "tokens": "x"}]}, "field tokens missing or not list"),
            ({"post_ops": [1]}, "an op is not an object"),
            ({"post_ops": None}, "field post_ops missing or not list"),
            ({"freed": [-1]}, "field freed is not a list of unsigned integers"),
        ],
    )
    def test_refused_as_a_whole(self, raw: RawEngine, fields: dict[str, Any], text: str) -> None:
        assert error(post_pre(raw, **fields)) == text

    def test_a_refused_command_changes_nothing(self, raw: RawEngine) -> None:
        live, req_id = bind(raw, wat.plain()), instantiate(raw, wat.plain())
        fresh = next(_numbers)
        duplicate = [{"id": fresh, "req_id": req_id}, {"id": live, "req_id": req_id}]
        assert error(post_pre(raw, pre_ops=duplicate)) in (f"duplicate id {live}", f"invalid req_id {req_id}")
        twice = [{"id": live, "tokens": []}] * 2
        assert error(post_pre(raw, post_ops=twice, freed=[live])) == f"duplicate id {live}"
        data = post_pre(raw, pre_ops=[{"id": fresh, "req_id": req_id}], freed=[live, fresh])["data"]
        assert set(data["pre_seqs"]) == {str(live), str(fresh)}

    def test_a_request_is_bound_once(self, raw: RawEngine) -> None:
        req_id, seq_id = instantiate(raw, wat.plain()), next(_numbers)
        post_pre(raw, pre_ops=[{"id": seq_id, "req_id": req_id}])
        again = post_pre(raw, pre_ops=[{"id": next(_numbers), "req_id": req_id}])
        assert error(again) == f"invalid req_id {req_id}"
        post_pre(raw, freed=[seq_id])


def row(raw: RawEngine, index: int) -> set[int]:
    """The tokens that row `index` of the original's float matrix allows."""
    values = struct.unpack_from(f"<{BYTE_LEVEL_SIZE}f", raw.bin, index * BYTE_LEVEL_SIZE * 4)
    assert set(values) <= {0.0, -100.0}
    return {token for token, value in enumerate(values) if value == 0.0}


class TestMid:
    def test_rows_in_the_order_of_ops(self, raw: RawEngine) -> None:
        one = wat.Module()
        first = bind(raw, one.build(mid="(call $allow (i32.const 0x80000001))" + one.answer(wat.SAMPLE)))
        second = bind(raw, wat.plain())
        response = raw.call(op="mid_process", ops=[{"id": second, "clone_id": None}, {"id": first}])
        assert response["data"]["num_seqs"] == 2
        entry = response["data"]["seqs"][str(first)]
        assert (entry["error"], entry["result"], entry["storage"], entry["logs"]) == ("", None, [], "")
        assert row(raw, 0) == {1, 2}
        assert row(raw, 1) == {0, 31}
        post_pre(raw, freed=[first, second])

    @pytest.mark.parametrize(
        ("answer", "result", "allowed"),
        [
            ('"Stop"', None, {0}),
            ('{"Splice":{"backtrack":0,"ff_tokens":[7,8]}}', {"ff_tokens": [7, 8], "backtrack": 0}, {7}),
            (
                '{"Splice":{"backtrack":2,"ff_tokens":[]}}',
                {"ff_tokens": [], "backtrack": 3},
                set(range(BYTE_LEVEL_SIZE)),
            ),
            (wat.SAMPLE, None, set()),  # no bias at all: -100 everywhere constrains nothing
        ],
    )
    def test_results(self, raw: RawEngine, answer: str, result: Any, allowed: set[int]) -> None:
        module = wat.Module()
        seq_id = bind(raw, module.build(mid=module.answer(answer)))
        response = raw.call(op="mid_process", ops=[{"id": seq_id}])
        assert response["data"]["seqs"][str(seq_id)]["result"] == result
        assert row(raw, 0) == allowed
        post_pre(raw, freed=[seq_id])

    def test_biases_are_joined_and_stray_bits_dropped(self, raw: RawEngine) -> None:
        module = wat.Module()
        last_word = 0x400 + 4 * (BYTE_LEVEL_SIZE // 32)
        stray = f"(i32.store (i32.const {last_word}) (i32.const -1))"
        body = f"{stray} (call $allow (i32.const 2)) (call $allow (i32.const 4))"
        seq_id = bind(raw, module.build(mid=body + module.answer(wat.SAMPLE)))
        raw.call(op="mid_process", ops=[{"id": seq_id}])
        assert row(raw, 0) == {1, 2, *range(BYTE_LEVEL_SIZE // 32 * 32, BYTE_LEVEL_SIZE)}
        post_pre(raw, freed=[seq_id])

    def test_no_ops(self, raw: RawEngine) -> None:
        assert raw.call(op="mid_process", ops=[])["data"] == {"seqs": {}, "num_seqs": 0}

    def test_refused_as_a_whole(self, raw: RawEngine) -> None:
        assert error(raw.call(op="mid_process", ops=[{"id": 77_777}])) == "invalid id 77777"
        assert error(raw.call(op="mid_process", ops=[{"id": 1}] * 2)) == "duplicate id 1"
        assert error(raw.call(op="mid_process")) == "field ops missing or not list"

    def test_too_many_rows(self, raw: RawEngine) -> None:
        seq_id = bind(raw, wat.plain())
        clones = [{"id": next(_numbers), "clone_id": seq_id} for _ in range((1 << 20) // (BYTE_LEVEL_SIZE * 4) + 1)]
        assert error(raw.call(op="mid_process", ops=clones)) == "shm size too small"
        post_pre(raw, freed=[seq_id])


class TestClone:
    def test_a_clone_goes_on_from_its_parent(self, raw: RawEngine) -> None:
        parent, child = bind(raw, wat.echo()), next(_numbers)
        seqs = raw.call(op="mid_process", ops=[{"id": child, "clone_id": parent}, {"id": parent}])["data"]["seqs"]
        for seq_id in (parent, child):
            assert seqs[str(seq_id)]["logs"] == f'{{"fork_group":[{child},{parent}]}}'
        seqs = raw.call(op="mid_process", ops=[{"id": child}])["data"]["seqs"]
        assert seqs[str(child)]["logs"] == f'{{"fork_group":[{child}]}}'
        post_pre(raw, freed=[parent])
        assert set(post_pre(raw, freed=[child])["data"]["pre_seqs"]) == {str(child)}  # outlives the parent

    def test_memories_are_separate(self, raw: RawEngine) -> None:
        module = wat.Module()
        count = "(global.set $steps (i32.add (global.get $steps) (i32.const 1)))"
        mid = f"{count} (call $allow (i32.shl (i32.const 1) (global.get $steps)))"
        parent = bind(raw, module.build(mid=mid + module.answer(wat.SAMPLE)))
        child = next(_numbers)
        raw.call(op="mid_process", ops=[{"id": parent}])
        raw.call(op="mid_process", ops=[{"id": parent}, {"id": child, "clone_id": parent}])
        assert [row(raw, k) for k in (0, 1)] == [{2}, {2}]
        raw.call(op="mid_process", ops=[{"id": child}])
        raw.call(op="mid_process", ops=[{"id": child}, {"id": parent}])
        assert [row(raw, k) for k in (0, 1)] == [{4}, {3}]
        post_pre(raw, freed=[parent, child])

    def test_errors_are_per_sequence(self, raw: RawEngine) -> None:
        parent, other = bind(raw, wat.plain()), bind(raw, wat.plain())
        orphan = next(_numbers)
        ops = [{"id": parent}, {"id": other, "clone_id": parent}, {"id": orphan, "clone_id": 88_888}]
        seqs = raw.call(op="mid_process", ops=ops)["data"]["seqs"]
        assert seqs[str(parent)]["error"] == ""
        assert seqs[str(other)]["error"] == f"Worker: duplicate id {other} (cloning {parent})"
        assert seqs[str(orphan)]["error"] == "Worker: invalid id 88888"
        assert row(raw, 0) == {1, 2}
        post_pre(raw, freed=[parent, other, orphan])

    def test_limit(self, raw: RawEngine) -> None:
        parent = bind(raw, wat.plain())
        clones = [next(_numbers) for _ in range(16)]
        ops = [{"id": parent}, *({"id": clone, "clone_id": parent} for clone in clones)]
        seqs = raw.call(op="mid_process", ops=ops)["data"]["seqs"]
        errors = [seqs[str(clone)]["error"] for clone in clones]
        assert errors == [""] * 15 + ["Worker: too many forks (max=16)"]
        post_pre(raw, freed=clones)
        again = next(_numbers)
        seqs = raw.call(op="mid_process", ops=[{"id": again, "clone_id": parent}, {"id": parent}])["data"]["seqs"]
        assert seqs[str(again)]["error"] == ""
        post_pre(raw, freed=[parent, again])


def test_a_response_that_does_not_fit_says_so(raw: RawEngine) -> None:
    """20 guests with 64 KiB of log each make more than the mailbox of 1 MiB."""
    module = wat.Module()
    noisy = module.build(pre=module.log("x" * 60_000) + module.answer(wat.PRE_GO))
    ids = [next(_numbers) for _ in range(20)]
    pre_ops = [{"id": seq_id, "req_id": instantiate(raw, noisy)} for seq_id in ids]
    assert error(post_pre(raw, pre_ops=pre_ops)).startswith("msg too large; ")
    assert len(post_pre(raw, freed=ids[:1]).get("error", "")) > 0
    for seq_id in ids:  # each call frees one more until it fits
        post_pre(raw, freed=[seq_id])
    assert post_pre(raw)["data"]["pre_seqs"] == {}


def test_restricted(byte_level: Path, cache_dir: Path) -> None:
    engine = RawEngine(byte_level, cache_dir, "--restricted")
    try:
        assert error(engine.side(op="mk_module", binary="")) == "module upload disabled"
        tags = {"module_id": "0" * 64, "tags": ["a"], "$auth": ADMIN}
        assert error(engine.side(op="set_tags", **tags)) == "module upload disabled"
        assert engine.side(op="get_tags")["type"] == "ok"
    finally:
        engine.close()


@pytest.mark.parametrize("side", ["", "-side"])
def test_stop_ends_the_process_without_an_answer(byte_level: Path, cache_dir: Path, side: str) -> None:
    engine = RawEngine(byte_level, cache_dir)
    try:
        bind(engine, wat.plain())
        engine.send_bytes(b'{"op":"stop"}', side)
        assert engine.process.wait(10) == 0
    finally:
        engine.close()
