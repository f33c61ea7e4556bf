"""Classes to JSON Schemas, and JSON to instances."""

import datetime
import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict, get_type_hints
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, Field, RootModel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from aici import UsageError, json_schema
from aici.schemas import described
from aici_controllers.schema_check import SchemaKeywords, SchemaOptions, check_schema


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Point:
    x: int
    y: float = 0.0


class Person(BaseModel):
    name: str
    age: int


class Everybody(RootModel[list[Person]]):
    pass


@dataclass
class Limited:
    level: Annotated[int, Field(ge=2)]


@pydantic_dataclass
class Checked:
    size: int = Field(gt=0)


class Options(TypedDict):
    name: str
    size: NotRequired[int]


@dataclass(frozen=True)
class Everything:
    text: str
    colour: Colour
    where: Point
    options: Options
    parts: list[Point]
    pair: tuple[int, str]
    rest: tuple[int, ...]
    scores: Mapping[str, float]
    words: Sequence[str]
    level: Literal["low", 3, None]
    maybe: Point | None
    either: int | str | list[Point]
    note: Annotated[str, "a remark"]
    anything: Any = None
    tags: set[str] = field(default_factory=set)


@dataclass
class Tree:
    name: str
    children: "list[Tree]"


DOCUMENT: dict[str, Any] = {
    "text": "t",
    "colour": "green",
    "where": {"x": 1},
    "options": {"name": "n"},
    "parts": [{"x": 1, "y": 2}],
    "pair": [1, "one"],
    "rest": [1, 2],
    "scores": {"a": 1},
    "words": ["w"],
    "level": None,
    "maybe": {"x": 3},
    "either": [{"x": 4}],
    "note": "seen",
    "anything": {"free": [True]},
    "tags": ["x"],
}


def test_a_dataclass_of_everything_comes_back() -> None:
    shape = described(Everything)
    jsonschema.Draft202012Validator.check_schema(json.loads(shape.schema))
    jsonschema.validate(DOCUMENT, json.loads(shape.schema))
    assert shape.parse(json.dumps(DOCUMENT)) == Everything(
        text="t",
        colour=Colour.GREEN,
        where=Point(1),
        options={"name": "n"},
        parts=[Point(1, 2.0)],
        pair=(1, "one"),
        rest=(1, 2),
        scores={"a": 1.0},
        words=["w"],
        level=None,
        maybe=Point(3),
        either=[Point(4)],
        note="seen",
        anything={"free": [True]},
        tags={"x"},
    )
    without = {name: value for name, value in DOCUMENT.items() if name not in ("anything", "tags")}
    assert shape.parse(json.dumps(without | {"maybe": None, "either": "e"})).either == "e"


@pytest.mark.parametrize("wrong", [{"where": {}}, {"colour": "blue"}, {"pair": [1]}, {"more": 1}, {"level": 2}])
def test_the_schema_refuses_non_instances(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(DOCUMENT | wrong, json.loads(described(Everything).schema))


def test_a_class_may_hold_itself() -> None:
    tree = {"name": "a", "children": [{"name": "b", "children": []}]}
    assert described(Tree).parse(json.dumps(tree)) == Tree("a", [Tree("b", [])])


def test_a_typed_dict_is_a_dict() -> None:
    assert described(Options).parse('{"name": "n", "size": 2}') == {"name": "n", "size": 2}


def test_a_pydantic_model_is_made_by_pydantic() -> None:
    shape = described(Person)
    whole, more = '{"name": "A", "age": 3}', '{"name": "A", "age": 3, "x": 1}'
    assert check_schema(shape.schema, [whole, more]).texts == (None, len('{"name": "A", "age": 3'))
    assert shape.parse('{"name": "A", "age": 3}') == Person(name="A", age=3)
    with pytest.raises(ValueError, match="Unterminated"):
        shape.parse('{"name": "A", "a')


Seconds = NewType("Seconds", int)


@pytest.mark.parametrize(
    ("kind", "text", "value", "wrong"),
    [
        (list[int], "[1, 2]", [1, 2], '["a"]'),
        (Colour, '"red"', Colour.RED, '"blue"'),
        (Literal["low", 3, None], "3", 3, "4"),
        (Point | None, '{"x": 1}', Point(1), "1"),
        (int | str, '"a"', "a", "[]"),
        (Seconds, "3", 3, '"a"'),
        (dict[str, Colour], '{"a": "red"}', {"a": Colour.RED}, '{"a": 1}'),
        (datetime.date, '"2024-02-29"', datetime.date(2024, 2, 29), '"2023-02-29"'),
        (datetime.datetime, '"2024-01-31T10:00:00Z"', datetime.datetime(2024, 1, 31, 10, tzinfo=datetime.UTC), '"x"'),
        (UUID, '"123e4567-e89b-42d3-a456-426614174000"', UUID("123e4567-e89b-42d3-a456-426614174000"), '"x"'),
        (Decimal, '"1.50"', Decimal("1.50"), '"1,5"'),
        (Path, '"/etc"', Path("/etc"), "1"),
        (datetime.date | int, '"2024-02-29"', datetime.date(2024, 2, 29), '"x"'),
        (Annotated[int, Field(ge=2)], "2", 2, "1"),
        (Limited, '{"level": 2}', Limited(level=2), '{"level": 1}'),
        (list[Person], '[{"name": "A", "age": 3}]', [Person(name="A", age=3)], '[{"name": "A"}]'),
        (Person | Point, '{"x": 1, "y": 2.5}', Point(1, 2.5), '{"z": 1}'),
        (Everybody, '[{"name": "A", "age": 3}]', Everybody([Person(name="A", age=3)]), "{}"),
        (Checked, '{"size": 1}', Checked(size=1), '{"size": 0}'),
    ],
    ids=str,
)
def test_a_type_comes_back(kind: Any, text: str, value: object, wrong: str) -> None:
    shape = described(kind)
    schema = json.loads(shape.schema)
    dialect = jsonschema.Draft202012Validator
    validator = dialect(schema, format_checker=dialect.FORMAT_CHECKER)
    assert validator.is_valid(json.loads(text))
    assert not validator.is_valid(json.loads(wrong))
    report = check_schema(shape.schema, [text, wrong])
    assert report.problems == ()
    assert [stopped is None for stopped in report.texts] == [True, False]
    parsed = shape.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_schemas_come_back_as_plain_json() -> None:
    for schema in ({"type": "integer"}, '{"type": "integer"}'):
        assert described(schema).parse("3") == 3


@pytest.mark.parametrize("wrong", [3, None, Point(1), {"a": {1, 2}}])
def test_other_values_than_schemas_and_classes_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        described(wrong)


def test_options_reach_the_guest_and_warnings_come_back() -> None:
    assert json_schema({"type": "integer", "colour": 1}).warnings == ("not enforced: #/colour: unknown keyword",)
    options = {"whitespace": "none", "lenient": True, "strict_schema": True, "objects": "open", "property_order": "any"}
    assert json.loads(json_schema({"type": "integer"}, **options).argument) == {
        **options,
        "schema": {"type": "integer"},
    }  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown keyword"):
        json_schema({"colour": 1}, strict_schema=True)
    with pytest.raises(UsageError, match='"objects" is closed or open'):
        json_schema({"type": "integer"}, objects="shut")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        json_schema({"type": "integer"}, lenint=True)  # type: ignore[call-overload]


def test_the_keywords_are_the_fields_of_the_options() -> None:
    assert get_type_hints(SchemaKeywords) == get_type_hints(SchemaOptions)
