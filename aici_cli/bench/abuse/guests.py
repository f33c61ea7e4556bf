"""Hostile controllers, as WebAssembly text, and modules that are hard to compile."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

_TEXT: Final = """(module
  (type $bare (func))
  (import "env" "aici_host_return_process_result" (func $answer (param i32 i32)))
  (import "env" "aici_host_return_logit_bias" (func $allow (param i32)))
  (import "env" "aici_host_eos_token" (func $eos (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "{}")
  (data (i32.const 16) "{\\22num_forks\\22:1,\\22suspend\\22:false,\\22ff_tokens\\22:[]}")
  (data (i32.const 80) "{\\22num_forks\\22:%(forks)d,\\22suspend\\22:false,\\22ff_tokens\\22:[]}")
  (data (i32.const 144) "{\\22SampleWithBias\\22:{}}")
  (data (i32.const 176) "{\\22stop\\22:false}")
  (global $forked (mut i32) (i32.const 0))
  (func $spin (param $turns i32) (local $n i32)
    (loop $again
      (local.set $n (i32.mul (i32.xor (local.get $n) (local.get $turns)) (i32.const 0x01000193)))
      (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
      (br_if $again (i32.or (local.get $turns) (i32.eq (local.get $n) (i32.const 7)))))
    (i32.store (i32.const 192) (local.get $n)))
  (func $forever (loop $again (call $spin (i32.const 1000000)) (br $again)))
  (func (export "aici_init") (type $bare))
  (func (export "aici_create") (result i32)
    (local $byte i32)
    (memory.fill (i32.const 65536) (i32.const 255) (i32.const 65536))
    (local.set $byte (i32.add (i32.const 65536) (i32.shr_u (call $eos) (i32.const 3))))
    (i32.store8 (local.get $byte) (i32.xor (i32.const 255)
      (i32.shl (i32.const 1) (i32.and (call $eos) (i32.const 7)))))
    (i32.const 0))
  (func (export "aici_init_prompt") (param i32) %(init)s (call $answer (i32.const 0) (i32.const 2)))
  (func (export "aici_pre_process") (param i32)
    (if (global.get $forked)
      (then (call $answer (i32.const 16) (i32.const 46)))
      (else (global.set $forked (i32.const 1)) (call $answer (i32.const 80) (i32.const %(fork_len)d)))))
  (func (export "aici_mid_process") (param i32)
    %(mid)s (call $allow (i32.const 65536)) (call $answer (i32.const 144) (i32.const 21)))
  (func (export "aici_post_process") (param i32) (call $answer (i32.const 176) (i32.const 14))))"""

_FOREVER: Final = "(call $forever)"
_KINDS: Final[Mapping[str, dict[str, object]]] = {
    "honest": {},
    "fork": {"forks": 16},
    "loop in mid": {"mid": _FOREVER},
    "loop in init": {"init": _FOREVER},
    "busy mid": {"mid": "(call $spin (i32.const 40000000))"},
}


def guest(kind: str) -> bytes:
    """Return a controller that allows every token but the end of the text.

    Kinds: `honest`, `fork` (into 16 guests, once), `loop in mid`, `loop in init`, and `busy mid` (about 50 ms of
    processor time a step, below the limit for a step).
    """
    from wasmtime import wat2wasm

    filled: dict[str, object] = {"forks": 1, "init": "", "mid": ""} | _KINDS[kind]
    filled["fork_len"] = 45 + len(str(filled["forks"]))
    return bytes(wat2wasm(_TEXT % filled))


def with_empty_functions(wasm: bytes, count: int) -> bytes:
    """Return `wasm` with `count` further functions of its type 0, which has neither parameters nor results."""
    return _extended(wasm, count, b"\0" * count, b"\x02\0\x0b" * count)


def with_large_function(wasm: bytes, num_bytes: int) -> bytes:
    """Return `wasm` with one more function of type 0: `num_bytes` of nested conditions on one local variable."""
    # block; br_if 0 (local 0); local 0 += 1; end
    turn = b"\x02\x40\x20\x00\x0d\x00\x20\x00\x41\x01\x6a\x21\x00\x0b"
    body = b"\x01\x01\x7f" + turn * (num_bytes // len(turn)) + b"\x0b"
    return _extended(wasm, 1, b"\0", _leb128(len(body)) + body)


def renamed(wasm: bytes, name: str) -> bytes:
    """Return `wasm` with a custom section that holds `name`: the same module under another id."""
    body = _leb128(len(name)) + name.encode()
    return wasm + b"\0" + _leb128(len(body)) + body


def _extended(wasm: bytes, count: int, types: bytes, bodies: bytes) -> bytes:
    added = {3: types, 10: bodies}
    result = bytearray(wasm[:8])
    for number, content in _sections(wasm):
        if number in added:
            had, at = _read_leb128(content, 0)
            content = _leb128(had + count) + content[at:] + added[number]
        result += bytes([number]) + _leb128(len(content)) + content
    return bytes(result)


def _sections(wasm: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(wasm):
        size, begin = _read_leb128(wasm, at + 1)
        yield wasm[at], wasm[begin : begin + size]
        at = begin + size


def _read_leb128(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in itertools.count(0, 7):
        number |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            break
    return number, at


def _leb128(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])
