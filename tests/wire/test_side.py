"""The side channel: modules, tags, and requests without a sequence yet."""

import base64
import hashlib
import json
from typing import Any

import pytest

from tests.wire.support import puppet
from tests.wire.support.engine import ADMIN, Engine, data, error, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.puppet import PROCESS_ARG, echo

EVE = {"user": "eve", "is_admin": False}


def encoded(binary: bytes) -> str:
    return base64.b64encode(binary).decode()


def unique_module(engine: Engine) -> bytes:
    """Return a controller never uploaded before: an ignored custom section makes the bytes unique."""
    name = f"n{fresh()}".encode()
    return puppet.module(engine.version) + bytes([0, len(name) + 1, len(name)]) + name


class TestModules:
    def test_mk_module(self, engine: Engine) -> None:
        wasm = unique_module(engine)
        reply = data(engine.side("mk_module", binary=encoded(wasm)))
        assert set(reply) == {"module_id", "wasm_size", "compiled_size", "time"}
        assert (reply["module_id"], reply["wasm_size"]) == (hashlib.sha256(wasm).hexdigest(), len(wasm))
        assert reply["compiled_size"] > 0
        assert type(reply["time"]) is int
        assert data(engine.side("mk_module", binary=encoded(wasm)))["module_id"] == reply["module_id"]

    @pytest.mark.parametrize("binary", [b"", b"not wasm", b"\0asm", b"\0asm\1\0\0\0garbage"])
    def test_what_does_not_compile(self, engine: Engine, binary: bytes) -> None:
        error(engine.side("mk_module", binary=encoded(binary)))
        module_id = hashlib.sha256(binary).hexdigest()
        error(engine.side("instantiate", req_id=f"r{fresh()}", prompt=[], module_id=module_id))
        engine.is_well()

    @pytest.mark.parametrize("binary", ["!", "ä", "QQ", "QUI=QUI=x", 5, None, []])
    def test_what_is_not_base64(self, engine: Engine, binary: Any) -> None:
        assert "binary" in error(engine.side("mk_module", binary=binary))


