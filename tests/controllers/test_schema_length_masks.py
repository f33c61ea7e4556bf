"""Masks of strings with a pattern or a format and a greatest length, from far below the limit to its end.

A mask is right if it allows the tokens after which the text begins an allowed text, and no others.
"""

import json
import random
import string

import pytest

from tests.support.fake_host import FakeHost, GuestModule
from tests.support.guests import shipped_guest
from tests.support.schemas import ask_schema

_TEXTS = [
    '"',
    'a"',
    "é",
    "ab",
    "a-b",
    "a.b",
    "@a",
    "a.bc",
    'bc"',
    "-bcd",
    "aaaa",
    "a" * 9,
    "ab.de-f",
    "a" * 12 + '"',
    '"}',
]
_VOCABULARY = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in _TEXTS), b""]
_TOKENS = [*(ord(letter) for letter in string.printable), *range(256, 256 + len(_TEXTS))]


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^[a-z]{3}([-.][a-z]{3})*$", "maxLength": 41},
        {"pattern": "^(é|[a-c]|-.)*(x|abcdef)$", "maxLength": 40},
        {"pattern": "^a*b{20}$", "maxLength": 45},
        {"format": "hostname", "maxLength": 40},
        {"format": "email", "maxLength": 50},
        {"format": "email", "pattern": "^.*$"},
        {"format": "email"},
    ],
    ids=json.dumps,
)
def test_masks_up_to_the_limit(guest: GuestModule, schema: dict[str, object]) -> None:
    schema = {"type": "string", **schema}
    chance = random.Random(json.dumps(schema))
    argument = json.dumps({"schema": schema}).encode()
    eos = len(_VOCABULARY) - 1
    host = FakeHost(guest, _VOCABULARY, eos=eos, arg=argument)
    host.init_prompt()
    prefix = b""
    found: dict[str, bool] = {}
    for _ in range(45):
        if host.mid_process() == "Stop":
            break
        allowed = host.allowed() - {eos}
        for token in _TOKENS:
            found[(prefix + _VOCABULARY[token]).decode()] = token in allowed
        # Mostly go on, since the limit is far.
        going = [token for token in _TOKENS if token in allowed and b'"' not in _VOCABULARY[token]]
        token = chance.choice(going or sorted(allowed & set(_TOKENS))) if prefix else ord('"')
        host.post_process([token])
        prefix += _VOCABULARY[token]
    report = ask_schema(guest, schema, list(found))
    for (text, is_allowed), stopped in zip(found.items(), report.texts, strict=True):
        assert is_allowed == (stopped is None or stopped == len(text.encode())), (text, is_allowed, stopped)
