"""The json_schema guest against a validator, on random schemas: what it accepts is valid, what is valid it accepts.

Up to the documented differences: keys may stand in one order only, so a value counts as accepted if some order is.
"""

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.support.fake_host import GuestModule
from tests.support.guests import shipped_guest
from tests.support.random_schemas import SCHEMAS, VALUES, spelled
from tests.support.scale import scaled
from tests.support.schemas import ask_schema

# What is refused by design; anything else is a defect.
_REFUSED = ("too complex", "takes too many states", "too much work", "no value satisfies", "4096 alternatives")


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


@settings(max_examples=scaled(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, values=st.lists(VALUES, min_size=4, max_size=12))
def test_random_schemas(guest: GuestModule, schema: Any, values: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    valid = {number for number, value in enumerate(values) if validator.is_valid(value)}
    texts = [(number, text) for number, value in enumerate(values) for text in spelled(value)]
    report = ask_schema(guest, schema, [text for _, text in texts])
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
