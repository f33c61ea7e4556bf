"""uniqueItems where items are open: the automaton remembers what was said, also where its masks forget."""

import itertools
import json
from typing import Any

import jsonschema
import pytest

from tests.support.fake_host import FakeHost, GuestModule
from tests.support.guests import shipped_guest
from tests.support.schemas import ask_schema

_STRINGS: dict[str, Any] = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
_CODES: dict[str, Any] = {**_STRINGS, "items": {"type": "string", "pattern": "^[a-d]{2}$"}, "minItems": 3}
_INTEGERS: dict[str, Any] = {**_STRINGS, "items": {"type": "integer", "minimum": 1, "maximum": 30}}
_OBJECTS: dict[str, Any] = {
    **_STRINGS,
    "items": {"type": "object", "properties": {"k": {"enum": ["a", "b"]}}, "additionalProperties": False},
}
_WORDS = [b'","', b'",', b'"]', b"ab", b'ab"', b'a","', b"12", b"1,", b"],", b'{"', b"},{", b'},{"k', b'"}]', b'b"},']
_VOCABULARY = [*(bytes([byte]) for byte in range(256)), *_WORDS, b""]


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


def _host(guest: GuestModule, schema: object, vocabulary: list[bytes]) -> FakeHost:
    argument = json.dumps({"schema": schema}).encode()
    host = FakeHost(guest, vocabulary, eos=len(vocabulary) - 1, arg=argument)
    host.init_prompt()
    return host


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (_STRINGS, '["ab","a","ab c"]'),
        (_CODES, '["ab","ac","ba"]'),
        (_INTEGERS, "[1,2,12,3]"),
        (_OBJECTS, '[{"k":"a"},{},{"k":"b"}]'),
    ],
)
def test_masks_are_exact_up_to_the_beginning_of_the_next_item(guest: GuestModule, schema: object, text: str) -> None:
    host = _host(guest, schema, _VOCABULARY)
    for at in range(len(text)):
        prefix = text[:at]
        tokens = [token for token, raw in enumerate(_VOCABULARY) if raw and (raw.isascii() or token < 256)]
        longer = [prefix.encode() + _VOCABULARY[token] for token in tokens]
        ascii_only = [(token, raw.decode()) for token, raw in zip(tokens, longer, strict=True) if raw.isascii()]
        stopped = ask_schema(guest, schema, [raw for _, raw in ascii_only]).texts
        exact = {t for (t, raw), end in zip(ascii_only, stopped, strict=True) if end is None or end == len(raw)}
        host.mid_process()
        allowed = {token for token in host.allowed() if _VOCABULARY[token].isascii() and _VOCABULARY[token]}
        assert allowed <= exact, prefix
        # Tokens that end an item and go on into the next one may be left out.
        assert all(b"," in _VOCABULARY[token][:-1] for token in exact - allowed), (prefix, exact - allowed)
        host.post_process([text.encode()[at]])


def test_a_large_vocabulary_does_not_crowd_the_automaton(guest: GuestModule) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(word) for length in (2, 3) for word in itertools.product(letters, repeat=length)]
    vocabulary = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in words), b""]
    host = _host(guest, _STRINGS, vocabulary)
    text = json.dumps([f"{number} {'word ' * (number % 7)}" for number in range(40)], separators=(",", ":"))
    for byte in text.encode():
        host.mid_process()
        assert byte in host.allowed()
        host.post_process([byte])


_VALUES = ["1", "2", '"a"', '{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":1}', "[1,2]", "[2,1]"]
_ITEMS: list[dict[str, Any]] = [{}, {"type": ["integer", "string", "object"]}, {"enum": [1, 2, "a"]}]
_COUNTS: list[dict[str, Any]] = [
    {},
    {"contains": {"type": "integer"}},
    {"contains": {"type": "string"}, "maxContains": 1},
    {"contains": {"type": "object"}, "maxContains": 0, "minContains": 0},
    {"allOf": [{"contains": {"const": 1}}, {"contains": {"type": "object"}}], "maxItems": 3},
    {"not": {"contains": {"type": "integer"}}},
]
_UNIQUE: list[dict[str, Any]] = [
    {"uniqueItems": True},
    {"not": {"uniqueItems": True}},
    {"not": {"not": {"uniqueItems": True}}},
    {"not": {"uniqueItems": True, "maxItems": 2}},
    {"oneOf": [{"uniqueItems": True}, {"maxItems": 1}]},
]


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_all_short_arrays_against_a_validator(guest: GuestModule, whitespace: str) -> None:
    arrays = [list(chosen) for num in range(4) for chosen in itertools.product(_VALUES, repeat=num)]
    texts = [f"[{','.join(items)}]" for items in arrays] + [f"[{', '.join(items)}]" for items in arrays[:100]]
    num_declined = 0
    for items, counts, unique in itertools.product(_ITEMS, _COUNTS, _UNIQUE):
        schema = {"type": "array", "items": items, "allOf": [counts, unique]}
        valid = jsonschema.Draft202012Validator(schema)
        report = ask_schema(guest, schema, texts, objects="open", property_order="any", whitespace=whitespace)
        num_declined += bool(report.problems)
        expected = [valid.is_valid(json.loads(text)) for text in texts]
        leaves_out = any("leaves out" in warning.message for warning in report.warnings)
        for text, stopped, is_valid in zip(texts, report.texts, expected, strict=report.problems == ()):
            assert (stopped is None) == is_valid or (leaves_out and is_valid), (schema, text)
        assert not report.problems or not any(expected) or report.problems[0].keyword == "uniqueItems", schema
    assert num_declined < 30
