"""Our extensions of the side channel: the store behind the channel, our messages, `discard`. The rest: tests/wire."""

import base64
import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aici_base.ids import TokenId
from aici_controllers.catalog import guest_path
from tests.runtime.support import wat
from tests.runtime.support.processes import wait_until
from tests.runtime.support.raw import RawEngine
from tests.runtime.support.tokenizer import BYTE_LEVEL_SIZE
from tests.support.large_module import padded

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


def post_pre(raw: RawEngine, **fields: Any) -> Any:
    return raw.call(op="post_pre_process", **{"post_ops": [], "pre_ops": [], "freed": []} | fields)


def error(response: Any) -> str:
    assert response["type"] == "error"
    assert isinstance(response["is_user_error"], bool)
    return str(response["error"])


class TestModules:
    def test_second_upload_is_not_compiled_again(self, raw: RawEngine, cache_dir: Path) -> None:
        (compiled,) = cache_dir.glob(f"modules/{upload(raw, wat.plain())}-*.cwasm")
        before = compiled.stat().st_ino, compiled.read_bytes()  # the time of the file is that of the last use
        upload(raw, wat.plain())
        assert (compiled.stat().st_ino, compiled.read_bytes()) == before

    def test_lost_code_is_compiled_again(self, raw: RawEngine, cache_dir: Path) -> None:
        (compiled,) = cache_dir.glob(f"modules/{upload(raw, wat.plain())}-*.cwasm")
        compiled.unlink()
        instantiate(raw, wat.plain())
        assert compiled.is_file()

    def test_a_module_may_be_compiled_in_the_background(self, raw: RawEngine, cache_dir: Path) -> None:
        told = self.upload_for_later(raw, padded(wat.plain(), 1))["data"]
        assert told["compiled_size"] == 0
        wait_until(lambda: any(cache_dir.glob(f"modules/{told['module_id']}-*.cwasm")))

    def test_a_guest_may_start_before_its_module_is_compiled(self, raw: RawEngine) -> None:
        told = self.upload_for_later(raw, padded(wat.plain(), 2))["data"]
        assert told["compiled_size"] == 0
        started = raw.side(op="instantiate", module_id=told["module_id"], prompt=[1], module_arg="", req_id="early")
        assert started["type"] == "ok"

    def test_starts_that_wait_for_a_compilation_keep_nobody_waiting(self, raw: RawEngine) -> None:
        told = raw.side(op="mk_module", path=str(guest_path("jsctrl")), compile_later=True, **{"$auth": ADMIN})["data"]
        start = {"op": "instantiate", "module_id": told["module_id"], "prompt": [1], "module_arg": ""}
        waiting = {f"waits-{number}" for number in range(20)}
        for rid in sorted(waiting):
            raw.send_bytes(json.dumps(start | {"req_id": rid, "$rid": rid}).encode(), "-side")
        assert raw.side(op="ping", **{"$rid": "ping"})["$rid"] == "ping"
        assert {raw.receive("-side")["$rid"] for _ in waiting} == waiting

    def test_only_admins_may_have_a_module_compiled_later(self, raw: RawEngine) -> None:
        refused = self.upload_for_later(raw, wat.plain(), {"user": "x", "is_admin": False})
        assert error(refused) == "field compile_later is for admins"

    def test_a_wrong_compile_later_is_named(self, raw: RawEngine) -> None:
        binary = base64.b64encode(wat.plain()).decode()
        refused = raw.side(op="mk_module", binary=binary, compile_later="yes", **{"$auth": ADMIN})
        assert "compile_later" in error(refused)

    @staticmethod
    def upload_for_later(raw: RawEngine, wasm: bytes, auth: object = ADMIN) -> Any:
        binary = base64.b64encode(wasm).decode()
        return raw.side(op="mk_module", binary=binary, compile_later=True, **{"$auth": auth})

    @pytest.mark.parametrize("binary", [b"", b"not wasm", b"\0asm\1\0\0\0garbage"])
    def test_garbage(self, raw: RawEngine, binary: bytes, cache_dir: Path) -> None:
        response = raw.side(op="mk_module", binary=base64.b64encode(binary).decode())
        assert "cannot compile the module" in error(response)
        assert response["is_user_error"]
        assert not (cache_dir / "modules" / f"{hashlib.sha256(binary).hexdigest()}.wasm").exists()

    def test_a_module_may_come_as_a_file(self, raw: RawEngine, tmp_path: Path) -> None:
        wasm = padded(wat.plain(), 9 << 20)  # a message has 8 MiB at most
        (tmp_path / "large.wasm").write_bytes(wasm)
        told = raw.side(op="mk_module", path=str(tmp_path / "large.wasm"), **{"$auth": ADMIN})
        assert told["data"]["module_id"] == hashlib.sha256(wasm).hexdigest()
        assert told["data"]["wasm_size"] == len(wasm)

    @pytest.mark.parametrize(
        ("path", "auth", "said"),
        [
            ("/no/such/file", ADMIN, "cannot be read"),
            ("/dev/null", ADMIN, "is no regular file"),
            ("a\0b", ADMIN, "cannot be read"),
            ("/etc/passwd", ADMIN, "cannot compile"),
            ("/etc/passwd", {"user": "x", "is_admin": False}, "for admins"),
            (3, ADMIN, "field path missing"),
        ],
    )
    def test_files_that_are_no_modules(self, raw: RawEngine, path: object, auth: object, said: str) -> None:
        assert said in error(raw.side(op="mk_module", path=path, **{"$auth": auth}))

    def test_a_reason_longer_than_a_pipe(self, raw: RawEngine) -> None:
        """The reason quotes a doubly exported name of 90,000 bytes."""
        name = b"\x90\xbf\x05" + b"n" * 90_000
        exports = b"\x02" + 2 * (name + b"\x00\x00")
        sections = [(1, b"\x01\x60\x00\x00"), (3, b"\x01\x00"), (7, exports), (10, b"\x01\x02\x00\x0b")]
        binary = b"\0asm\1\0\0\0"
        for number, body in sections:
            size = bytes([len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14])
            binary += bytes([number]) + size + body
        assert "duplicate export name" in error(raw.side(op="mk_module", binary=base64.b64encode(binary).decode()))


class TestInstantiate:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
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

    def test_an_argument_longer_than_a_pipe(self, raw: RawEngine) -> None:
        req_id = instantiate(raw, wat.echo(), module_arg="x" * 300_000)
        pre_ops = [{"id": 1, "req_id": req_id}]
        logs = post_pre(raw, pre_ops=pre_ops, freed=[1])["data"]["pre_seqs"]["1"]["logs"]
        assert logs.startswith("x" * 40_000)  # the guest's buffer and the log hold 64 KiB

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
        """The slow request is answered last; `$rid` identifies the answers."""
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
