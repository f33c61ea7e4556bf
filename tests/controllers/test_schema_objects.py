"""Objects of the json_schema guest: closed or open, keys in declared or in any order, no key twice.

With "open" and "any" the guest accepts what a validator accepts, in both directions, whatever the order of keys.
"""

import itertools
import json
import random
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from aici_controllers.schema_check import SchemaOptions, schema_argument
from tests.support.fake_host import FakeHost, GuestModule
from tests.support.guests import shipped_guest
from tests.support.random_schemas import SCHEMAS, VALUES, spelled
from tests.support.scale import scaled
from tests.support.schemas import ask_schema

_REFUSED = ("too complex", "takes too many states", "too much work", "no value satisfies", "4096 alternatives")
_AS_SPECIFIED = {"objects": "open", "property_order": "any"}
_KEYS = ["a", "b", "ab", "aa", "ü", "x1", "x2", ""]


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


_LEAF = st.sampled_from([True, True, False, {"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": [1, "s"]}])
_NAMES = st.lists(st.sampled_from(_KEYS), max_size=3, unique=True)
_OWN = _some(
    properties=st.dictionaries(st.sampled_from(_KEYS), _LEAF, max_size=4),
    required=_NAMES,
    additionalProperties=_LEAF,
    patternProperties=st.dictionaries(st.sampled_from(["^a", "^x[12]$", "b$", "^.$"]), _LEAF, max_size=2),
    propertyNames=st.sampled_from([{"pattern": "^[abx]"}, {"maxLength": 1}, {"enum": ["a", "ü", "x1", "c"]}]),
    minProperties=st.integers(0, 4),
    maxProperties=st.integers(0, 4),
    dependentRequired=st.dictionaries(st.sampled_from(_KEYS), _NAMES, max_size=1),
)
_COMBINED = _some(
    **{"allOf": st.lists(_OWN, min_size=1, max_size=2), "anyOf": st.lists(_OWN, min_size=1, max_size=2), "not": _OWN}
)
_OBJECT_SCHEMAS = st.one_of(
    st.builds(lambda own, combined: {"type": "object", **own, **combined}, _OWN, st.one_of(st.just({}), _COMBINED)),
    st.builds(lambda own: {"type": "object", "additionalProperties": {"type": "object", **own}}, _OWN),
)
_OBJECTS = st.recursive(
    st.sampled_from([1, 2, "s", None]),
    lambda inner: st.dictionaries(st.sampled_from([*_KEYS, "c", 'q"\\']), inner, max_size=4),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict))


