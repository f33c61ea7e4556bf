"""Guests made for measuring: one walks the whole trie in every step, one traps, one never ends.

The guests are in the text format, so measuring needs no toolchain.
"""

import wasmtime

_SAMPLE = b'{"SampleWithBias":{}}'
_GO_ON = b'{"num_forks":1,"suspend":false,"ff_tokens":[]}'
_NO_STOP = b'{"stop":false}'
_EMPTY = b"{}"
_TEXTS = b"".join((_SAMPLE, _GO_ON, _NO_STOP, _EMPTY))


def _answer(text: bytes) -> str:
    return f"(call $return (i32.const {0x40 + _TEXTS.index(text)}) (i32.const {len(text)}))"


TRAP = "(unreachable)"
SPIN = "(loop $forever (br $forever))"
WALK = f"""
    (local $at i32) (local $end i32) (local $node i32) (local $next i32) (local $depth i32) (local $state i32)
    (memory.fill (i32.const 0x10000) (i32.const 0) (i32.const 0x10000))
    (local.set $at (i32.const 0x2001C))
    (local.set $end (i32.add (local.get $at) (i32.load (i32.const 0x20008))))
    (local.set $at (i32.add (local.get $at) (i32.const 8)))
    (block $done
      (loop $walk
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $node (i32.load (local.get $at)))
        (local.set $next (i32.load offset=4 (local.get $at)))
        (local.set $state (i32.load8_u offset=0x800 (i32.or
          (i32.shl (i32.load8_u offset=0x400 (local.get $depth)) (i32.const 8))
          (i32.and (local.get $node) (i32.const 0xFF)))))
        (if (i32.eq (local.get $state) (i32.const 2))
          (then
            (local.set $at (i32.add (local.get $at)
              (i32.shl (i32.shr_u (local.get $next) (i32.const 8)) (i32.const 3))))
            (local.set $depth (i32.add (i32.const 1)
              (i32.sub (local.get $depth) (i32.and (local.get $next) (i32.const 0xFF)))))
            (br $walk)))
        (local.set $depth (i32.add (local.get $depth) (i32.const 1)))
        (i32.store8 offset=0x400 (local.get $depth) (local.get $state))
        (local.set $node (i32.shr_u (local.get $node) (i32.const 8)))
        (if (i32.ne (local.get $node) (i32.const 0xFFFFFF))
          (then
            (local.set $state (i32.shr_u (local.get $node) (i32.const 3)))
            (i32.store8 offset=0x10000 (local.get $state) (i32.or
              (i32.load8_u offset=0x10000 (local.get $state))
              (i32.shl (i32.const 1) (i32.and (local.get $node) (i32.const 7)))))))
        (if (i32.eq (i32.shr_u (local.get $next) (i32.const 8)) (i32.const 1))
          (then (local.set $depth (i32.sub (local.get $depth) (i32.and (local.get $next) (i32.const 0xFF))))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br $walk)))
    (call $bias (i32.const 0x10000))
    {_answer(_SAMPLE)}
"""
"""Allow everything possible inside a JSON string: nearly every token, so nearly every node is visited."""

_MEMORY_MAP = """
    0x40 texts    0x400 states by depth    0x800 the automaton, 256 bytes a state    0x10000 mask    0x20000 trie
"""
_DEAD = 2


def guest(mid: str) -> bytes:
    """Return a module whose `aici_mid_process` is `mid`."""
    return bytes(
        wasmtime.wat2wasm(f"""(module
  (import "env" "aici_host_read_blob" (func $read_blob (param i32 i32 i32) (result i32)))
  (import "env" "aici_host_return_process_result" (func $return (param i32 i32)))
  (import "env" "aici_host_return_logit_bias" (func $bias (param i32)))
  (import "env" "aici_host_token_trie" (func $trie (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0x40) "{_escape(_TEXTS)}")
  (data (i32.const 0x800) "{_escape(_json_string())}")
  (func (export "aici_init"))
  (func (export "aici_create") (result i32)
    (local $size i32)
    (local.set $size (call $read_blob (call $trie) (i32.const 0) (i32.const 0)))
    (drop (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1))))
    (call $read_blob (call $trie) (i32.const 0x20000) (local.get $size)))
  (func (export "aici_init_prompt") (param i32) {_answer(_EMPTY)})
  (func (export "aici_pre_process") (param i32) {_answer(_GO_ON)})
  (func (export "aici_post_process") (param i32) {_answer(_NO_STOP)})
  (func (export "aici_mid_process") (param i32) {mid}))""")
    )


def _json_string() -> bytes:
    """Return the transitions of state 0 (inside a string) and 1 (after a backslash) by byte: 0, 1 or dead."""
    inside = [_DEAD if byte < 0x20 or byte == 0x22 else int(byte == 0x5C) for byte in range(256)]
    escaped = [0 if byte in b'"\\/bfnrt' else _DEAD for byte in range(256)]
    return bytes(inside + escaped)


def _escape(text: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in text)
