"""Messages, tools and tool choices as OpenAI's clients send them, and their conversion for `protocols.chat`."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from aici_base.errors import UsageError
from aici_engine.chat.past_arguments import read_arguments
from aici_engine.chat.tools import PastCall, Tool
from aici_engine.server.protocols.chat.prompt import PromptMessage
from aici_engine.server.protocols.chat.turn import Named, ToolChoice
from aici_engine.server.protocols.strict_body import StrictBody

_Name = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]


class TextPart(StrictBody):
    """`prompt_cache_breakpoint` has no effect: prompts share the cache without being told."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: dict[str, Any] | None = None


class RefusalPart(StrictBody):
    type: Literal["refusal"]
    refusal: str


def _joined(value: Any) -> Any:
    """Join the parts of a content: texts, and refusals that a client sends back."""
    if not isinstance(value, list):
        return value
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal":
            texts.append(RefusalPart.model_validate(part).refusal)
        elif kind == "text":
            texts.append(TextPart.model_validate(part).text)
        else:
            raise ValueError(f"a part of type {kind} is not supported: this model reads text only")
    return "".join(texts)


Content = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[TextPart | RefusalPart])]


class FunctionCall(StrictBody):
    """`arguments`: JSON text, or its beginning if the token limit cut the call short.

    `parsed_arguments`, which OpenAI's client for Python adds to calls, has no effect.
    """

    name: str
    arguments: str
    parsed_arguments: Any = None


class ToolCall(StrictBody):
    """A call. `index`, which clients copy from a stream, and LiteLLM's `provider_specific_fields` have no effect."""

    id: str
    type: Literal["function"] = "function"
    index: int | None = None
    provider_specific_fields: Any = None
    function: FunctionCall

    def neutral(self, where: str) -> PastCall:
        arguments = read_arguments(self.function.arguments)
        if arguments is None:
            name = f"{where}.function.arguments"
            raise UsageError(
                f"{name} is not a JSON object", hint="send the arguments as the answer had them", param=name
            )
        return PastCall(self.id, self.function.name, arguments)


class ChatMessage(StrictBody):
    """A message. The chat template gets `name` and `reasoning_content` (or `reasoning`), and decides what to show.

    A `refusal` that a client sends back is a part of the assistant's text. In a tool message, the name is the call's.
    `parsed`, which OpenAI's client for Python adds to answers, and `provider_specific_fields`, which LiteLLM adds, have
    no effect.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str = ""
    refusal: str = ""
    reasoning_content: str = ""
    reasoning: str = ""
    parsed: Any = None
    provider_specific_fields: Any = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: str | None = None
    annotations: list[Any] = Field(default_factory=list, max_length=0)

    def neutral(self, where: str) -> PromptMessage:
        self._check(where)
        return PromptMessage(
            role="system" if self.role == "developer" else self.role,
            content="\n".join(filter(None, (self.content, self.refusal))),
            calls=[call.neutral(f"{where}.tool_calls.{i}") for i, call in enumerate(self.tool_calls)],
            call_id=self.tool_call_id or "",
            name="" if self.role == "tool" else self.name,
            reasoning=self.reasoning_content or self.reasoning,
        )

    def _check(self, where: str) -> None:
        is_tool, is_assistant = self.role == "tool", self.role == "assistant"
        for field in ("refusal", "reasoning_content", "reasoning"):
            if getattr(self, field) and not is_assistant:
                raise UsageError(f"{where}.{field} belongs to the role assistant", param=f"{where}.{field}")
        if self.tool_calls and not is_assistant:
            raise UsageError(f"{where}.tool_calls: only the assistant calls tools", param=f"{where}.tool_calls")
        if is_tool != (self.tool_call_id is not None):
            problem = "is missing" if is_tool else "belongs to the role tool"
            raise UsageError(f"{where}.tool_call_id {problem}", param=f"{where}.tool_call_id")
        if self.content is None and not self.tool_calls and not self.refusal:
            raise UsageError(f"{where}.content is missing", param=f"{where}.content")


def _of_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise ValueError(f"the schema of the parameters must have the type 'object', not {schema['type']!r}")
    return schema or _no_parameters()


def _no_parameters() -> dict[str, Any]:
    """Return the schema of a function without parameters."""
    return {"type": "object", "properties": {}, "additionalProperties": False}


class FunctionSpec(StrictBody):
    """A function. Arguments are always valid against `parameters`, with or without `strict`. With `strict`, objects are
    closed, whatever `schema_options` says."""

    name: _Name
    description: str = ""
    parameters: Annotated[dict[str, Any], AfterValidator(_of_an_object)] = Field(default_factory=_no_parameters)
    strict: bool = False


class ToolSpec(StrictBody):
    type: Literal["function"]
    function: FunctionSpec


class ChosenFunction(StrictBody):
    name: str


class AllowedFunction(StrictBody):
    type: Literal["function"]
    function: ChosenFunction


class AllowedFunctions(StrictBody):
    """The model is told of all tools and may call these."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedFunction], Field(min_length=1)]


class ChosenTool(StrictBody):
    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    function: ChosenFunction | None = None
    allowed_tools: AllowedFunctions | None = None


def _typed(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


Choice = Annotated[
    ChosenTool, BeforeValidator(_typed, json_schema_input_type=Literal["none", "auto", "required"] | ChosenTool)
]


def neutral_messages(messages: Sequence[ChatMessage]) -> list[PromptMessage]:
    return [message.neutral(f"messages.{i}") for i, message in enumerate(messages)]


def neutral_tools(specs: Sequence[ToolSpec]) -> list[Tool]:
    functions = [spec.function for spec in specs]
    names = [function.name for function in functions]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"tools: two tools have the name {twice[0]}", param="tools")
    return [Tool(function.name, function.description, function.parameters) for function in functions]


def allowed_tools(choice: ChosenTool | None, tools: Sequence[Tool]) -> Sequence[Tool]:
    """Return the tools that a choice leaves to call. Raises UsageError for a name that no tool has."""
    if choice is None or choice.allowed_tools is None:
        return tools
    names = [tool.function.name for tool in choice.allowed_tools.tools]
    if unknown := set(names) - {tool.name for tool in tools}:
        raise UsageError(f"tool_choice: tools has no tool {min(unknown)}", param="tool_choice")
    return [tool for tool in tools if tool.name in names]


def neutral_choice(choice: ChosenTool | None, tools: Sequence[Tool]) -> ToolChoice:
    if choice is None:
        return "auto" if tools else "none"
    if (choice.type == "allowed_tools") != (choice.allowed_tools is not None):
        problem = "belongs to the type allowed_tools" if choice.allowed_tools else "is missing"
        raise UsageError(f"tool_choice.allowed_tools {problem}", param="tool_choice.allowed_tools")
    if choice.allowed_tools is not None:
        return choice.allowed_tools.mode
    if choice.type in ("none", "auto", "required"):
        if choice.type == "required" and not tools:
            raise UsageError("tool_choice required needs tools", param="tool_choice")
        return choice.type
    if choice.function is None:
        raise UsageError("tool_choice.function is missing", hint="name the function", param="tool_choice.function")
    if choice.function.name not in [tool.name for tool in tools]:
        raise UsageError(f"tool_choice: tools has no tool {choice.function.name}", param="tool_choice")
    return Named(choice.function.name)
