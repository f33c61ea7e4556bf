"""The host functions as a guest sees them: blobs, trie, tokens, variables, log, WASI; and forbidden actions."""

import base64
import json
import struct
from typing import Any

import pytest

from tests.wire.support import puppet
from tests.wire.support.engine import Binary, Engine, fresh
from tests.wire.support.guests import Guests
from tests.wire.support.puppet import log, store
from tests.wire.support.tries import Trie

VOCAB, EOS = 261, 0
CALLBACKS = ("init_prompt", "pre_process", "mid_process", "post_process")
STUBS = {
    "args_get": "i32 i32", "args_sizes_get": "i32 i32", "environ_get": "i32 i32", "environ_sizes_get": "i32 i32",
    "fd_close": "i32", "fd_fdstat_get": "i32 i32", "fd_filestat_get": "i32 i32", "fd_filestat_set_size": "i32 i64",
    "fd_prestat_dir_name": "i32 i32 i32", "fd_prestat_get": "i32 i32", "fd_read": "i32 i32 i32 i32",
    "fd_readdir": "i32 i32 i32 i64 i32", "fd_seek": "i32 i64 i32 i32", "fd_sync": "i32", "fd_write": "i32 i32 i32 i32",
    "path_create_directory": "i32 i32 i32", "path_filestat_get": "i32 i32 i32 i32 i32",
    "path_filestat_set_times": "i32 i32 i32 i32 i64 i64 i32", "path_link": "i32 i32 i32 i32 i32 i32 i32",
    "path_open": "i32 i32 i32 i32 i32 i64 i64 i32 i32", "path_readlink": "i32 i32 i32 i32 i32 i32",
    "path_remove_directory": "i32 i32 i32", "path_rename": "i32 i32 i32 i32 i32 i32", "path_unlink_file": "i32 i32 i32",
    "poll_oneoff": "i32 i32 i32 i32", "random_get": "i32 i32", "sched_yield": "",
}  # fmt: skip
DONE = ("args_get", "args_sizes_get", "environ_sizes_get", "fd_fdstat_get", "fd_sync", "random_get", "sched_yield")
"""A call with zeros as arguments."""


def _zeros(params: str) -> str:
    return " ".join(f"({kind}.const 0)" for kind in params.split())


def usual(guests: Guests) -> puppet.Script:
    return puppet.DEFAULTS[guests.version]["mid"]


def logs(guests: Guests, body: puppet.Script) -> str:
    """Return the log of mid after running `body`, before the usual answer."""
    entry = guests.only_mid(body + usual(guests))
    assert entry["error"] == ""
    return str(entry["logs"])


def failure(guests: Guests, body: puppet.Script) -> str:
    """Return the error of a mid callback; check the shape of the failed result."""
    entry = guests.only_mid(body)
    assert entry["error"].startswith("Error (mid): "), entry
    assert entry["logs"].endswith("\n" + entry["error"])
    assert (entry["result"] or {}) == {}
    return str(entry["error"])


class TestBlobs:
    def test_ids_below_20_are_valid_and_empty(self, guests: Guests) -> None:
        assert logs(guests, "".join(puppet.dump(blob) for blob in (0, 3, 6, 19))) == ""

    @pytest.mark.parametrize("blob", [20, 99, 101, 0xFFFFFFFF])
    def test_others_are_fatal(self, guests: Guests, blob: int) -> None:
        assert "FATAL ERROR: invalid blob_id\n" in failure(guests, puppet.dump(blob) + usual(guests))

    @pytest.mark.parametrize("pointer", [0xFFFFFFF0, puppet.NUM_PAGES * 65536 - 8])
    def test_memory_ends_somewhere(self, guests: Guests, pointer: int) -> None:
        """A pointer beyond the memory fails the guest and no other guest."""
        failure(guests, puppet.instruction("E", puppet.TRIE, pointer) + usual(guests))


