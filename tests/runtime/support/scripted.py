"""Guests with scripted answers, for both ABIs. A guest logs the input of every callback, a line per callback.

The module argument has three parts, for the three scripted callbacks: eight hexadecimal digits of length, then records.
A record: a digit, the number of masks; eight digits for the first word of every mask; eight digits of the length of the
answer; the answer. A callback with an exhausted part returns nothing, which is an error.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import wasmtime

_SHARED = """
  (import "env" "aici_host_read_blob" (func $read_blob (param i32 i32 i32) (result i32)))
  (import "env" "aici_host_return_process_result" (func $return (param i32 i32)))
  (import "env" "aici_host_return_logit_bias" (func $bias (param i32) %s))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 16)
  (global $a (mut i32) (i32.const 0)) (global $a_end (mut i32) (i32.const 0))
  (global $b (mut i32) (i32.const 0)) (global $b_end (mut i32) (i32.const 0))
  (global $c (mut i32) (i32.const 0)) (global $c_end (mut i32) (i32.const 0))
  (data (i32.const 0x100) "\\n")
  (func $log (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $hex (param $at i32) (param $digits i32) (result i32)
    (local $value i32) (local $digit i32)
    (loop $next
      (local.set $digit (i32.load8_u (local.get $at)))
      (local.set $value (i32.add (i32.shl (local.get $value) (i32.const 4))
        (i32.sub (local.get $digit)
          (select (i32.const 87) (i32.const 48) (i32.ge_u (local.get $digit) (i32.const 97))))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (local.tee $digits (i32.sub (local.get $digits) (i32.const 1)))))
    (local.get $value))
  (func $echo
    (call $log (i32.const 0x8000) (call $read_blob (i32.const 4) (i32.const 0x8000) (i32.const 0x8000)))
    (call $log (i32.const 0x100) (i32.const 1)))
  (func $play (param $at i32) (param $end i32) (result i32)
    (local $masks i32) (local $len i32)
    (call $echo)
    (if (i32.ge_u (local.get $at) (local.get $end)) (then (return (local.get $at))))
    (local.set $masks (call $hex (local.get $at) (i32.const 1)))
    (local.set $at (i32.add (local.get $at) (i32.const 1)))
    (block $done (loop $mask
      (br_if $done (i32.eqz (local.get $masks)))
      (i32.store (i32.const 0x400) (call $hex (local.get $at) (i32.const 8)))
      (call $bias (i32.const 0x400)) %s
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (local.set $masks (i32.sub (local.get $masks) (i32.const 1)))
      (br $mask)))
    (local.set $len (call $hex (local.get $at) (i32.const 8)))
    (local.set $at (i32.add (local.get $at) (i32.const 8)))
    (call $return (local.get $at) (local.get $len))
    (i32.add (local.get $at) (local.get $len)))
  (func $part (param $at i32) (result i32)
    (i32.add (local.get $at) (i32.add (i32.const 8) (call $hex (local.get $at) (i32.const 8)))))
  (func (export "aici_init"))
  (func (export "aici_create") (result i32)
    (drop (call $read_blob (i32.const 1) (i32.const 0x10000) (i32.const 0x80000)))
    (global.set $a (i32.const 0x10008)) (global.set $a_end (call $part (i32.const 0x10000)))
    (global.set $b (i32.add (global.get $a_end) (i32.const 8))) (global.set $b_end (call $part (global.get $a_end)))
    (global.set $c (i32.add (global.get $b_end) (i32.const 8))) (global.set $c_end (call $part (global.get $b_end)))
    (i32.const 1))
"""

_CALLBACK = """
  (func (export "%(export)s") (param i32)
    (global.set $%(part)s (call $play (global.get $%(part)s) (global.get $%(part)s_end))))"""


@dataclass(frozen=True)
class Answer:
    """`words`: the first word of every mask, returned before the answer."""

    value: object
    words: Sequence[int] = ()

    def record(self) -> str:
        text = json.dumps(self.value)
        return f"{len(self.words):x}" + "".join(f"{word:08x}" for word in self.words) + f"{len(text):08x}{text}"


def argument(first: Sequence[Answer], second: Sequence[Answer] = (), third: Sequence[Answer] = ()) -> str:
    """For a guest of ABI v2: the answers of mid. For a guest of ABI v1: the answers of pre, mid and post."""
    parts = ["".join(answer.record() for answer in answers) for answers in (first, second, third)]
    return "".join(f"{len(part):08x}{part}" for part in parts)


@cache
def abi_v1() -> bytes:
    return _module("", "", {"aici_pre_process": "a", "aici_mid_process": "b", "aici_post_process": "c"}, "{}")


@cache
def abi_v2() -> bytes:
    return _module("(result i32)", "drop", {"aici_mid_process": "a"}, '{"prompt":[1]}')


def _module(result: str, drop: str, exports: dict[str, str], init: str) -> bytes:
    body = "".join(_CALLBACK % {"export": export, "part": part} for export, part in exports.items())
    text = init.replace('"', '\\"')
    body += f"""
  (data (i32.const 0x110) "{text}")
  (func (export "aici_init_prompt") (param i32) (call $return (i32.const 0x110) (i32.const {len(init)})))"""
    return bytes(wasmtime.wat2wasm(f"(module {_SHARED % (result, drop)} {body})"))
