"""Tools and tool calls. In the model's text a call is JSON between `<tool_call>` marks, as most templates teach."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARK = "<tool_call>"
_ARGUMENTS = re.compile(r"#(?:/anyOf/(\d+))?/properties/arguments(?=[/:])")
"""The JSON pointer of the parameters of a tool in `calls_schema`."""
OPEN, CLOSE = f"{MARK}\n", "\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call. `parameters`: the JSON Schema of an object, as a mapping."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call in an earlier assistant message. The result refers to the call by `call_id`."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallStart:
    """A delta: the model begins to call a tool."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A delta: more JSON text of the last call's arguments."""

    text: str


def written(call: PastCall) -> str:
    return f"{OPEN}{_json({'name': call.name, 'arguments': call.arguments})}{CLOSE}"


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def call_head(name: str) -> str:
    """Return the text of a call up to the arguments."""
    return f'{{"name": {_json(name)}, "arguments": '


def calls_schema(tools: Sequence[Tool]) -> str:
    """Return the JSON Schema of one call of any of the tools.

    A tool's schema gets an `$id`, so that `#` in a tool's schema refers to that schema and not to the whole document.
    """

    def call(number: int, tool: Tool) -> dict[str, Any]:
        arguments = {"$id": f"tool:{number}", "type": "object", **tool.parameters}
        properties = {"name": {"const": tool.name}, "arguments": arguments}
        required = ["name", "arguments"]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
            "x-aici-property-order": "declared",  # the reader of calls needs the name first
        }

    calls = [call(number, tool) for number, tool in enumerate(tools)]
    return _json({"anyOf": calls} if len(calls) > 1 else calls[0])


def warnings_about_tools(tools: Sequence[Tool], warnings: Sequence[str]) -> tuple[str, ...]:
    """Return warnings about `calls_schema(tools)` as warnings about the parameters of the tools, by name."""

    def about_tool(warning: str) -> str:
        place = _ARGUMENTS.search(warning)
        if place is None:
            return warning
        tool = tools[int(place[1] or 0)]
        return f"tool {tool.name}: {warning[: place.start()]}#{warning[place.end() :]}"

    return tuple(map(about_tool, warnings))


class CallReader:
    """Parses a call's JSON while the text arrives. The schema puts the tool's name first.

    `text`: the text so far. `started`: the name of the called tool is known.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._heads = {tool.name: _head(tool.name) for tool in tools}
        self.started = False
        self._held = ""
        self.text = ""

    def read(self, text: str) -> list[CallStart | CallArguments]:
        self.text += text
        self._held += text
        deltas: list[CallStart | CallArguments] = []
        if not self.started:
            heads = ((name, head.match(self._held)) for name, head in self._heads.items())
            name, head = next((found for found in heads if found[1]), ("", None))
            if head is None:
                return []
            self.started = True
            self._held = self._held[head.end() :]
            deltas.append(CallStart(new_call_id(), name))
        # The last brace closes the call, not the arguments. Hold back the last character, because it may be that brace.
        self._held, ready = self._held[-1:], self._held[:-1]
        if ready:
            deltas.append(CallArguments(ready))
        return deltas


def _head(name: str) -> re.Pattern[str]:
    """Return a regex for a call's text up to the arguments. The model may write spaces where JSON allows spaces."""
    return re.compile(rf'\{{\s*"name"\s*:\s*{re.escape(_json(name))}\s*,\s*"arguments"\s*:\s*(?=\{{)')


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