class TestTrie:
    def test_the_guests_own_encoding(self, guests: Guests, aicirt: Binary) -> None:
        """Eight length bits with `aici_pre_process`, ten without."""
        trie = Trie(bytes.fromhex(logs(guests, puppet.dump(puppet.TRIE))))
        texts = trie.texts(10 if guests.is_v2 else 8)
        assert (trie.vocab_size, trie.eos, texts[EOS]) == (VOCAB, EOS, b"")
        assert sorted(texts[1:257]) == [bytes([byte]) for byte in range(256)]
        assert texts[257:] == [b"he", b"hel", b" he", b"<note>"]
        assert {path: node.token for path, node in trie.walk() if node.token is not None} == {
            text: token for token, text in enumerate(texts) if text
        }

    def test_nodes_are_in_order_and_all_children_are_there(self, guests: Guests) -> None:
        nodes = Trie(bytes.fromhex(logs(guests, puppet.dump(puppet.TRIE)))).nodes
        assert (nodes[0].byte, nodes[0].token, nodes[0].size, nodes[0].num_parents) == (0xFF, None, len(nodes), 0)
        children, at = [], 1
        while at < len(nodes):
            children.append(nodes[at].byte)
            at += nodes[at].size
        assert children == list(range(256))


class TestTokenize:
    @pytest.mark.parametrize(
        ("text", "tokens"), [("", []), ("hel he", [258, 259]), ("<note>he", [260, 257]), ("<|endoftext|>", [0])]
    )
    def test_text(self, guests: Guests, text: str, tokens: list[int]) -> None:
        raw = bytes.fromhex(logs(guests, puppet.tokenize(text)))
        assert list(struct.unpack(f"<{len(raw) // 4}I", raw)) == tokens

    def test_bytes_that_are_no_text_harm_nobody(self, guests: Guests) -> None:
        logs(guests, puppet.words(puppet.MASK_AT, 0xFF80C3E2) + puppet.instruction("K", puppet.MASK_AT, 4))

    def test_a_wild_pointer(self, guests: Guests) -> None:
        failure(guests, puppet.instruction("K", 0xFFFFFFF0, 100) + usual(guests))


def read(name: str) -> puppet.Script:
    return store(json.dumps({"ReadVar": {"name": name}}))


def write(name: str, value: str, op: str = "Set", version: int | None = None) -> puppet.Script:
    return store(json.dumps({"WriteVar": {"name": name, "value": value, "op": op, "when_version_is": version}}))


def many(text: str) -> list[Any]:
    """Return JSON values that follow one another."""
    values, decoder = [], json.JSONDecoder()
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


class TestVariables:
    def test_versions(self, guests: Guests) -> None:
        body = read("a") + write("a", "6869") + read("a") + write("a", "21", "Append") + read("a")
        body += (
            write("a", "00", version=7)
            + write("a", "00", version=2)
            + read("a")
            + write("b", "FF", "Append")
            + read("b")
        )
        assert many(logs(guests, body)) == [
            {"VariableMissing": {}},
            {"WriteVar": {"version": 1}},
            {"ReadVar": {"version": 1, "value": "6869"}},
            {"WriteVar": {"version": 2}},
            {"ReadVar": {"version": 2, "value": "686921"}},
            {"ReadVar": {"version": 2, "value": "686921"}},
            {"WriteVar": {"version": 3}},
            {"ReadVar": {"version": 3, "value": "00"}},
            {"WriteVar": {"version": 1}},
            {"ReadVar": {"version": 1, "value": "ff"}},
        ]

    def test_missing_with_a_version(self, guests: Guests) -> None:
        assert many(logs(guests, write("a", "00", version=1) + read("a"))) == [{"VariableMissing": {}}] * 2

    def test_the_engine_is_told_of_writes_alone(self, guests: Guests) -> None:
        """All writes in order, including writes refused because of the version."""
        entry = guests.only_mid(write("a", "00") + read("a") + write("a", "01", "Append", 9) + usual(guests))
        assert entry["storage"] == [
            {"WriteVar": {"name": "a", "value": "00", "op": "Set", "when_version_is": None}},
            {"WriteVar": {"name": "a", "value": "01", "op": "Append", "when_version_is": 9}},
        ]

    def test_written_before_the_first_step(self, guests: Guests) -> None:
        entry = guests.first(prompt=write("a", "01") + puppet.DEFAULTS[guests.version]["prompt"])
        if not guests.is_v2:  # protocol v2 has already reported the log in the answer to instantiate
            assert [list(command) for command in entry["storage"]] == [["WriteVar"]]

    def test_another_request_has_its_own(self, guests: Guests) -> None:
        one = guests.bind(prompt=write("a", "01") + puppet.DEFAULTS[guests.version]["prompt"])
        assert many(logs(guests, read("a"))) == [{"VariableMissing": {}}]
        guests.free(one)

    @pytest.mark.parametrize("name", ["", 'ü\n"', "x" * 10_000])
    def test_names(self, guests: Guests, name: str) -> None:
        assert many(logs(guests, write(name, "") + read(name)))[1] == {"ReadVar": {"version": 1, "value": ""}}

    @pytest.mark.parametrize(
        "command",
        ["", "{", "[]", "{}", '"ReadVar"', '{"Other":{}}', '{"ReadVar":{}}', '{"ReadVar":{"name":1}}', '{"ReadVar":[]}',
         '{"WriteVar":{"name":"a"}}', '{"WriteVar":{"name":"a","value":"0","op":"Set","when_version_is":null}}',
         '{"WriteVar":{"name":"a","value":"xx","op":"Set","when_version_is":null}}',
         '{"WriteVar":{"name":"a","value":"00","op":"Other","when_version_is":null}}',
         '{"WriteVar":{"name":"a","value":"00","op":"Set","when_version_is":"1"}}',
         '{"ReadVar":{"name":"a"},"WriteVar":{"name":"a","value":"00","op":"Set"}}'],
    )  # fmt: skip
    def test_malformed(self, guests: Guests, command: str) -> None:
        assert "FATAL ERROR: " in failure(guests, store(command) + usual(guests))


