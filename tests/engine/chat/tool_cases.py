"""Cases in the manner of the Berkeley Function Calling Leaderboard: tools, and the calls that a model should make."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aici_engine.chat.tools import PastCall, Tool

WEATHER: Final = Tool(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
)
ADD: Final = Tool(
    "add",
    "Add numbers.",
    {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "number"}}},
        "required": ["numbers"],
    },
)
ORDER: Final = Tool(
    "place_order",
    "Order goods.",
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
                    "required": ["sku", "count"],
                },
            },
            "address": {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]},
        },
        "required": ["items", "address"],
    },
)
NOW: Final = Tool("now", "The time.", {"type": "object", "properties": {}, "additionalProperties": False})
ALL: Final = (WEATHER, ADD, ORDER, NOW)


@dataclass(frozen=True, slots=True)
class ToolCase:
    """`text`: the answer without calls. `wrong`: arguments of the first call that its tool does not allow."""

    tools: tuple[Tool, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    text: str = ""
    wrong: Mapping[str, Any] | None = None

    @property
    def past_calls(self) -> list[PastCall]:
        return [PastCall(f"call{i:05}", name, arguments) for i, (name, arguments) in enumerate(self.calls)]


_ORDERED: Final = {"items": [{"sku": "a-1", "count": 2}, {"sku": 'ü "2"', "count": 1}], "address": {"street": "{}]"}}
CASES: Final[Mapping[str, ToolCase]] = {
    "simple": ToolCase((WEATHER,), (("get_weather", {"city": "Bonn"}),), wrong={"city": 1}),
    "enum": ToolCase(
        (WEATHER,), (("get_weather", {"city": "Bonn", "unit": "celsius"}),), wrong={"city": "Bonn", "unit": "kelvin"}
    ),
    "multiple": ToolCase(ALL, (("add", {"numbers": [1, -2.5, 3e4]}),), wrong={"city": "Bonn"}),
    "nested": ToolCase(ALL, (("place_order", _ORDERED),), wrong={"items": [{"sku": "a", "count": 0}], "address": {}}),
    "no arguments": ToolCase(ALL, (("now", {}),), wrong={"when": 1}),
    "parallel": ToolCase(
        (WEATHER,), (("get_weather", {"city": "Bonn"}), ("get_weather", {"city": "Köln [TOOL]"})), wrong={}
    ),
    "parallel multiple": ToolCase(ALL, (("now", {}), ("add", {"numbers": []}), ("now", {})), wrong={"a": 1}),
    "no call": ToolCase(ALL, text='Hello. JSON is {"like": "this"}, and {"name": "x"} too.'),
}
