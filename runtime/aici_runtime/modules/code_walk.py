"""Count the blocks of a function: what makes a compiler slow is the shape of a function rather than its size.

The walk trusts the bytes: wasmtime has validated the module.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aici_base.errors import UsageError

_LEB: Final = rb"[\x80-\xff]*[\x00-\x7f]"


def _any_of(*patterns: bytes) -> bytes:
    return b"(?:" + b"|".join(patterns) + b")"


_PLAIN: Final = re.compile(
    _any_of(
        rb"[\x00\x01\x0a\x0f\x1a\x1b\x45-\xc4\xd1]",
        rb"[\x08\x0c\x0d\x10\x20-\x26\x3f-\x42\xd0\xd2]" + _LEB,
        rb"[\x28-\x3e]" + _LEB + _LEB,
        rb"\x43.{4}|\x44.{8}",
        rb"\x1c" + _LEB + rb"(?:[\x63\x64]" + _LEB + rb"|.)",
        rb"\xfc" + _any_of(rb"[\x00-\x07]", rb"[\x09\x0b\x0d\x0f-\x11]" + _LEB, rb"[\x08\x0a\x0c\x0e]" + _LEB + _LEB),
        rb"\xfd"
        + _any_of(
            rb"[\x00-\x0b\x5c\x5d]" + _LEB + _LEB,
            rb"[\x0c\x0d].{16}",
            rb"[\x15-\x22].",
            rb"[\x54-\x5b]" + _LEB + _LEB + rb".",
            rb"[\x0e-\x14\x23-\x53\x5e-\x7f]",
            rb"[\x80-\xff]+[\x00-\x7f]",
        ),
    )
    + b"*+",
    re.DOTALL,
)
"""A run of instructions that neither begin nor end a block, each with its immediates. Possessive: the pattern never
goes back, so its time is linear."""
_BLOCK, _LOOP, _IF, _ELSE, _END, _BR_TABLE, _CALL_INDIRECT, _TRY_TABLE = 0x02, 0x03, 0x04, 0x05, 0x0B, 0x0E, 0x11, 0x1F
_NO_VALUE: Final = 0x40
_LONG_REFERENCES: Final = (0x63, 0x64)
_CATCHES_WITH_TAG: Final = (0, 1)


@dataclass(slots=True)
class CodeShape:
    """`num_block_values`: parameters and results of all blocks."""

    num_blocks: int = 0
    num_loops: int = 0
    num_block_values: int = 0
    num_indirect_calls: int = 0


def walk(wasm: bytes, at: int, end: int, type_sizes: Sequence[int]) -> CodeShape:
    """Return the shape of the function whose instructions stand at `at` to `end`.

    `type_sizes`: parameters and results of every type. Raise UsageError for an instruction that is not known.
    """
    shape = CodeShape()
    while True:
        found = _PLAIN.match(wasm, at, end)
        at = found.end() if found else at
        if at >= end:
            return shape
        op = wasm[at]
        at += 1
        if op in (_BLOCK, _LOOP, _IF, _TRY_TABLE):
            shape.num_blocks += 1
            shape.num_loops += op == _LOOP
            values, at = _block_values(wasm, at, type_sizes)
            shape.num_block_values += values
            if op == _TRY_TABLE:
                at = _after_catches(wasm, at)
        elif op == _BR_TABLE:
            count, at = _number(wasm, at)
            for _ in range(count + 1):
                _, at = _number(wasm, at)
        elif op == _CALL_INDIRECT:
            shape.num_indirect_calls += 1
            _, at = _number(wasm, at)
            _, at = _number(wasm, at)
        elif op not in (_ELSE, _END):
            raise UsageError(f"cannot compile the module: instruction 0x{op:02x} (at byte {at - 1}) is not known")


def _block_values(wasm: bytes, at: int, type_sizes: Sequence[int]) -> tuple[int, int]:
    first = wasm[at]
    number, at = _number(wasm, at)
    if first == _NO_VALUE:
        return 0, at
    if first in _LONG_REFERENCES:
        return 1, _number(wasm, at)[1]
    # A value type is one byte, a negative number; the index of a type is not negative.
    return (1 if first & 0xC0 == _NO_VALUE else type_sizes[number]), at


def _after_catches(wasm: bytes, at: int) -> int:
    count, at = _number(wasm, at)
    for _ in range(count):
        has_tag = wasm[at] in _CATCHES_WITH_TAG
        at += 1
        for _ in range(2 if has_tag else 1):
            _, at = _number(wasm, at)
    return at


def _number(wasm: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = wasm[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