class TestLog:
    def test_it_comes_once_and_is_text(self, guests: Guests) -> None:
        """Bytes that are not UTF-8 are replaced."""
        body = (
            log("one")
            + log("two ü")
            + puppet.words(puppet.MASK_AT, 0x0AFF61)
            + puppet.instruction("L", puppet.MASK_AT, 3)
        )
        seq_id = guests.bind(mid={0: body + usual(guests), 1: usual(guests)})
        if guests.is_v2:
            seq_id = fresh()
            entry = guests.step(
                [{"id": seq_id, "req_id": guests.request(mid={0: body + usual(guests), 1: usual(guests)})}]
            )[seq_id]
        else:
            entry = guests.mid(seq_id)
        assert entry["logs"] == "onetwo üa\ufffd\n"
        assert guests.mid(seq_id)["logs"] == ""
        guests.free(seq_id)

    def test_it_is_cut_at_the_front(self, guests: Guests) -> None:
        """The log holds 64 KiB; 16 KiB are dropped at once."""
        text = logs(guests, puppet.log_often(1000, "0123456789" * 10) + log("end"))
        assert 49_152 <= len(text) <= 65_536
        assert text.endswith("0123456789end")

    def test_a_flood_ends(self, guests: Guests) -> None:
        assert len(logs(guests, puppet.log_often(20_000, "0123456789" * 10))) <= 65_536

    def test_a_wild_pointer(self, guests: Guests) -> None:
        failure(guests, puppet.instruction("L", 0x7FFFFFFF, 100) + usual(guests))


class TestWasi:
    def test_random_is_not(self, guests: Guests) -> None:
        """Two runs give the same result: a guest is deterministic."""
        body = puppet.instruction("a", puppet.MASK_AT, 16) + puppet.dump_memory(puppet.MASK_AT, 16)
        one, two = logs(guests, body), logs(guests, body)
        assert one == two
        assert len(one) == 32

    def test_time_stands_still(self, guests: Guests) -> None:
        if guests.is_v2:  # guests of ABI v1 are told that the machine has no clock
            body = puppet.instruction("g", 1, puppet.MASK_AT) + puppet.dump_memory(puppet.MASK_AT, 8)
            assert logs(guests, body) == "0" + "00" * 8
            assert logs(guests, puppet.instruction("g", 0, puppet.MASK_AT)) == "63"

    def test_exit(self, guests: Guests) -> None:
        assert "proc_exit: 7" in failure(guests, log("bye;") + puppet.instruction("y", 7))

    def test_an_import_that_nobody_has(self, engine: Engine) -> None:
        wasm = puppet.compile_text('(module (import "env" "nope" (func)) (memory (export "memory") 1))')
        response = engine.side("mk_module", binary=base64.b64encode(wasm).decode())
        if response["type"] == "ok":
            request = {"req_id": f"r{fresh()}", "prompt": [], "module_id": response["data"]["module_id"]}
            response = engine.side("instantiate", **request)
        assert response["type"] == "error" or response["data"]["error"]

    def test_what_the_stubs_answer(self, engine: Engine) -> None:
        """All functions of the WASI preview that guests of 2024 import; a missing file descriptor returns 8."""
        imports = "".join(
            f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param {params}) (result i32)))'
            for name, params in STUBS.items()
        )
        calls = "".join(
            f"(i32.store8 (i32.const {0x100 + k}) (i32.add (i32.const 48) (call ${name} {_zeros(params)})))"
            for k, (name, params) in enumerate(STUBS.items())
        )
        exports = "".join(f'(func (export "aici_{name}") (param i32))' for name in CALLBACKS)
        wasm = puppet.compile_text(f"""(module {imports} (memory (export "memory") 1) {exports}
          (func (export "aici_init"))
          (func (export "aici_create") (result i32)
            {calls}
            (i32.store (i32.const 0) (i32.const 0x100)) (i32.store (i32.const 4) (i32.const {len(STUBS)}))
            (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
            (unreachable)))""")
        response = engine.side("instantiate", req_id=f"r{fresh()}", prompt=[], module_id=engine.upload(wasm))
        text = response["error"] if response["type"] == "error" else response["data"]["error"]
        said = text.removeprefix("Error (setup): ")
        expected = {name: "0" if name in DONE else "8" for name in STUBS}
        assert dict(zip(STUBS, said[: len(STUBS)], strict=True)) == expected

    @pytest.mark.parametrize(("fd", "answer", "first"), [(0, 0, "02"), (2, 0, "02"), (3, 8, "00")])
    def test_three_descriptors_are_devices(self, guests: Guests, fd: int, answer: int, first: str) -> None:
        body = puppet.instruction("F", fd, puppet.MASK_AT) + puppet.dump_memory(puppet.MASK_AT, 24)
        assert logs(guests, body) == f"{answer}{first}" + "00" * 23

    @pytest.mark.parametrize("fd", [0, 3])
    def test_only_two_of_them_are_written_to(self, guests: Guests, fd: int) -> None:
        assert logs(guests, puppet.instruction("O", fd)) == "8"


