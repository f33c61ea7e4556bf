"""The table of the json_schema guest: allowed and refused texts, refused schemas; and the verdict of another
validator."""

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aici_controllers.schema_check import SchemaOptions, check_schema, schema_argument
from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError
from tests.support.guests import shipped_guest
from tests.support.schemas import ask_schema

_TABLE = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "json_schema" / "cases.toml"
_CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(_TABLE.read_text())
_OPTIONS = tuple(field.name for field in fields(SchemaOptions))


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


@pytest.mark.parametrize("case", _CASES["case"], ids=lambda case: case["schema"][:60])
def test_cases(guest: GuestModule, case: dict[str, Any]) -> None:
    refused = [*case["no"], *case.get("unwritten", [])]
    options = {key: case[key] for key in _OPTIONS if key in case}
    report = ask_schema(guest, case["schema"], [*case["yes"], *refused], **options)
    assert report.problems == ()
    assert [warning.pointer for warning in report.warnings] == case.get("warnings", [])
    answers = dict(zip([*case["yes"], *refused], report.texts, strict=True))
    assert [text for text in case["yes"] if answers[text] is not None] == []
    assert [text for text in refused if answers[text] is None] == []


@pytest.mark.parametrize("case", _CASES["case"], ids=lambda case: case["schema"][:60])
def test_a_validator_agrees_with_the_table(case: dict[str, Any]) -> None:
    schema = json.loads(case["schema"])
    if "warnings" in case:
        return
    old = '"dependencies"' in case["schema"] or '"items": [' in case["schema"]
    dialect = jsonschema.Draft7Validator if old else jsonschema.Draft202012Validator
    dialect.check_schema(schema)
    validator = dialect(schema, format_checker=dialect.FORMAT_CHECKER)
    assert [text for text in [*case["yes"], *case.get("unwritten", [])] if not _is_valid(validator, text)] == []
    # The validator accepts formats for which it has no checker.
    if schema is True or schema.get("format", "date") in dialect.FORMAT_CHECKER.checkers:
        assert [text for text in case["no"] if _is_valid(validator, text)] == []


def _is_valid(validator: Any, text: str) -> bool:
    try:
        return bool(validator.is_valid(json.loads(text)))
    except json.JSONDecodeError:
        return False


@pytest.mark.parametrize("case", _CASES["error"], ids=lambda case: case["schema"][:60])
def test_errors(guest: GuestModule, case: dict[str, Any]) -> None:
    report = ask_schema(guest, case["schema"], strict_schema=case.get("strict_schema", False))
    found = [problem for problem in report.problems if problem.pointer == case["pointer"]]
    assert any(case["says"] in problem.message for problem in found), report.problems
    argument = schema_argument(case["schema"], SchemaOptions(strict_schema=case.get("strict_schema", False)))
    with pytest.raises(GuestStoppedError) as stopped:
        FakeHost(guest, [b"a", b""], eos=1, arg=argument)
    assert str(stopped.value) == "".join(problem.show() + "\n" for problem in report.problems)


