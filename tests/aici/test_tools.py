"""Python functions as tools."""

from typing import Annotated, Any

import jsonschema
import pydantic
import pytest

import aici
from aici.local_chat import prompt_messages
from aici.tools import ToolCall, tools_of


def weather(city: Annotated[str, "a city's name"], days: int = 1, *, units: str | None = None) -> str:
    """Return the weather.

    Of the next days.
    """
    return f"{city} {days} {units}"


class Shop:
    def buy(self, what: str) -> str:
        """Buy a thing."""
        return what


def test_a_function_is_described_by_signature_and_docstring() -> None:
    tool = tools_of([weather])["weather"]
    assert tool.description == "Return the weather.\n\nOf the next days."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "a city's name"},
            "days": {"type": "integer"},
            "units": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    call = ToolCall("1", "weather", {"city": "Rome", "days": 2}, tool)
    assert call.call() == "Rome 2 None"
    assert call.message("rain") == {"role": "tool", "tool_call_id": "1", "content": "rain"}


def test_methods_are_tools_too() -> None:
    tool = tools_of([Shop().buy])["buy"]
    assert list(tool.parameters["properties"]) == ["what"]


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_tool_may_be_a_description(wrapped: bool) -> None:
    function = {"name": "it", "parameters": {"type": "object"}}
    tool = tools_of([{"type": "function", "function": function} if wrapped else function])["it"]
    with pytest.raises(aici.UsageError, match="without a function"):
        ToolCall("1", "it", {}, tool).call()


def starred(*args: int) -> None: ...


class Opaque: ...


def strange(of: Opaque) -> None: ...


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(min_length=1)


class Person(pydantic.BaseModel):
    age: int = pydantic.Field(ge=0)
    home: Address


def greet(person: Person, others: list[Address], name: str) -> str:
    return f"{name} {person.age} {person.home.street} {others[0].street}"


def test_parameters_may_be_models_of_pydantic() -> None:
    tool = tools_of([greet])["greet"]
    assert tool.parameters["required"] == ["person", "others", "name"]
    definitions = tool.parameters["$defs"]
    assert tool.parameters["properties"]["person"]["properties"]["home"] == {"$ref": "#/$defs/person.Address"}
    assert definitions["person.Address"]["properties"]["street"]["minLength"] == 1
    home = {"street": "Way"}
    arguments = {"person": {"age": 3, "home": home}, "others": [home], "name": "Ada"}
    jsonschema.Draft202012Validator(tool.parameters).validate(arguments)
    assert ToolCall("1", "greet", arguments, tool).call() == "Ada 3 Way Way"


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([starred], "which no tool can have"),
        ([strange], "parameter of of strange"),
        ([weather, weather], "two tools are called weather"),
        ([{}], "is not described"),
        ([{"name": "no name"}], "no name of a tool"),
        ([3], "not int"),
    ],
)
def test_invalid_tools(tools: list[Any], said: str) -> None:
    with pytest.raises(aici.UsageError, match=said):
        tools_of(tools)


@pytest.mark.parametrize("message", [{}, {"role": "robot", "content": ""}, {"role": "user", "content": [1]}, "text"])
def test_invalid_messages(message: Any) -> None:
    with pytest.raises(aici.UsageError, match="a message is not as a chat needs it"):
        prompt_messages([message])
