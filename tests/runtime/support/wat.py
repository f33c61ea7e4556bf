"""Guests written in the text format, so that the runtime's tests need no toolchain."""

from functools import cache

import wasmtime

PRE_GO = '{"num_forks":1,"suspend":false,"ff_tokens":[]}'
SAMPLE = '{"SampleWithBias":{}}'
NO_STOP = '{"stop":false}'

SPIN = "(loop $forever (br $forever))"
TRAP = "(unreachable)"
ECHO = "(call $echo (call $process_arg))"
"""Log the argument of the callback."""

_MEMORY_MAP = """
    0x0000 scratch: iovec, sizes    0x0400 mask    0x8000 blobs    0x30000 texts
"""
_TEXTS_AT = 0x30000


def _escape(text: str) -> str:
    return "".join(f"\\{byte:02x}" for byte in text.encode())


class Module:
    """Collects texts for `answer(text)`, `log(text)` and `store(text)` in bodies."""

    def __init__(self) -> None:
        self._data: list[str] = []
        self._next = _TEXTS_AT

    def text(self, text: str) -> str:
        length = len(text.encode())
        self._data.append(f'(data (i32.const {self._next}) "{_escape(text)}")')
        operands = f"(i32.const {self._next}) (i32.const {length})"
        self._next += length
        return operands

    def answer(self, text: str) -> str:
        return f"(call $return {self.text(text)})"

    def log(self, text: str) -> str:
        return f"(call $log {self.text(text)})"

    def store(self, command: str) -> str:
        """Run a storage command and log the response."""
        return f"(call $echo (call $storage_cmd {self.text(command)}))"

    def tokenize(self, text: str) -> str:
        """Tokenize and push the number of bytes of the tokens as an i32."""
        return f"(call $read_blob (call $tokenize {self.text(text)}) (i32.const 0x8000) (i32.const 4096))"

    def build(
        self,
        *,
        prompt: str = "",
        pre: str | None = None,
        mid: str | None = None,
        post: str | None = None,
        create: str = "(i32.const 7)",
        extra: str = "",
    ) -> bytes:
        prompt = prompt or self.answer("{}")
        pre = self.answer(PRE_GO) if pre is None else pre
        mid = self.answer(SAMPLE) if mid is None else mid
        post = self.answer(NO_STOP) if post is None else post
        data = "\n".join(self._data)
        return bytes(
            wasmtime.wat2wasm(f"""(module
  (import "env" "aici_host_read_blob" (func $read_blob (param i32 i32 i32) (result i32)))
  (import "env" "aici_host_return_process_result" (func $return (param i32 i32)))
  (import "env" "aici_host_return_logit_bias" (func $bias (param i32)))
  (import "env" "aici_host_process_arg" (func $process_arg (result i32)))
  (import "env" "aici_host_module_arg" (func $module_arg (result i32)))
  (import "env" "aici_host_token_trie" (func $trie (result i32)))
  (import "env" "aici_host_self_seq_id" (func $self_seq_id (result i32)))
  (import "env" "aici_host_eos_token" (func $eos_token (result i32)))
  (import "env" "aici_host_tokenize" (func $tokenize (param i32 i32) (result i32)))
  (import "env" "aici_host_storage_cmd" (func $storage_cmd (param i32 i32) (result i32)))
  (import "env" "aici_host_stop" (func $stop))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 8)
  (global $steps (mut i32) (i32.const 0))
  {data}
  (func $log (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $echo (param $blob i32)
    (local $len i32)
    (local.set $len (call $read_blob (local.get $blob) (i32.const 0x8000) (i32.const 0x10000)))
    (call $log (i32.const 0x8000) (select (local.get $len) (i32.const 0x10000)
      (i32.lt_u (local.get $len) (i32.const 0x10000)))))
  (func $allow (param $word i32) (i32.store (i32.const 0x400) (local.get $word)) (call $bias (i32.const 0x400)))
  (func (export "aici_init"))
  (func (export "aici_create") (result i32) {create})
  (func (export "aici_init_prompt") (param $h i32) {prompt})
  (func (export "aici_pre_process") (param $h i32) {pre})
  (func (export "aici_mid_process") (param $h i32) {mid})
  (func (export "aici_post_process") (param $h i32) {post})
  {extra})""")
        )


def binary(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


@cache
def plain() -> bytes:
    """Allow tokens 1 and 2, always."""
    module = Module()
    return module.build(mid="(call $allow (i32.const 6))" + module.answer(SAMPLE))


@cache
def echo() -> bytes:
    """Log the argument of every callback, and the module argument at the start."""
    module = Module()
    return module.build(
        prompt="(call $echo (call $module_arg))" + ECHO + module.answer("{}"),
        pre=ECHO + module.answer(PRE_GO),
        mid=ECHO + module.answer(SAMPLE),
        post=ECHO + module.answer(NO_STOP),
    )