class TestFailures:
    def test_a_trap(self, guests: Guests) -> None:
        assert "before;" in failure(guests, log("before;") + puppet.TRAP)

    def test_stop(self, guests: Guests) -> None:
        text = failure(guests, log("before;") + puppet.STOP)
        assert text == "Error (mid): before;\n*** aici_host_stop()"

    def test_no_result(self, guests: Guests) -> None:
        assert "aici_host_return_process_result not called" in failure(guests, log("x"))

    def test_the_last_result_counts(self, guests: Guests) -> None:
        assert guests.only_mid(puppet.answer("nonsense") + usual(guests))["error"] == ""

    @pytest.mark.parametrize(("pointer", "length"), [(0xFFFFFFFF, 1), (0, 0xFFFFFFFF), (0x40000, 0x7FFFFFFF)])
    def test_a_wild_result(self, guests: Guests, pointer: int, length: int) -> None:
        failure(guests, puppet.answer_raw(pointer, length))

    def test_a_wild_mask(self, guests: Guests) -> None:
        failure(guests, puppet.bias(0xFFFFFFFC) + usual(guests))

    def test_a_stack_that_has_no_end(self, guests: Guests) -> None:
        failure(guests, puppet.RECURSE)

    def test_memory_has_an_end(self, guests: Guests) -> None:
        """The limit is 64 MiB: more is refused or fails the guest, less is granted."""
        assert logs(guests, puppet.grow(900)) == str(puppet.NUM_PAGES)
        entry = guests.only_mid(puppet.grow(1024) + usual(guests))
        assert entry["error"] or entry["logs"] == str(2**32 - 1)

    @pytest.mark.parametrize("body", [puppet.TRAP, puppet.STOP])
    def test_it_stays_failed(self, guests: Guests, body: puppet.Script) -> None:
        seq_id = guests.bind(mid=body)
        guests.mid(seq_id)
        again = guests.mid(seq_id)
        assert again["error"]
        assert again["result"] is None
        guests.free(seq_id)

    def test_neighbours_go_on(self, guests: Guests) -> None:
        good = guests.bind()
        bad = [guests.request(mid=body) for body in (puppet.TRAP, puppet.STOP, puppet.RECURSE, puppet.answer("{"))]
        seqs = {fresh(): req_id for req_id in bad}
        bound = [{"id": seq_id, "req_id": req_id} for seq_id, req_id in seqs.items()]
        if not guests.is_v2:
            guests.post_pre(pre_ops=bound)
            bound = [{"id": seq_id} for seq_id in seqs]
        stepped = guests.step([{"id": good}, *bound])
        assert stepped[good]["error"] == ""
        assert all(stepped[seq_id]["error"].startswith("Error (mid): ") for seq_id in seqs)
        guests.free(good, *seqs)