class TestTags:
    def test_set_and_get(self, engine: Engine) -> None:
        module_id = engine.upload(unique_module(engine))
        names = [f"plain-{engine.version}", "ä1.0_x"]
        tags = data(engine.side("set_tags", module_id=module_id, tags=names))["tags"]
        assert [tag["tag"] for tag in tags] == names
        for tag in tags:
            assert set(tag) == {"tag", "module_id", "updated_at", "updated_by", "wasm_size", "compiled_size"}
            assert (tag["module_id"], tag["updated_by"]) == (module_id, ADMIN["user"])
        listed = data(engine.side("get_tags"))["tags"]
        assert {tag["tag"] for tag in listed} >= set(names)
        ages = [tag["updated_at"] for tag in listed]
        assert ages == sorted(ages, reverse=True)

    def test_a_tag_names_a_module(self, guests: Guests) -> None:
        module_id = guests.engine.upload(puppet.module(guests.version))
        data(guests.engine.side("set_tags", module_id=module_id, tags=[f"puppet-{guests.version}"]))
        arg = puppet.program(guests.version)
        fields = {"req_id": f"r{fresh()}", "prompt": [], "module_arg": arg}
        assert guests.engine.side("instantiate", module_id=f"puppet-{guests.version}", **fields)["type"] == "ok"

    def test_the_last_one_wins(self, engine: Engine) -> None:
        one, two = engine.upload(unique_module(engine)), engine.upload(unique_module(engine))
        for module_id in (one, two):
            data(engine.side("set_tags", module_id=module_id, tags=["moved"]))
        (tag,) = [tag for tag in data(engine.side("get_tags"))["tags"] if tag["tag"] == "moved"]
        assert tag["module_id"] == two

    @pytest.mark.parametrize(
        ("tag", "text"),
        [
            ("x" * 51, "tag name too long"),
            ("ä" * 26, "tag name too long"),
            ("abcdef0123456789abcde", "tag name looks too hex"),
            ("", "tag name not identifier"),
            ("1a", "tag name not identifier"),
            ("_a", "tag name not identifier"),
            ("../../evil", "tag name not identifier"),
            ("a/b", "tag name not identifier"),
            ("a b", "tag name not identifier"),
            ("a\0b", "tag name not identifier"),
        ],
    )
    def test_names(self, engine: Engine, tag: str, text: str) -> None:
        module_id = engine.upload(puppet.module(engine.version))
        assert error(engine.side("set_tags", module_id=module_id, tags=[tag]), is_user_error=True) == text

    @pytest.mark.parametrize("tag", ["x" * 50, "abcdef0123456789abcd", "a.b_c-d", "é"])
    def test_names_that_are_well(self, engine: Engine, tag: str) -> None:
        module_id = engine.upload(puppet.module(engine.version))
        assert data(engine.side("set_tags", module_id=module_id, tags=[tag]))["tags"][0]["tag"] == tag

    def test_a_user_owns_his_prefix(self, engine: Engine) -> None:
        module_id = engine.upload(puppet.module(engine.version))
        for auth in (EVE, {"user": "eve"}, None, "eve", {"user": "ev", "is_admin": False}):
            refused = engine.side("set_tags", module_id=module_id, tags=["eve-x"], **{"$auth": auth})
            assert error(refused, is_user_error=True) == "permission denied for tag name"
        reply = data(engine.side("set_tags", module_id=module_id, tags=["eve.x"], **{"$auth": EVE}))
        assert reply["tags"][0]["updated_by"] == "eve"
        nobody = engine.side("set_tags", module_id=module_id, tags=["local.x"], **{"$auth": None})
        assert data(nobody)["tags"][0]["updated_by"] == "local"

    @pytest.mark.parametrize(("module_id", "text"), [("moved", "invalid module_id"), ("0" * 63, "invalid module_id")])
    def test_only_ids_are_tagged(self, engine: Engine, module_id: str, text: str) -> None:
        assert error(engine.side("set_tags", module_id=module_id, tags=["a"]), is_user_error=True) == text

    @pytest.mark.parametrize("fields", [{"tags": "a"}, {"tags": [1]}, {}, {"tags": None}, {"module_id": 5, "tags": []}])
    def test_malformed(self, engine: Engine, fields: dict[str, Any]) -> None:
        error(engine.side("set_tags", **{"module_id": "0" * 64} | fields))


