"""A guest of either ABI that obeys its module argument: callbacks as lists of instructions.

An argument is a string of instructions: one letter, three u32 in hex (a, b, length), and `length` bytes. `S` begins a
section: a names the callback, b the first call (counting from 0) that the section applies to. A callback runs the last
section that applies; `program` writes the default of every callback into the argument.

    memory   0x100 offsets of masks   0x200 number of calls   0x400 mask   0x8000 blobs   0x18000 texts
             0x40000 argument
"""

from functools import cache

import wasmtime

from tests.wire.support.engine import Version

Script = str
"""Instructions, run in order."""

MASK_AT, BLOB_AT, TEXT_AT = 0x400, 0x8000, 0x18000
_CALLBACKS = ("create", "prompt", "pre", "mid", "post")
NUM_PAGES = 24


def instruction(letter: str, a: int = 0, b: int = 0, payload: str = "") -> Script:
    return f"{letter}{a & 0xFFFFFFFF:08x}{b & 0xFFFFFFFF:08x}{len(payload.encode()):08x}{payload}"


def answer(text: str) -> Script:
    """Return a JSON value as the result; `MASK[k]` in the value becomes the offset of mask k of this call."""
    return instruction("o", payload=text)


def answer_raw(pointer: int, length: int) -> Script:
    return instruction("R", pointer, length)


def log(text: str) -> Script:
    return instruction("l", payload=text)


def log_often(times: int, text: str) -> Script:
    return instruction("f", times, payload=text)


def echo(blob: int) -> Script:
    return instruction("e", blob)


def dump(blob: int) -> Script:
    """Log bytes in hex."""
    return instruction("x", blob)


def dump_memory(pointer: int, length: int) -> Script:
    return instruction("d", pointer, length)


def store(command: str) -> Script:
    """Log the storage response."""
    return instruction("s", payload=command)


def await_variable(name: str) -> Script:
    """Read a variable until the variable exists."""
    return instruction("W", payload=f'{{"ReadVar":{{"name":"{name}"}}}}')


def words(pointer: int, *values: int) -> Script:
    return "".join(instruction("w", pointer + 4 * k, value) for k, value in enumerate(values))


def bias(pointer: int = MASK_AT) -> Script:
    return instruction("b", pointer)