def test_check_schema_asks_the_guest() -> None:
    report = check_schema({"type": "integer"}, ["1", "x", ""])
    assert report == type(report)((), (), (None, 0, 0))
    (problem,) = check_schema('{"type":\n  nul}').problems
    assert problem.message == "not JSON: line 2, column 3: Expecting value"
    for text, says in [  # spellings that Python's reader accepts, or cannot read
        ('{"maximum": NaN}', "not JSON: line 1, column 13: "),
        ('{"a":1,\n"a":2}', 'not JSON: line 2, column 1: the key "a" comes twice'),
        ("[" * 100_000, "nested deeper than 200 levels"),
        ('{"not":' * 200 + "{}" + "}" * 200, "nested deeper than 200 levels"),
    ]:
        (problem,) = check_schema(text).problems
        assert says in problem.message
    (problem,) = check_schema("\ud800").problems
    assert (problem.pointer, problem.keyword) == ("", "")
    (warning,) = check_schema({"a/b~": 1}).warnings
    assert (warning.pointer, warning.keyword, warning.message) == ("/a~1b~0", "a/b~", "unknown keyword")


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (b"", "the argument is not JSON: line 1, column 1: at the end: expected a JSON value"),
        (b'{"schema":{"a":1,\n"a":2}}', 'line 2, column 1: the key "a" comes twice'),
        (b'{"schema":true,"whitespaces":1}', 'the argument\'s "whitespaces" is wrong'),
        (b'{"schema":true,"whitespace":"some"}', "compact, none, spaced or flexible"),
        (b"[]", 'an object with a "schema"'),
        (b"[" * 300, "nested deeper than 200 levels"),
        (b'{"schema":"\\ud800"}', "half a surrogate pair"),
        (b'{"schema":"\xff"}', "not UTF-8"),
    ],
)
def test_arguments(guest: GuestModule, argument: bytes, says: str) -> None:
    with pytest.raises(GuestStoppedError) as stopped:
        FakeHost(guest, [b"a", b""], eos=1, arg=argument)
    assert says in str(stopped.value)


def test_what_is_not_enforced_is_in_the_log(guest: GuestModule) -> None:
    argument = b'{"schema": {"type": "integer", "foo": 1}}'
    host = FakeHost(guest, [b"7", b""], eos=1, arg=argument)
    assert host.log == b"json schema: not enforced at #/foo: unknown keyword\n"
    host.mid_process()
    assert host.allowed() == {0}


def test_rules_for_each_of_many_tools(guest: GuestModule) -> None:
    """`if` and `then` for each value of a discriminator: excluded alternatives are dropped at once, or they would
    multiply."""
    names = [f"tool_{number}" for number in range(60)]
    rules = [
        {
            "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
            "then": {"required": [f"key_of_{name}"]},
        }
        for name in names
    ]
    schema = {"type": "object", "properties": {"name": {"enum": names}}, "required": ["name"], "allOf": rules}
    report = ask_schema(guest, schema, ['{"name":"tool_7","key_of_tool_7":1}', '{"name":"tool_7","key_of_tool_8":1}'])
    assert report.problems == ()
    assert report.texts == (None, len('{"name":"tool_7","key_of_tool_'))


def test_a_long_text_without_a_pattern_is_walked_at_once(guest: GuestModule) -> None:
    """Each mask of this schema once searched all lengths up to the greatest, which ended the guest."""
    schema = {"type": "string", "not": {"pattern": "badword|worse"}, "maxLength": 300}
    argument = json.dumps({"schema": schema}).encode()
    host = FakeHost(guest, [*(bytes([byte]) for byte in range(256)), b" badword", b" good", b""], eos=258, arg=argument)
    host.init_prompt()
    for token in b'"a wor':
        host.mid_process()
        host.post_process([token])
    host.mid_process()
    allowed = host.allowed()
    assert 256 not in allowed
    assert {257, ord("s"), ord('"')} <= allowed
    host.post_process([ord("s")])
    host.mid_process()
    assert ord("e") not in host.allowed()


def _objects(num: int) -> dict[str, Any]:
    return {"enum": [{"id": n, "name": f"item {n * 7919 % 100003}"} for n in range(num)]}


def test_a_schema_that_fits_is_walked_and_a_larger_one_is_refused_at_once(guest: GuestModule) -> None:
    schema = _objects(2000)
    first, last = (f'{{"id":{n},"name":"item {n * 7919 % 100003}"}}' for n in (0, 1999))
    report = ask_schema(guest, schema, [first, last, first.replace("item", "term")])
    assert report.problems == ()
    assert [text is None for text in report.texts] == [True, True, False]
    refused = ask_schema(guest, _objects(4000))
    assert [(problem.pointer, problem.message) for problem in refused.problems] == [
        ("", "the schema is too large: shorten its lists of values, or split it")
    ]
