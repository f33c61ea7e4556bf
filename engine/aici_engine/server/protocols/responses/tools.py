"""Tools and tool choices.

The model sees a custom tool as a function with one argument, the text `input`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from aici_base.errors import UsageError
from aici_controllers.schema_check import SchemaOptions
from aici_engine.chat.tools import Tool
from aici_engine.server.errors import about
from aici_engine.server.protocols.chat.turn import ArgumentsConstraint, Named, ToolChoice
from aici_engine.server.protocols.responses.fields import Unsupported, only
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.constraints import CheckedCall, KeyConstraints

_Name = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,128}$")]


def _no_parameters() -> dict[str, Any]:
    """Return the schema of a function without parameters."""
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _of_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise ValueError(f"the schema of the parameters must have the type 'object', not {schema['type']!r}")
    return schema or _no_parameters()


class CallableFunction(StrictBody):
    """A function. Arguments are always valid against `parameters`, with or without `strict`. With `strict`, objects are
    closed, whatever `schema_options` says."""

    type: Literal["function"]
    name: _Name
    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_of_an_object)] = Field(default_factory=_no_parameters)
    strict: bool = False
    allowed_callers: Annotated[Any, only(["direct"])] = None
    defer_loading: Literal[False] = False
    output_schema: Unsupported = None

    def neutral(self) -> Tool:
        return Tool(self.name, self.description or "", self.parameters)


class TextInput(StrictBody):
    type: Literal["text"]


class GrammarInput(StrictBody):
    """The input is a text of the grammar, or matches the pattern from the first character to the last."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(StrictBody):
    """A tool whose input is a text."""

    type: Literal["custom"]
    name: _Name
    description: str | None = None
    format: Annotated[TextInput | GrammarInput, Field(discriminator="type")] | None = None
    allowed_callers: Annotated[Any, only(["direct"])] = None
    defer_loading: Literal[False] = False

    def neutral(self) -> Tool:
        description = self.description or ""
        if isinstance(self.format, GrammarInput):
            what = "Lark grammar" if self.format.syntax == "lark" else "regular expression"
            description = f"{description}\nThe input is a text of this {what}:\n{self.format.definition}".lstrip()
        return Tool(self.name, description, TEXT_INPUT)


TEXT_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of a custom tool, as the model sees them."""


def _ours(value: Any) -> Any:
    """Refuse by name a tool that OpenAI's servers run."""
    for number, tool in enumerate(value if isinstance(value, list) else []):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind not in ("function", "custom"):
            raise ValueError(
                f"tool {number} is of the type {kind[:80]}, which this server does not host: use function or custom"
            )
    return value


AnyTool = Annotated[CallableFunction | CustomTool, Field(discriminator="type")]
Tools = Annotated[list[AnyTool], BeforeValidator(_ours), Field(max_length=128)]


class ToolByName(StrictBody):
    """A tool by its name: the only one to be called, or one of `allowed_tools`."""

    type: Literal["function", "custom"]
    name: str


class AllowedToolNames(StrictBody):
    """The model may (`auto`) or must (`required`) call one of `tools`. The prompt shows the other tools too."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ToolByName], Field(min_length=1)]


def _hosted(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in ("function", "custom", "allowed_tools"):
        raise ValueError(f"the type {kind[:80]} is not supported: use function, custom or allowed_tools")
    return value


Choice = Annotated[
    Literal["none", "auto", "required"] | Annotated[ToolByName | AllowedToolNames, Field(discriminator="type")],
    BeforeValidator(_hosted),
]


async def arguments_of(
    constraints: KeyConstraints, tools: Sequence[AnyTool], options: SchemaOptions
) -> Mapping[str, ArgumentsConstraint[CheckedCall]]:
    """Return the constraint of each tool's arguments, if the input of one is a text under a grammar; else nothing."""
    if not any(tool.type == "custom" and isinstance(tool.format, GrammarInput) for tool in tools):
        return {}
    found = {}
    for tool in tools:
        with about("tools"):
            if tool.type == "custom" and isinstance(tool.format, GrammarInput):
                text = await constraints.quoted(tool.format.definition, tool.format.syntax)
                found[tool.name] = ArgumentsConstraint(text, is_text=True)
            else:
                schema = json.dumps({"type": "object", **tool.neutral().parameters})
                found[tool.name] = ArgumentsConstraint(await constraints.json_schema(schema, options))
    return found


def check_tools(tools: Sequence[AnyTool]) -> None:
    names = [tool.name for tool in tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"tools: two tools have the name {twice[0]}", param="tools")


def chosen(choice: Choice | None, tools: Sequence[AnyTool]) -> tuple[ToolChoice, Sequence[AnyTool]]:
    """Return the choice, and the tools that the model may call."""
    match choice:
        case None | "auto":
            return ("auto" if tools else "none"), tools
        case "none":
            return "none", ()
        case "required":
            if not tools:
                raise UsageError("tool_choice required needs tools", param="tool_choice")
            return "required", tools
        case ToolByName():
            return Named(choice.name), [_found(choice, tools)]
        case AllowedToolNames():
            return choice.mode, [_found(each, tools) for each in choice.tools]


def _found(wanted: ToolByName, tools: Sequence[AnyTool]) -> AnyTool:
    for tool in tools:
        if (tool.type, tool.name) == (wanted.type, wanted.name):
            return tool
    raise UsageError(f"tool_choice: tools has no {wanted.type} tool {wanted.name}", param="tool_choice")