def _twice(value: Any) -> list[str]:
    """Return texts of an object in which a key comes twice, plainly and escaped."""
    if not isinstance(value, dict) or not value:
        return []
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    key = next(iter(value))
    escaped = '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"'
    of_first = json.dumps(value[key], ensure_ascii=False, separators=(",", ":"))
    return [f"{text[:-1]},{spelling}:{of_first}}}" for spelling in (json.dumps(key, ensure_ascii=False), escaped)]


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    schema=st.one_of(_OBJECT_SCHEMAS, SCHEMAS), values=st.lists(st.one_of(_OBJECTS, VALUES), min_size=4, max_size=12)
)
def test_the_specification(guest: GuestModule, schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    texts = [(value, text) for value in values for text in spelled(value)[:50]]
    doubled = [text for value in values for text in _twice(value)]
    report = ask_schema(guest, schema, [*(text for _, text in texts), *doubled], **_AS_SPECIFIED)
    if report.problems:
        event(report.problems[0].message)
        assert all(any(why in problem.message for why in _REFUSED) for problem in report.problems), report.problems
        if "no value satisfies" in report.problems[0].message:
            assert not any(validator.is_valid(value) for value in values)
        return
    for (value, text), stopped in zip(texts, report.texts, strict=False):
        assert (stopped is None) == validator.is_valid(value), (text, stopped)
    for text, stopped in zip(doubled, report.texts[len(texts) :], strict=True):
        assert stopped is not None, text


@settings(max_examples=scaled(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=_OBJECT_SCHEMAS, values=st.lists(_OBJECTS, min_size=4, max_size=12))
def test_closed_and_declared_are_subsets(guest: GuestModule, schema: Any, values: list[Any]) -> None:
    """Open and declared accepts an order of the keys of each valid object, and no invalid object. Closed accepts no
    more than open, and all that has no additional key."""
    validator = jsonschema.Draft202012Validator(schema)
    texts = [(number, text) for number, value in enumerate(values) for text in spelled(value)]
    valid = {number for number, value in enumerate(values) if validator.is_valid(value)}
    accepted: dict[str, set[int]] = {}
    for objects in ("open", "closed"):
        report = ask_schema(guest, schema, [text for _, text in texts], objects=objects)
        if report.problems:
            return
        accepted[objects] = {number for (number, _), end in zip(texts, report.texts, strict=True) if end is None}
    assert accepted["open"] == valid
    assert accepted["closed"] <= valid
    further = ("additionalProperties", "patternProperties", "propertyNames")
    if not any(f'"{keyword}":' in json.dumps(schema) for keyword in further) and "not" not in schema:
        named = set(_names(schema))
        assert accepted["closed"] >= {number for number in valid if named >= values[number].keys()}


def _names(schema: Any) -> list[str]:
    parts = [schema, *schema.get("allOf", [])]
    return [name for part in parts for name in (*part.get("properties", {}), *part.get("required", []))]


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({"properties": {"a": {}}}, ["{}", '{"a":1}', "1"], ['{"b":1}', '{"a":1,"b":1}']),
        ({"properties": {}}, ["{}"], ['{"a":1}']),
        ({"type": "object"}, ['{"x":1}'], []),
        ({"properties": {"a": {}}, "additionalProperties": True}, ['{"a":1,"b":1}'], ['{"b":1,"a":1}']),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, ['{"x":1}', '{"y":1}'], []),
        ({"properties": {"a": {}}, "minProperties": 2}, ['{"a":1,"b":1}'], ['{"a":1}', '{"b":1,"b":1}']),
        (
            {"properties": {"a": {}}, "required": ["b"]},
            ['{"b":1}', '{"a":1,"b":1}'],
            ['{"b":1,"c":1}', '{"b":1,"a":1}'],
        ),
        (
            {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
            ['{"a":1,"b":1}', '{"b":1}'],
            ['{"a":1,"c":1}', '{"b":1,"a":1}'],
        ),
        (
            {"properties": {"k": {}}, "anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
            ['{"k":1,"a":1}', '{"k":1,"b":1}'],
            ['{"k":1,"a":1,"b":1}', '{"a":1,"k":1}'],
        ),
        (
            {"allOf": [{"properties": {"a": {}}}, {"additionalProperties": {"type": "null"}}]},
            ['{"b":null}'],
            ['{"b":1}'],
        ),
        (
            {"properties": {"a": {}}, "unevaluatedProperties": {"type": "null"}},
            ['{"a":1,"b":null}'],
            ['{"b":1}', '{"b":null,"a":1}'],
        ),
        # The order is the order of the document, with `properties` where it stands.
        (
            {"required": ["a"], "allOf": [{"properties": {"a": {}}}], "properties": {"m": {}}},
            ['{"a":1,"m":1}'],
            ['{"m":1,"a":1}', '{"m":1}'],
        ),
        (
            {"required": ["z", "a"], "properties": {"m": {}, "a": {}}, "additionalProperties": True},
            ['{"m":1,"a":1,"z":1,"k":1}', '{"a":1,"z":1}'],
            ['{"z":1,"a":1}', '{"a":1,"k":1,"z":1}'],
        ),
    ],
    ids=json.dumps,
)
def test_defaults(guest: GuestModule, schema: Any, yes: list[str], no: list[str]) -> None:
    report = ask_schema(guest, schema, [*yes, *no])
    assert report.problems == ()
    accepted = {text for text, end in zip([*yes, *no], report.texts, strict=True) if end is None}
    assert accepted == set(yes)


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({"minProperties": 2}, ['{"a":1,"b":1}'], ['{"a":1,"a":1}', '{"a":1,"\\u0061":1}']),
        ({"patternProperties": {"^[ab]$": {}}, "additionalProperties": False, "minProperties": 3}, None, None),
        (
            {"patternProperties": {"^[ab]$": {}}, "additionalProperties": False, "minProperties": 2},
            ['{"a":1,"b":1}', '{"b":1,"a":1}'],
            ['{"a":1}', '{"a":1,"a":2}', '{"a":1,"b":1,"a":1}'],
        ),
        (
            {"additionalProperties": {"type": "object"}},
            ['{"a":{"a":{}},"b":{"a":1,"b":1}}', '{"":{},"\\"":{}}'],
            ['{"a":{"b":1,"b":1}}', '{"a":{},"b":{"a":{}},"a":{}}', '{"":{},"":{}}', '{"é":{},"\\u00e9":{}}'],
        ),
        (
            {"anyOf": [{"additionalProperties": {"type": "integer"}}, {"additionalProperties": {"enum": [1, "s"]}}]},
            ['{"a":1,"b":2}', '{"a":1,"b":"s"}'],
            ['{"a":1,"a":2}', '{"a":"s","b":1,"a":1}', '{"a":2,"b":"s"}'],
        ),
    ],
    ids=json.dumps,
)
def test_no_key_comes_twice(guest: GuestModule, schema: Any, yes: list[str] | None, no: list[str] | None) -> None:
    for order in ("declared", "any"):
        report = ask_schema(guest, {"type": "object", **schema}, [*(yes or []), *(no or [])], property_order=order)
        if yes is None or no is None:
            assert "no value satisfies" in report.problems[0].message
            continue
        assert report.problems == ()
        accepted = {text for text, end in zip([*yes, *no], report.texts, strict=True) if end is None}
        assert accepted == set(yes)