def allow(*tokens: int) -> Script:
    """Return a mask with these bits set."""
    masks: dict[int, int] = {}
    for token in tokens:
        masks[token // 32] = masks.get(token // 32, 0) | 1 << token % 32
    bits = "".join(instruction("w", MASK_AT + 4 * word, value) for word, value in masks.items())
    return instruction("k", MASK_AT, BLOB_AT - MASK_AT) + bits + bias()


def spin(turns: int = 0) -> Script:
    """Loop; forever by default."""
    return instruction("q", turns, 1 if turns else 0)


def when(seq_id: int, body: Script) -> Script:
    """Run the instructions only in the given sequence."""
    return instruction("V", seq_id, len(body.encode())) + body


def config(name: str) -> Script:
    return instruction("c", payload=name)


def tokenize(text: str) -> Script:
    """Log token ids as hex of little-endian u32."""
    return instruction("t", payload=text)


def grow(pages: int) -> Script:
    """Log the result of memory.grow."""
    return instruction("m", pages)


def poke(pointer: int) -> Script:
    return instruction("w", pointer, 1)


PROCESS_ARG, MODULE_ARG, STORAGE_RESULT, TRIE = 4, 1, 5, 100
ECHO = echo(PROCESS_ARG)
TRAP, STOP, RECURSE = instruction("u"), instruction("h"), instruction("z")
SEQ_ID, EOS = instruction("i"), instruction("n")
MASK = tuple(f"@{k}{'@' * 8}" for k in range(8))

PRE_GO = answer('{"num_forks":1,"suspend":false,"ff_tokens":[]}')
SAMPLE = answer('{"SampleWithBias":{}}')
NO_STOP = answer('{"stop":false}')
NOTHING = answer("{}")
SAME_PROMPT = instruction("P")


def branches(*items: str) -> Script:
    return answer(f'{{"branches":[{",".join(items)}]}}')


def masked(index: int = 0, *, temperature: str = "null", splices: str = "") -> str:
    return f'{{"sample_mask":{MASK[index]},"temperature":{temperature},"splices":[{splices}]}}'


def splice(backtrack: int, *tokens: int, when: str = "") -> str:
    return f'{{"when_sampled":[{when}],"backtrack":{backtrack},"ff_tokens":[{",".join(map(str, tokens))}]}}'


def unmasked(splices: str) -> str:
    return f'{{"sample_mask":null,"temperature":null,"splices":[{splices}]}}'


NOOP = unmasked(splice(0))

DEFAULTS: dict[Version, dict[str, Script]] = {
    "v1": {"create": "", "prompt": NOTHING, "pre": PRE_GO, "mid": allow(1, 2) + SAMPLE, "post": NO_STOP},
    "v2": {"create": "", "prompt": SAME_PROMPT, "mid": allow(1, 2) + branches(masked())},
}


def program(version: Version, **callbacks: Script | dict[int, Script]) -> str:
    """Return a module argument. A dict maps the number of a call to the section that applies from this call on."""
    sections = ""
    for name, usual in DEFAULTS[version].items():
        chosen = callbacks.pop(name, usual)
        for since, body in (chosen if isinstance(chosen, dict) else {0: chosen}).items():
            sections += instruction("S", _CALLBACKS.index(name), since) + body
    assert not callbacks, callbacks
    return sections


@cache
def module(version: Version) -> bytes:
    return bytes(wasmtime.wat2wasm(_text(version)))


def compile_text(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


def _case(letter: str, body: str) -> str:
    return f"(if (i32.eq (local.get $op) (i32.const {ord(letter)})) (then {body}))"


_A, _B, _N, _P = (f"(local.get ${name})" for name in "abnp")

_CASES = {
    "o": f"(call $fill_in {_P} {_N}) (call $return (i32.const {TEXT_AT}) {_N})",
    "R": f"(call $return {_A} {_B})",
    "P": f"(call $return (i32.const {BLOB_AT}) (call $fetch (call $process_arg)))",
    "l": f"(call $log {_P} {_N})",
    "L": f"(call $log {_A} {_B})",
    "f": f"(loop $more (call $log {_P} {_N}) (local.set $a (i32.sub {_A} (i32.const 1))) (br_if $more {_A}))",
    "e": f"(call $log_blob {_A})",
    "E": f"(drop (call $read_blob {_A} {_B} (i32.const 0x10000)))",
    "x": f"(call $log_hex (i32.const {BLOB_AT}) (call $fetch {_A}))",
    "d": f"(call $log_hex {_A} {_B})",
    "s": f"(call $log_blob (call $storage {_P} {_N}))",
    "T": f"(drop (call $storage {_A} {_B}))",
    "W": f"""(loop $more (drop (call $fetch (call $storage {_P} {_N})))
        (br_if $more (i32.ne (i32.load8_u offset=2 (i32.const {BLOB_AT})) (i32.const {ord("R")}))))""",
    "t": f"(call $log_hex (i32.const {BLOB_AT}) (call $fetch (call $tokenize {_P} {_N})))",
    "K": f"(drop (call $tokenize {_A} {_B}))",
    "w": f"(i32.store {_A} {_B})",
    "k": f"(memory.fill {_A} (i32.const 0) {_B})",
    "i": "(call $log_number (call $self_seq_id))",
    "n": "(call $log_number (call $eos_token))",
    "u": "(unreachable)",
    "q": f"(loop $more (local.set $a (i32.sub {_A} (i32.const 1))) (br_if $more {_A}) (br_if $more (i32.eqz {_B})))",
    "V": f"""(if (i32.ne (call $self_seq_id) {_A})
        (then (local.set $at (i32.add (local.get $at) {_B}))))""",
    "h": "(call $stop)",
    "y": f"(call $exit {_A})",
    "z": "(drop (call $deep (i32.const 1)))",
    "m": f"(call $log_number (memory.grow {_A}))",
    "a": f"(drop (call $random {_A} {_B}))",
    "F": f"(call $log_number (call $fdstat {_A} {_B}))",
    "O": f"(call $log_number (call $fd_write {_A} (i32.const 0) (i32.const 1) (i32.const 8)))",
    "g": f"(call $log_number (call $clock {_A} (i64.const 1) {_B}))",
}
_BIAS: dict[Version, tuple[str, str]] = {
    "v1": ("", f"(call $bias {_A})"),
    "v2": (
        "(result i32)",
        f"""(i32.store (i32.add (i32.const 0x100) (i32.shl (global.get $masks) (i32.const 2))) (call $bias {_A}))
        (global.set $masks (i32.and (i32.add (global.get $masks) (i32.const 1)) (i32.const 7)))""",
    ),
}


def _text(version: Version) -> str:
    result, push = _BIAS[version]
    cases = _CASES | {"b": push}
    imports = exports = ""
    if version == "v2":
        imports = '(import "env" "aici_host_get_config" (func $config (param i32 i32) (result i32)))'
        cases["c"] = f"(call $log_number (call $config {_P} {_N}))"
    for name in DEFAULTS[version]:
        if name in ("pre", "mid", "post"):
            number = _CALLBACKS.index(name)
            exports += f'(func (export "aici_{name}_process") (param $h i32) (call $run (i32.const {number})))\n'
    return f"""(module
  (import "env" "aici_host_read_blob" (func $read_blob (param i32 i32 i32) (result i32)))
  (import "env" "aici_host_return_process_result" (func $return (param i32 i32)))
  (import "env" "aici_host_return_logit_bias" (func $bias (param i32) {result}))
  (import "env" "aici_host_process_arg" (func $process_arg (result i32)))
  (import "env" "aici_host_module_arg" (func $module_arg (result i32)))
  (import "env" "aici_host_self_seq_id" (func $self_seq_id (result i32)))
  (import "env" "aici_host_eos_token" (func $eos_token (result i32)))
  (import "env" "aici_host_tokenize" (func $tokenize (param i32 i32) (result i32)))
  (import "env" "aici_host_storage_cmd" (func $storage (param i32 i32) (result i32)))
  (import "env" "aici_host_stop" (func $stop))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $fdstat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  {imports}
  (memory (export "memory") {NUM_PAGES})
  (global $end (mut i32) (i32.const 0))
  (global $masks (mut i32) (i32.const 0))
  (func $log (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $fetch (param $blob i32) (result i32)
    (local $len i32)
    (local.set $len (call $read_blob (local.get $blob) (i32.const {BLOB_AT}) (i32.const 0x10000)))
    (select (local.get $len) (i32.const 0x10000) (i32.lt_u (local.get $len) (i32.const 0x10000))))
  (func $log_blob (param $blob i32) (call $log (i32.const {BLOB_AT}) (call $fetch (local.get $blob))))
  (func $digit (param $value i32) (result i32)
    (i32.add (local.get $value) (select (i32.const 48) (i32.const 87) (i32.lt_u (local.get $value) (i32.const 10)))))
  (func $log_hex (param $at i32) (param $len i32)
    (local $to i32) (local $byte i32)
    (local.set $to (i32.const {TEXT_AT}))
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $len)))
      (local.set $byte (i32.load8_u (local.get $at)))
      (i32.store8 (local.get $to) (call $digit (i32.shr_u (local.get $byte) (i32.const 4))))
      (i32.store8 offset=1 (local.get $to) (call $digit (i32.and (local.get $byte) (i32.const 15))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $to (i32.add (local.get $to) (i32.const 2)))
      (local.set $len (i32.sub (local.get $len) (i32.const 1)))
      (br $more)))
    (call $log (i32.const {TEXT_AT}) (i32.sub (local.get $to) (i32.const {TEXT_AT}))))
  (func $decimal (param $at i32) (param $value i32) (result i32) ;; right-aligned in ten bytes; where its digits begin
    (local $k i32)
    (memory.fill (local.get $at) (i32.const 32) (i32.const 10))
    (local.set $k (i32.const 10))
    (loop $more
      (local.set $k (i32.sub (local.get $k) (i32.const 1)))
      (i32.store8 (i32.add (local.get $at) (local.get $k))
        (call $digit (i32.rem_u (local.get $value) (i32.const 10))))
      (local.set $value (i32.div_u (local.get $value) (i32.const 10)))
      (br_if $more (local.get $value)))
    (local.get $k))
  (func $log_number (param $value i32)
    (local $k i32)
    (local.set $k (call $decimal (i32.const {TEXT_AT}) (local.get $value)))
    (call $log (i32.add (i32.const {TEXT_AT}) (local.get $k)) (i32.sub (i32.const 10) (local.get $k))))
  (func $fill_in (param $from i32) (param $len i32)
    (local $at i32)
    (memory.copy (i32.const {TEXT_AT}) (local.get $from) (local.get $len))
    (local.set $at (i32.const {TEXT_AT}))
    (block $done (loop $more
      (br_if $done (i32.ge_u (local.get $at) (i32.add (i32.const {TEXT_AT}) (local.get $len))))
      (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 64)) (then
        (drop (call $decimal (local.get $at) (i32.load (i32.add (i32.const 0x100) (i32.shl
          (i32.and (i32.load8_u offset=1 (local.get $at)) (i32.const 7)) (i32.const 2))))))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $more))))
  (func $deep (param $n i32) (result i32)
    (i32.add (call $deep (i32.add (local.get $n) (i32.const 1))) (local.get $n)))
  (func $number (param $at i32) (result i32) ;; of eight hex digits
    (local $k i32) (local $value i32) (local $char i32)
    (loop $more
      (local.set $char (i32.load8_u (i32.add (local.get $at) (local.get $k))))
      (local.set $value (i32.or (i32.shl (local.get $value) (i32.const 4)) (i32.sub (local.get $char)
        (select (i32.const 48) (i32.const 87) (i32.lt_u (local.get $char) (i32.const 97))))))
      (local.set $k (i32.add (local.get $k) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $k) (i32.const 8))))
    (local.get $value))
  (func $run (param $callback i32)
    (local $op i32) (local $a i32) (local $b i32) (local $n i32) (local $p i32)
    (local $at i32) (local $chosen i32) (local $calls i32)
    (global.set $masks (i32.const 0))
    (local.set $calls (i32.load offset=0x200 (i32.shl (local.get $callback) (i32.const 2))))
    (i32.store offset=0x200 (i32.shl (local.get $callback) (i32.const 2))
      (i32.add (local.get $calls) (i32.const 1)))
    (local.set $at (i32.const 0x40000))
    (local.set $chosen (global.get $end))
    (block $done (loop $more
      (br_if $done (i32.ge_u (local.get $at) (global.get $end)))
      (local.set $op (i32.load8_u (local.get $at)))
      (local.set $a (call $number (i32.add (local.get $at) (i32.const 1))))
      (local.set $b (call $number (i32.add (local.get $at) (i32.const 9))))
      (local.set $n (call $number (i32.add (local.get $at) (i32.const 17))))
      (br_if $done (i32.gt_u {_N} (i32.const 0x100000))) ;; an argument that is none
      (local.set $at (i32.add (i32.add (local.get $at) (i32.const 25)) {_N}))
      (if (i32.and (i32.eq (local.get $op) (i32.const {ord("S")})) (i32.and
          (i32.eq {_A} (local.get $callback)) (i32.le_u {_B} (local.get $calls))))
        (then (local.set $chosen (local.get $at))))
      (br $more)))
    (local.set $at (local.get $chosen))
    (block $done (loop $more
      (br_if $done (i32.ge_u (local.get $at) (global.get $end)))
      (local.set $op (i32.load8_u (local.get $at)))
      (br_if $done (i32.eq (local.get $op) (i32.const {ord("S")})))
      (local.set $a (call $number (i32.add (local.get $at) (i32.const 1))))
      (local.set $b (call $number (i32.add (local.get $at) (i32.const 9))))
      (local.set $n (call $number (i32.add (local.get $at) (i32.const 17))))
      (local.set $p (i32.add (local.get $at) (i32.const 25)))
      (local.set $at (i32.add (local.get $p) (local.get $n)))
      (br_if $done (i32.gt_u {_N} (i32.const 0x100000)))
      {"".join(_case(letter, body) for letter, body in cases.items())}
      (br $more))))
  (func (export "aici_init"))
  (func (export "aici_create") (result i32)
    (local $len i32)
    (local.set $len (call $read_blob (call $module_arg) (i32.const 0x40000) (i32.const 0x100000)))
    (global.set $end (i32.add (i32.const 0x40000)
      (select (local.get $len) (i32.const 0x100000) (i32.lt_u (local.get $len) (i32.const 0x100000)))))
    (call $run (i32.const 0))
    (i32.const 7))
  (func (export "aici_init_prompt") (param $h i32) (call $run (i32.const 1)))
  {exports})"""
