"""Classes to JSON Schemas, and JSON to instances."""

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest
from pydantic import BaseModel

from aici import UsageError
from aici.schemas import described


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Point:
    x: int
    y: float = 0.0


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
    class Person(BaseModel):
        name: str
        age: int

    shape = described(Person)
    assert json.loads(shape.schema)["additionalProperties"] is False
    assert shape.parse('{"name": "A", "age": 3}') == Person(name="A", age=3)
    with pytest.raises(ValueError, match="Unterminated"):
        shape.parse('{"name": "A", "a')


def test_other_types_go_to_pydantic() -> None:
    assert described(list[int]).parse("[1, 2]") == [1, 2]


def test_schemas_come_back_as_plain_json() -> None:
    for schema in ({"type": "integer"}, '{"type": "integer"}'):
        assert described(schema).parse("3") == 3


@pytest.mark.parametrize("wrong", [3, Point(1), {"a": {1, 2}}])
def test_other_values_than_schemas_and_classes_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        described(wrong)