def test_sixty_properties_in_any_order(guest: GuestModule) -> None:
    names = [f"property_{number}" for number in range(60)]
    values: list[Any] = [{"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "boolean"}}]
    schema = {
        "type": "object",
        "properties": {name: values[number % 3] for number, name in enumerate(names)},
        "required": names[::7],
    }
    document = {name: [number, "text", [True]][number % 3] for number, name in enumerate(names)}
    texts, missing = [], []
    shuffle = random.Random(18).shuffle
    for _ in range(20):
        keys = list(document)
        shuffle(keys)
        texts.append(json.dumps({key: document[key] for key in keys}))
        missing.append(json.dumps({key: document[key] for key in keys if key != names[7]}))
    start = time.process_time()
    report = ask_schema(guest, schema, [*texts, *missing], property_order="any")
    assert report.problems == ()
    assert report.texts == (*[None] * 20, *(len(text) - 1 for text in missing))
    assert time.process_time() - start < 5


_FRAGMENTS = [
    '{"',
    '":',
    '":1',
    ',"',
    '":1,"',
    '":1,"a":1',
    '":1,"b',
    '"a"',
    '"a":1,',
    'a":1,"a',
    'b":1,"a":1}',
    '},"',
    "ab",
]
_VOCABULARY = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in _FRAGMENTS), b""]


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"enum": [1, {}]}},
        {
            "type": "object",
            "patternProperties": {"^[ab]$": {"const": 1}},
            "additionalProperties": False,
            "minProperties": 1,
        },
        {"type": "object", "properties": {"a": {"const": 1}, "b": {}}, "required": ["b"], "maxProperties": 2},
        {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"const": 1}}},
    ],
    ids=json.dumps,
)
@settings(max_examples=scaled(3), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_masks_are_exact(guest: GuestModule, order: Any, schema: Any, data: st.DataObject) -> None:
    """A token is in the mask exactly if the text with the token begins an accepted text."""
    argument = schema_argument(schema, SchemaOptions(objects="open", property_order=order))
    host = FakeHost(guest, _VOCABULARY, eos=len(_VOCABULARY) - 1, arg=argument)
    host.init_prompt()
    text = b""
    ascii_tokens = [token for token, raw in enumerate(_VOCABULARY) if raw and raw[0] < 0x80]
    for _ in range(12):
        if host.mid_process() == "Stop":
            return
        ask = [(text + _VOCABULARY[token]).decode() for token in ascii_tokens]
        report = ask_schema(guest, schema, ask, objects="open", property_order=order)
        viable = {
            token
            for token, whole, end in zip(ascii_tokens, ask, report.texts, strict=True)
            if end is None or end == len(whole.encode())
        }
        assert host.allowed() & set(ascii_tokens) == viable, text
        longest = sorted(viable, key=lambda token: -len(_VOCABULARY[token]))
        token = data.draw(st.one_of(st.sampled_from(longest[:8]), st.sampled_from(longest)))
        text += _VOCABULARY[token]
        if host.post_process([token])["stop"]:
            return


def test_a_key_may_come_again_in_another_object(guest: GuestModule) -> None:
    schema = {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}
    texts = ['[{"a":1},{"a":1}]', '[{"a":1,"b":1},{"b":1,"a":1}]', '[{"a":1},{"b":1,"b":1}]']
    assert ask_schema(guest, schema, texts).texts == (None, None, 18)


def test_many_additional_keys(guest: GuestModule) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    text = json.dumps({f"key {number}": number for number in range(400)})
    again = f'{text[:-1]}, "key 17": 1}}'
    assert ask_schema(guest, schema, [text, again]).texts == (None, again.rindex('"'))


_ORDERS = list(itertools.permutations(["kind", "size", "extra"]))


def test_any_order_in_alternatives(guest: GuestModule) -> None:
    """A tagged union, whose tag may come last."""
    schema = {
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "size": {"type": "integer"}}, "required": ["kind", "size"]},
            {"properties": {"kind": {"const": "b"}, "size": {"type": "string"}}, "required": ["kind", "size"]},
        ]
    }
    documents = [
        {"kind": "a", "size": 1, "extra": 0},
        {"kind": "b", "size": "s", "extra": 0},
        {"kind": "a", "size": "s"},
    ]
    texts = [(json.dumps({key: d[key] for key in keys if key in d}), d) for d in documents for keys in _ORDERS]
    report = ask_schema(guest, schema, [text for text, _ in texts], **_AS_SPECIFIED)
    assert [end is None for end in report.texts] == [document is not documents[2] for _, document in texts]
