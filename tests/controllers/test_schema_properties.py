"""The json_schema guest against a validator: accepted texts are valid, and valid texts are accepted.

Exceptions are the documented differences. Keys have a fixed order, so with random schemas a value counts as accepted if
an order of its keys is accepted; whole numbers are written without a point.
"""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from aici_controllers.schema_check import SchemaOptions, schema_argument
from tests.support.fake_host import FakeHost, GuestModule
from tests.support.guests import shipped_guest
from tests.support.random_schemas import SCHEMAS, VALUES, spelled
from tests.support.realistic_schemas import SCHEMAS as SCHEMAS_OF_PEOPLE
from tests.support.realistic_schemas import key_order
from tests.support.realistic_schemas import spelled as realistic_spelled
from tests.support.scale import scaled
from tests.support.schema_documents import documents, mutated
from tests.support.schemas import ask_schema

# Refusals by design; any other refusal is a defect.
_REFUSED = ("too complex", "takes too many states", "too much work", "no value satisfies", "too many alternatives")


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


@settings(max_examples=scaled(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, values=st.lists(VALUES, min_size=4, max_size=12))
def test_random_schemas(guest: GuestModule, schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    valid = {number for number, value in enumerate(values) if validator.is_valid(value)}
    texts = [(number, text) for number, value in enumerate(values) for text in spelled(value)]
    report = ask_schema(guest, schema, [text for _, text in texts], objects="open")
    if report.problems:
        event(report.problems[0].message)
        assert all(any(why in problem.message for why in _REFUSED) for problem in report.problems), report.problems
        if "no value satisfies" in report.problems[0].message:
            assert valid == set()
        return
    event("has valid values" if valid else "has none")
    accepted = {number for (number, _), stopped in zip(texts, report.texts, strict=True) if stopped is None}
    assert [values[number] for number in accepted - valid] == []
    assert [values[number] for number in valid - accepted] == []


@pytest.mark.parametrize("name", SCHEMAS_OF_PEOPLE)
@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_valid_and_mutated_documents(guest: GuestModule, name: str, data: st.DataObject) -> None:
    schema = SCHEMAS_OF_PEOPLE[name]
    dialect = jsonschema.Draft202012Validator
    validator = dialect(schema, format_checker=dialect.FORMAT_CHECKER)
    document = data.draw(documents(schema, schema))
    all_of_them = [document, *(mutated(document, data) for _ in range(8))]
    order = key_order(schema)
    texts = [realistic_spelled(one, order, space=data.draw(st.sampled_from(["", " "]))) for one in all_of_them]
    report = ask_schema(guest, schema, texts, objects="open")
    assert report.problems == ()
    for text, stopped in zip(texts, report.texts, strict=True):
        assert (stopped is None) == validator.is_valid(json.loads(text)), (text, stopped)


_FRAGMENTS = [
    '{"',
    '":',
    '": "',
    '", "',
    '"}',
    ", ",
    "true",
    "null",
    "12",
    "00",
    "name",
    "kind",
    "ab",
    "é",
    "[]",
    "},",
    '"]',
    "\\u00",
]
_VOCABULARY = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in _FRAGMENTS), b""]


@pytest.mark.parametrize("name", SCHEMAS_OF_PEOPLE)
@settings(max_examples=scaled(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_documents_are_allowed_token_by_token(guest: GuestModule, name: str, data: st.DataObject) -> None:
    schema = SCHEMAS_OF_PEOPLE[name]
    validator = jsonschema.Draft202012Validator(schema)
    document = data.draw(documents(schema, schema).filter(validator.is_valid))
    rest = realistic_spelled(document, key_order(schema)).encode()
    host = FakeHost(
        guest, _VOCABULARY, eos=len(_VOCABULARY) - 1, arg=schema_argument(schema, SchemaOptions(objects="open"))
    )
    host.init_prompt()
    while rest:
        fits = [token for token, raw in enumerate(_VOCABULARY) if raw and rest.startswith(raw)]
        assert host.mid_process() == {"SampleWithBias": {}}
        assert set(fits) <= host.allowed(), rest
        token = data.draw(st.sampled_from(fits))
        rest = rest[len(_VOCABULARY[token]) :]
        if host.post_process([token])["stop"]:
            assert rest == b""
            return
    assert host.mid_process() == "Stop" or host.eos in host.allowed()
