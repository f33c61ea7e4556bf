"""Inputs near valid ones: bytes changed at random, and JSON with a value replaced."""

import json
import random
from collections.abc import Sequence
from typing import Any

_BYTES = (
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 4,
    b"\xff" * 8,
    b"\0" * 8,
    b"\xc0\x80",
    b"\r\n",
    b'"',
    b"{",
    b"[" * 200,
)
_VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**32, 2**63,
    -(2**63) - 1, 2**64,
    10**400, 0.0, -0.0,
    5e-324, 1e308, -1e308, 0.5,
    "", "a", "\0", "\ud800", "\U0010ffff", "a" * 5000, "{{", "\r\n", "../..",
    [], {}, [[]], [None], {"": None}, [0] * 300,
    {"type": "object"}, {"type": None},
)  # fmt: skip


def mutated(seed: bytes, rnd: random.Random) -> bytes:
    """Return `seed` with one to four places changed."""
    data = bytearray(seed)
    for _ in range(rnd.randint(1, 4)):
        at = rnd.randrange(len(data) + 1)
        match rnd.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rnd.randrange(8)
            case 1:
                data[at : at + 1] = rnd.choice(_BYTES)
            case 2:
                del data[at : at + rnd.randint(1, 8)]
            case 3:
                data[at:at] = rnd.randbytes(rnd.randint(1, 9))
            case 4:
                begin = rnd.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + rnd.randint(1, 60)]
            case _:
                del data[at:]
    return bytes(data)


def mutated_json(seed: bytes, rnd: random.Random) -> bytes:
    """Return `seed`, a JSON document, with one to three values or names replaced; one in four times as `mutated`."""
    if rnd.random() < 0.25:
        return mutated(seed, rnd)
    document = json.loads(seed)
    for _ in range(rnd.randint(1, 3)):
        document = _replaced(document, rnd)
    return json.dumps(document, ensure_ascii=rnd.random() < 0.9).encode("utf-8", "surrogatepass")


def _replaced(value: Any, rnd: random.Random) -> Any:
    if isinstance(value, dict | list) and value and rnd.random() < 0.85:
        if isinstance(value, list):
            at = rnd.randrange(len(value))
            return [*value[:at], *([value[at]] * rnd.choice((0, 0, 2))), _replaced(value[at], rnd), *value[at + 1 :]]
        name = rnd.choice(list(value))
        match rnd.randrange(6):
            case 0:
                return {key: inner for key, inner in value.items() if key != name}
            case 1:
                return value | {rnd.choice(list(value)): value[name]}
            case _:
                return value | {name: _replaced(value[name], rnd)}
    return _nested(rnd) if rnd.random() < 0.03 else rnd.choice(_VALUES)


def _nested(rnd: random.Random) -> Any:
    value: Any = None
    for _ in range(rnd.choice((10, 100, 600))):
        value = [value] if rnd.random() < 0.5 else {"a": value}
    return value
