"""Schemas as pydantic, zod, OpenAPI documents and authors of tools write them: the guest takes every one, accepts the
documents that fit and refuses the others, as an independent validator does."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

from tests.controllers.tool_schemas.pydantic_types import TYPES
from tests.support.fake_host import GuestModule
from tests.support.guests import shipped_guest
from tests.support.schemas import ask_schema

_TABLES = Path(__file__).with_name("tool_schemas")
_ZOD: dict[str, Any] = json.loads((_TABLES / "zod_types.json").read_text())
_OPENAPI: dict[str, Any] = json.loads((_TABLES / "openapi_30.json").read_text())
_OPENAPI_CASES: dict[str, Any] = tomllib.loads((_TABLES / "openapi_cases.toml").read_text())
_TOOLS: list[dict[str, Any]] = tomllib.loads((_TABLES / "tools.toml").read_text())["tool"]


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


def _check(guest: GuestModule, schema: Any, yes: list[str], no: list[str]) -> None:
    report = ask_schema(guest, schema, [*yes, *no])
    assert report.problems == ()
    answers = dict(zip([*yes, *no], report.texts, strict=True))
    assert [text for text in yes if answers[text] is not None] == []
    assert [text for text in no if answers[text] is None] == []
    turned = list(dict.fromkeys(_turned(text) for text in yes))
    report = ask_schema(guest, schema, [*turned, *no], objects="open", property_order="any")
    assert report.problems == ()
    assert [stopped is None for stopped in report.texts] == [True] * len(turned) + [False] * len(no)


def _turned(text: str) -> str:
    """Return the document with the keys of all objects in reverse order."""
    return _dumped(json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs))))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fields(values: list[Any]) -> list[str]:
    return [_dumped({"x": value}) for value in values]


def _is_valid(schema: Any, text: str) -> bool:
    dialect = jsonschema.Draft202012Validator
    return dialect(schema, format_checker=dialect.FORMAT_CHECKER).is_valid(json.loads(text))


def test_the_tables_are_large() -> None:
    assert len(TYPES) >= 60
    assert len(_ZOD["types"]) >= 50


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_pydantic(guest: GuestModule, name: str) -> None:
    kind, valid, invalid = TYPES[name]
    model = pydantic.create_model("Model", x=(kind, ...))
    schema = model.model_json_schema()
    yes, no = _fields(valid), _fields(invalid)
    for text in yes:
        assert _is_valid(schema, text), text
        model.model_validate_json(text)
    for text in no:
        assert not (_is_valid(schema, text) and _is_instance(model, text)), text
    _check(guest, schema, yes, no)


def _is_instance(model: type[pydantic.BaseModel], text: str) -> bool:
    try:
        model.model_validate_json(text)
    except pydantic.ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", _ZOD["types"])
def test_a_type_of_zod(guest: GuestModule, name: str) -> None:
    """zod itself judged the documents when the table was written."""
    one = _ZOD["types"][name]
    yes, no = _fields(one["valid"]), _fields(one["invalid"])
    if not re.search(r"\(\?|\\p", json.dumps(one["schema"])):  # Python reads some patterns in another way
        assert [text for text in yes if not _is_valid(one["schema"], text)] == []
    _check(guest, one["schema"], yes, no)


@pytest.mark.parametrize("name", _OPENAPI_CASES)
def test_a_component_of_openapi(guest: GuestModule, name: str) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": _OPENAPI["components"]}
    cases = _OPENAPI_CASES[name]
    assert all(_is_valid(_with_null(schema), text) for text in cases["yes"])
    assert not any(_is_valid(_with_null(schema), text) for text in cases["no"])
    _check(guest, schema, cases["yes"], cases["no"])


def _with_null(schema: Any) -> Any:
    """Write `nullable` and the flag `exclusiveMinimum` of OpenAPI 3.0 as JSON Schema 2020-12."""
    if isinstance(schema, list):
        return [_with_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _with_null(value) for key, value in schema.items() if key != "nullable"}
    if plain.get("exclusiveMinimum") is True:
        plain["exclusiveMinimum"] = plain.pop("minimum")
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


@pytest.mark.parametrize("tool", _TOOLS, ids=lambda tool: tool["name"])
def test_the_parameters_of_a_tool(guest: GuestModule, tool: dict[str, Any]) -> None:
    standard = json.loads(tool.get("reads_as", tool["schema"]))
    assert all(_is_valid(standard, text) for text in tool["yes"])
    assert not any(_is_valid(standard, text) for text in tool["no"])
    _check(guest, json.loads(tool["schema"]), tool["yes"], tool["no"])


def test_careless_spellings_are_named(guest: GuestModule) -> None:
    careless = [tool for tool in _TOOLS if "warnings" in tool]
    assert careless
    for tool in careless:
        schema = json.loads(tool["schema"])
        warned = {warning.pointer for warning in ask_schema(guest, schema).warnings}
        assert set(tool["warnings"]) <= warned
        refused = {problem.pointer for problem in ask_schema(guest, schema, strict_schema=True).problems}
        assert set(tool["warnings"]) <= refused
