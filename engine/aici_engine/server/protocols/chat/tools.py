"""Tools, and how a call of one is written in a text: JSON between the marks that most templates teach."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARK = "<tool_call>"
OPEN, CLOSE = f"{MARK}\n", "\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters`: a JSON Schema of an object, itself an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastCall:
    """`call_id` is what its result names it by."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallStart:
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """What the JSON text of the last call's arguments gains."""

    text: str


def written(call: PastCall) -> str:
    return f"{OPEN}{_json({'name': call.name, 'arguments': call.arguments})}{CLOSE}"


def calls_schema(tools: Sequence[Tool]) -> str:
    """One call of one of the tools. Each tool's schema is a document of its own: `#` in it means itself."""

    def call(number: int, tool: Tool) -> dict[str, Any]:
        arguments = {"$id": f"tool:{number}", "type": "object", **tool.parameters}
        properties = {"name": {"const": tool.name}, "arguments": arguments}
        required = ["name", "arguments"]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    calls = [call(number, tool) for number, tool in enumerate(tools)]
    return _json({"anyOf": calls} if len(calls) > 1 else calls[0])


class CallReader:
    """Takes a call's JSON apart as it comes: name first, as the schema says it. `text`: all of it so far.

    `started`: who is called is known.
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
            deltas.append(CallStart(f"call_{uuid.uuid4().hex[:24]}", name))
        # The last brace is the call's own: whatever may be it waits.
        self._held, ready = self._held[-1:], self._held[:-1]
        if ready:
            deltas.append(CallArguments(ready))
        return deltas


def _head(name: str) -> re.Pattern[str]:
    """Up to where the arguments begin. The constraint lets the model put spaces where JSON may have them."""
    return re.compile(rf'\{{\s*"name"\s*:\s*{re.escape(_json(name))}\s*,\s*"arguments"\s*:\s*(?=\{{)')


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
