"""The json_schema guest on documents from hypothesis-jsonschema, for realistic and for random schemas.

Every document, original or mutated, is accepted exactly if a validator calls the document valid.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis_jsonschema import from_schema

from tests.support.draft7_schemas import SCHEMAS
from tests.support.fake_host import GuestModule
from tests.support.guests import shipped_guest
from tests.support.random_schemas import VALUES, orders
from tests.support.realistic_schemas import SCHEMAS as SCHEMAS_OF_PEOPLE
from tests.support.realistic_schemas import key_order, spelled
from tests.support.scale import scaled
from tests.support.schema_documents import mutated
from tests.support.schemas import ask_schema

# Refusals by design; any other refusal is a defect.
_REFUSED = (
    "too complex",
    "takes too many states",
    "too much work",
    "too many alternatives",
)
_MAX_ORDERS = 200
_additional_items = jsonschema.Draft7Validator.VALIDATORS["additionalItems"]


def _additional_items_of_a_list(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Beside `items` that is one schema, the keyword has no effect; jsonschema fails if the schema is a boolean."""
    if not isinstance(schema.get("items"), bool):
        yield from _additional_items(validator, additional, instance, schema) or ()


_Draft7 = jsonschema.validators.extend(jsonschema.Draft7Validator, {"additionalItems": _additional_items_of_a_list})
_LONG_NUMBER = re.compile(r"\d{309}")  # the guest writes none


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


def _for_python(schema: Any) -> Any:
    """Return a schema whose patterns mean to Python what they mean to ECMAScript: Python's `$` stands before a last
    line break too."""
    match schema:
        case dict():
            return {_for_python(key): _for_python(value) for key, value in schema.items()}
        case list():
            return [_for_python(item) for item in schema]
        case str():
            return re.sub(r"(?<!\\)\$\Z", r"\\Z", schema)
    return schema


@pytest.mark.parametrize("name", sorted(SCHEMAS_OF_PEOPLE.keys() - {"tree"}))  # hypothesis-jsonschema makes no trees
@settings(max_examples=scaled(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_schemas_of_people(guest: GuestModule, name: str, data: st.DataObject) -> None:
    schema = SCHEMAS_OF_PEOPLE[name]
    dialect = jsonschema.Draft202012Validator
    validator = dialect(_for_python(schema), format_checker=dialect.FORMAT_CHECKER)
    document = data.draw(from_schema(schema))
    event("valid" if validator.is_valid(document) else "invalid")
    texts = [spelled(one, key_order(schema)) for one in [document, *(mutated(document, data) for _ in range(4))]]
    report = ask_schema(guest, schema, texts, objects="open")
    assert report.problems == ()
    for text, stopped in zip(texts, report.texts, strict=True):
        if not _LONG_NUMBER.search(text):
            assert (stopped is None) == validator.is_valid(json.loads(text)), (text, stopped)


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, data=st.data())
def test_random_schemas(guest: GuestModule, schema: Any, data: st.DataObject) -> None:
    validator = _Draft7(schema, format_checker=_Draft7.FORMAT_CHECKER)
    documents = data.draw(st.lists(VALUES, min_size=2, max_size=4))
    if not _is_beyond_it(schema):
        # hypothesis-jsonschema fails on some schemas without a value, such as minLength above maxLength in an item.
        with contextlib.suppress(InvalidArgument):
            made = data.draw(from_schema(schema))
            documents += [made, *(mutated(made, data) for _ in range(4))]
    texts: list[tuple[int, str]] = []
    for number, document in enumerate(documents):
        ways = list(itertools.islice(orders(document), _MAX_ORDERS + 1))
        if len(ways) <= _MAX_ORDERS and _plain(document):
            texts += [(number, spelled(way, [])) for way in ways]
    assume(texts)
    valid = {number for number, _ in texts if validator.is_valid(documents[number])}
    report = ask_schema(guest, schema, [text for _, text in texts], objects="open")
    if report.problems:
        event(report.problems[0].message)
        if any("no value satisfies" in problem.message for problem in report.problems):
            assert valid == set()
        else:
            assert all(any(why in problem.message for why in _REFUSED) for problem in report.problems), report.problems
        return
    event(f"{min(len(valid), 3)} valid")
    accepted = {number for (number, _), stopped in zip(texts, report.texts, strict=True) if stopped is None}
    assert [documents[number] for number in accepted - valid] == []
    assert [documents[number] for number in valid - accepted] == []


@pytest.mark.parametrize("items", [True, False])
def test_additional_items_have_no_effect_beside_one_schema(guest: GuestModule, items: bool) -> None:
    schema = {"type": "array", "items": items, "additionalItems": not items}
    report = ask_schema(guest, schema, ["[]", "[null]"], objects="open")
    validator = _Draft7(schema)
    assert [stopped is None for stopped in report.texts] == [validator.is_valid([]), validator.is_valid([None])]
    assert validator.is_valid([None]) == items


def _is_beyond_it(schema: Any) -> bool:
    """On certain schemas hypothesis-jsonschema fails with these errors, or makes other documents in the second run."""
    keywords = ("$ref", "allOf", "anyOf", "contains", "dependencies", "if", "not", "oneOf", "propertyNames")
    return any(f'"{keyword}":' in json.dumps(schema) for keyword in keywords)


def _plain(value: Any) -> bool:
    """Skip texts on which Python's patterns differ from ECMA-262's, and numbers that binary fractions round."""
    if isinstance(value, dict):
        return all(_plain(key) and _plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, str):
        return not any(
            (c.isspace() and c != " ") or "\ud800" <= c <= "\udfff" or (c > "\x7f" and c.isdigit()) for c in value
        )
    return not isinstance(value, int | float) or isinstance(value, bool) or value == 0 or 1e-6 < abs(value) < 1e12
