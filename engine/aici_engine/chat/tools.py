"""Tools and tool calls. `tool_syntax` says how a model writes a call as text."""

import json
import re
import secrets
import string
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ARGUMENTS = re.compile(r"#(?:/anyOf/(\d+))?/properties/(?:arguments|parameters)(?=[/:])")
"""The JSON pointer of the parameters of a tool in `calls_schema`."""
_ID_CHARS = string.ascii_letters + string.digits


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


def new_call_id(num_chars: int | None = None) -> str:
    """Return a new id. `num_chars`: letters and digits of an id of fixed length."""
    if num_chars is not None:
        return "".join(secrets.choice(_ID_CHARS) for _ in range(num_chars))
    return f"call_{uuid.uuid4().hex[:24]}"


def calls_schema(tools: Sequence[Tool], key: str = "arguments") -> str:
    """Return the JSON Schema of one call of any of the tools. `key`: the member with the arguments.

    A tool's schema gets an `$id`, so that `#` in a tool's schema refers to that schema and not to the whole document.
    """

    def call(number: int, tool: Tool) -> dict[str, Any]:
        arguments = {"$id": f"tool:{number}", "type": "object", **tool.parameters}
        properties = {"name": {"const": tool.name}, key: arguments}
        required = ["name", key]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
            "x-aici-property-order": "declared",  # the reader of calls needs the name first
        }

    calls = [call(number, tool) for number, tool in enumerate(tools)]
    return compact_json({"anyOf": calls} if len(calls) > 1 else calls[0])


def warnings_about_tools(tools: Sequence[Tool], warnings: Sequence[str]) -> tuple[str, ...]:
    """Return warnings about `calls_schema(tools)` as warnings about the parameters of the tools, by name."""

    def about_tool(warning: str) -> str:
        place = _ARGUMENTS.search(warning)
        if place is None:
            return warning
        tool = tools[int(place[1] or 0)]
        return f"tool {tool.name}: {warning[: place.start()]}#{warning[place.end() :]}"

    return tuple(map(about_tool, warnings))


def compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
