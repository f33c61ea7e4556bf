"""Every rule of JSON Schema: the table against a validator, and the guest against the table."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.fake_host import GuestModule
from tests.support.guests import shipped_guest
from tests.support.random_schemas import spelled
from tests.support.schemas import ask_schema

_GROUPS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("schema_suite.toml").read_text())["group"]
_DIALECTS: dict[int, Any] = {
    4: jsonschema.Draft4Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
}
_ANSWERED = [group for group in _GROUPS if "refused" not in group]


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


def test_the_table_is_large() -> None:
    assert sum(len(group[key]) for group in _ANSWERED for key in ("yes", "no")) >= 250


@pytest.mark.parametrize("group", _GROUPS, ids=lambda group: group["schema"][:60])
def test_the_guest(guest: GuestModule, group: dict[str, Any]) -> None:
    instances = [*group.get("yes", []), *group.get("no", []), *group.get("unwritten", [])]
    texts = [(instance, text) for instance in instances for text in [instance, *spelled(_value(instance))]]
    report = ask_schema(guest, group["schema"], [text for _, text in texts], objects="open")
    if "refused" in group:
        assert [problem.pointer for problem in report.problems] == [group["refused"]]
        return
    assert report.problems == ()
    accepted = {instance for (instance, _), stopped in zip(texts, report.texts, strict=True) if stopped is None}
    assert accepted == set(group["yes"])


@pytest.mark.parametrize("group", _ANSWERED, ids=lambda group: group["schema"][:60])
def test_a_validator(group: dict[str, Any]) -> None:
    if "validator" in group:
        return
    dialect = _DIALECTS[group.get("draft", 2020)]
    schema = json.loads(group["schema"])
    dialect.check_schema(schema)
    validator = dialect(schema, format_checker=dialect.FORMAT_CHECKER)
    assert all(validator.is_valid(_value(instance)) for instance in [*group["yes"], *group.get("unwritten", [])])
    assert not any(validator.is_valid(_value(instance)) for instance in group["no"])


def _value(instance: str) -> Any:
    return json.loads(instance)
