"""How the flags of a constraint read files and texts."""

import json
from pathlib import Path

import pytest

from aici_base.errors import NotFoundError, UsageError
from aici_cli.constraint import Flags, constraint_from


def test_files_as_windows_editors_write_them(tmp_path: Path) -> None:
    """A mark before the text and CR LF are the file's, not the text's; U+2028 ends no line."""
    lines = tmp_path / "lines"
    lines.write_bytes(b"\xef\xbb\xbfred\r\n\r\ndark\xe2\x80\xa8green\r\nblue")
    constraint = constraint_from(Flags(choices=lines))
    assert constraint is not None
    assert json.loads(constraint.argument) == ["red", "dark\u2028green", "blue"]
    constraint = constraint_from(Flags(substring=lines))
    assert constraint is not None
    assert json.loads(constraint.argument)["text"] == "red\r\n\r\ndark\u2028green\r\nblue"
    schema = tmp_path / "schema.json"
    schema.write_bytes(b'\xef\xbb\xbf{"type": "integer"}\r\n')
    assert constraint_from(Flags(json_schema=str(schema))) is not None
    tag = tmp_path / "tag.json"
    tag.write_bytes(b'\xef\xbb\xbf{"format": {"type": "any_text"}}\r\n')
    assert constraint_from(Flags(structural_tag=str(tag))) == constraint_from(
        Flags(structural_tag='{"format": {"type": "any_text"}}')
    )
    grammar = tmp_path / "yes.y"
    grammar.write_bytes(b'\xef\xbb\xbf%start s\r\n%%\r\ns : "yes" ;\r\n')
    assert constraint_from(Flags(grammar=str(grammar))) is not None


@pytest.mark.parametrize(
    ("schema", "helps"),
    [
        ('{"type": "string", "pattern": "(a)\\\\1"}', True),
        ('{"type": "string", "maxLength": 3', False),
        ('{"type": "string", "enum": [1]}', False),
        ("false", False),
    ],
)
def test_lenient_is_advised_where_it_helps(schema: str, helps: bool) -> None:
    with pytest.raises(UsageError) as error:
        constraint_from(Flags(json_schema=schema))
    assert ("--lenient" in error.value.hint_for("cli")) == helps


@pytest.mark.parametrize(
    ("guest", "argument", "said"),
    [
        ("regex", "a(", "missing ')'"),
        ("grammar", "no grammar", "error"),
        ("json_schema", '{"schema": {"type": "strin"}}', "#/type"),
        ("json_schema", '{"type": "string"}', '"type" is wrong'),
        ("json_schema", "{", "not JSON: line 1, column 2"),
        ("choices", "[]", "at least one choice"),
        ("choices", '["a"], "b": 1', "not JSON: line 1, column 6"),
        ("substring", '{"txt": "a"}', "not known"),
        ("structural_tag", '{"format": {}}', "#/format: type is missing"),
    ],
)
def test_the_argument_of_a_named_controller_is_checked_first(guest: str, argument: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        constraint_from(Flags(controller=guest, controller_arg=argument))
    assert said in error.value.message


def test_the_argument_of_a_named_controller_is_passed_unchanged() -> None:
    for guest, argument in (
        ("choices", '[ "a" ]'),
        ("json_schema", '{"schema": true}'),
        ("substring", '{"text": "a"}'),
    ):
        constraint = constraint_from(Flags(controller=guest, controller_arg=argument))
        assert constraint is not None
        assert (constraint.controller, constraint.argument) == (guest, argument)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ('{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}', "function.parameters"),
        ('{"type": "json_schema", "json_schema": {"name": "f", "schema": {}}}', "json_schema.schema"),
        ('{"name": "f", "strict": true, "schema": {"type": "object"}}', "schema"),
        ('{"name": "f", "input_schema": {"type": "object"}}', "input_schema"),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_the_envelope_of_chat_apis_is_told_from_a_schema(schema: str, where: str, lenient: bool) -> None:
    with pytest.raises(UsageError) as error:
        constraint_from(Flags(json_schema=schema, schema_options={"lenient": lenient}))
    assert error.value.hint.endswith(f" {where}")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (Flags(json_schema="[1]"), "a schema is an object, true or false"),
        (Flags(json_schema='"a"'), "a schema is an object, true or false"),
        (Flags(json_schema="{\udcff"), "--json-schema is not UTF-8 at character 1"),
        (Flags(regex="ab\udcff"), "--regex is not UTF-8 at character 2"),
        (Flags(choice=["a", "\udcff"]), "--choice is not UTF-8 at character 0"),
        (Flags(controller="regex", controller_arg="\udcff"), "--controller-arg is not UTF-8 at character 0"),
    ],
)
def test_invalid_schemas_and_texts(flags: Flags, said: str) -> None:
    with pytest.raises(UsageError) as error:
        constraint_from(flags)
    assert said in error.value.message


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [(r"(a)\1", "rewrite the pattern without it"), ("a$b", "match the whole output"), ("a(", "")],
)
def test_the_hint_for_a_refused_regex_fits_the_problem(pattern: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        constraint_from(Flags(regex=pattern))
    assert hint in error.value.hint
    assert bool(hint) == bool(error.value.hint)


@pytest.mark.parametrize(("name", "near"), [("regx", "did you mean regex?"), ("zzzz", "")])
def test_an_unknown_controller_names_the_list(name: str, near: str) -> None:
    with pytest.raises(NotFoundError, match="no controller is called") as error:
        constraint_from(Flags(controller=name))
    assert near in error.value.hint_for("cli")
    assert "aici ctrl list" in error.value.hint_for("cli")