class TestInstantiate:
    def test_the_prompt_comes_back(self, guests: Guests) -> None:
        entry = guests.instantiate(f"r{fresh()}", [5, 6, 7])
        if guests.is_v2:
            assert (entry["error"], entry["result"]["prompt"]) == ("", [5, 6, 7])
            assert (entry["storage"], entry["logs"], entry["micros"] % 10) == ([], "", 0)

    def test_the_guest_sees_the_prompt_before_it_has_a_sequence(self, guests: Guests) -> None:
        usual = puppet.DEFAULTS[guests.version]["prompt"]
        req_id, seq_id = f"r{fresh()}", fresh()
        entry = guests.instantiate(req_id, [5, 6], prompt=echo(PROCESS_ARG) + puppet.SEQ_ID + puppet.EOS + usual)
        bound = {"id": seq_id, "req_id": req_id}
        stepped = (
            guests.step([bound])[seq_id] if guests.is_v2 else guests.post_pre(pre_ops=[bound])["pre_seqs"][str(seq_id)]
        )
        # Protocol v1 reports the log so far in the first step; protocol v2 has already reported the log.
        assert entry.get("logs", "") + stepped["logs"] == '{"prompt":[5,6]}4242420'
        guests.free(seq_id)

    @pytest.mark.parametrize(
        ("module_arg", "seen"),
        [("text ü", "text ü"), (None, "null"), ({"a": [1, 2.5]}, '{"a":[1,2.5]}'), (7, "7"), ("", "")],
    )
    def test_module_arg(self, engine: Engine, module_arg: Any, seen: str) -> None:
        """A string is passed unchanged, any other value as JSON; without the field the argument is null."""
        fields = {} if module_arg is None else {"module_arg": module_arg}
        request = {"req_id": f"r{fresh()}", "prompt": [], "module_id": engine.upload(_tells_its_argument())} | fields
        response = engine.side("instantiate", **request)
        said = error(response) if response["type"] == "error" else response["data"]["error"]
        assert f"[{seen}]" in said

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"module_id": "missing"}, "tag missing not found"),
            ({"module_id": "../x"}, "tag ../x not found"),
            ({"module_id": "x" * 300}, f"tag {'x' * 300} not found"),
        ],
    )
    def test_unknown_tags(self, guests: Guests, fields: dict[str, Any], text: str) -> None:
        request = {"prompt": [1], "req_id": f"r{fresh()}"} | fields
        assert error(guests.engine.side("instantiate", **request), is_user_error=True) == text

    @pytest.mark.parametrize(
        "fields",
        [
            {"module_id": "0" * 64},
            {"module_id": None},
            {"module_id": "gh:"},
            {"module_id": "gh:a b"},
            {"prompt": None},
            {"prompt": [-1]},
            {"prompt": [2**32]},
            {"prompt": [1.5]},
            {"prompt": [True]},
            {"prompt": {}},
            {"req_id": 5},
            {"req_id": None},
            {"module_arg": json.loads("[" * 300 + "]" * 300)},
        ],
    )
    def test_malformed(self, guests: Guests, fields: dict[str, Any]) -> None:
        request = {
            "module_id": guests.engine.upload(puppet.module(guests.version)),
            "prompt": [1],
            "req_id": f"r{fresh()}",
        }
        error(guests.engine.side("instantiate", **request | fields))

    @pytest.mark.parametrize("body", [puppet.TRAP, puppet.STOP, puppet.answer("nonsense"), ""])
    def test_a_guest_that_fails(self, guests: Guests, body: puppet.Script) -> None:
        """Protocol v1 reports the failure as an error of the command, v2 in the result."""
        response = guests.try_instantiate(f"r{fresh()}", prompt=puppet.log("before;") + body)
        text = data(response)["error"] if guests.is_v2 else error(response)
        assert text.startswith("Error (setup): before;")
        if guests.is_v2:
            assert response["data"]["logs"] == f"before;\n{text}"
        if not body:
            assert "aici_host_return_process_result not called" in text

    def test_req_ids_outstanding_at_once(self, guests: Guests) -> None:
        """Every request gets its own guest, whatever the order of start."""
        ids = [f"r{fresh()}" for _ in range(6)]
        module_id = guests.engine.upload(puppet.module(guests.version))
        for req_id in ids:
            arg = puppet.program(guests.version, mid=puppet.log(req_id) + puppet.DEFAULTS[guests.version]["mid"])
            request = {"op": "instantiate", "req_id": req_id, "prompt": [], "module_id": module_id, "module_arg": arg}
            guests.engine.send(request | {"$rid": req_id, "$auth": ADMIN}, "-side")
        replies = [guests.engine.receive("-side") for _ in ids]
        assert sorted(reply["$rid"] for reply in replies) == sorted(ids)
        seqs = {fresh(): req_id for req_id in ids}
        bound = [{"id": seq_id, "req_id": req_id} for seq_id, req_id in seqs.items()]
        if not guests.is_v2:
            guests.post_pre(pre_ops=bound)
        stepped = guests.step(bound if guests.is_v2 else [{"id": seq_id} for seq_id in seqs])
        assert {seq_id: entry["logs"] for seq_id, entry in stepped.items()} == seqs
        guests.free(*seqs)


def _tells_its_argument() -> bytes:
    """A guest that fails in `aici_create` and logs its argument in brackets."""
    return puppet.compile_text("""(module
      (import "env" "aici_host_read_blob" (func $read (param i32 i32 i32) (result i32)))
      (import "env" "aici_host_module_arg" (func $arg (result i32)))
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (data (i32.const 0x100) "[")
      (func (export "aici_init"))
      (func (export "aici_create") (result i32) (local $n i32)
        (local.set $n (call $read (call $arg) (i32.const 0x101) (i32.const 1000)))
        (i32.store8 (i32.add (i32.const 0x101) (local.get $n)) (i32.const 93))
        (i32.store (i32.const 0) (i32.const 0x100))
        (i32.store (i32.const 4) (i32.add (local.get $n) (i32.const 2)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (unreachable))
      (func (export "aici_init_prompt") (param i32))
      (func (export "aici_pre_process") (param i32))
      (func (export "aici_mid_process") (param i32))
      (func (export "aici_post_process") (param i32)))""")
