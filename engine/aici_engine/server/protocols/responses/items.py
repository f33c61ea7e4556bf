"""Input items. `kept()` is the form in which an item is kept and listed: the SDK's `ResponseItem`, as JSON."""

import uuid
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from aici_engine.server.gateway.body_shape import MAX_MESSAGES
from aici_engine.server.protocols.responses.fields import only
from aici_engine.server.protocols.strict_body import StrictBody

Item: TypeAlias = dict[str, Any]
"""A kept item."""

_Status = Literal["in_progress", "completed", "incomplete"]
_Id = Annotated[str, Field(min_length=1, max_length=512)]
_Caller = Annotated[Any, only({"type": "direct"})]


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


class InputText(StrictBody):
    """`prompt_cache_breakpoint` has no effect: the prefix cache finds common beginnings by itself."""

    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: Any = None


class OutputText(StrictBody):
    """`annotations` and `logprobs` of an echoed answer have no effect."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] = Field(default_factory=list)


class Refusal(StrictBody):
    type: Literal["refusal"]
    refusal: str


def _supported_parts(value: Any) -> Any:
    """A text is short for one part."""
    if isinstance(value, str):
        return [{"type": "input_text", "text": value}]
    return _supported(value, ("input_text", "output_text", "refusal"), "part", "this model reads text only")


def _input_parts(value: Any) -> Any:
    return _supported(value, ("input_text",), "part", "this model reads text only")


def _supported(value: Any, types: tuple[str, ...], what: str, why: str) -> Any:
    """Refuse by name a part or an item of an unsupported type."""
    for number, each in enumerate(value if isinstance(value, list) else []):
        kind = each.get("type") if isinstance(each, dict) else None
        if isinstance(kind, str) and kind not in types:
            raise ValueError(f"{what} {number} is of the type {kind[:80]}, which is not supported here: {why}")
    return value


_Part = Annotated[InputText | OutputText | Refusal, Field(discriminator="type")]
Content = Annotated[list[_Part], BeforeValidator(_supported_parts, json_schema_input_type=str | list[_Part])]
Output = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[InputText], BeforeValidator(_input_parts), Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
]
"""The result of a call, kept as sent: a text, or parts."""


class MessageItem(StrictBody):
    """A message. `phase` has no effect."""

    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: _Id | None = None
    status: _Status = "completed"
    phase: Literal["commentary", "final_answer"] | None = None

    @model_validator(mode="after")
    def _input_is_input(self) -> "MessageItem":
        if self.role != "assistant":
            for part in self.content:
                if part.type != "input_text":
                    raise ValueError(f"a {self.role} message cannot have a part of the type {part.type}")
        return self

    def kept(self) -> Item:
        item = {"id": self.id or new_id("msg"), "type": "message", "role": self.role, "status": self.status}
        return item | {"content": [self._part(part) for part in self.content]}

    def _part(self, part: InputText | OutputText | Refusal) -> Item:
        if isinstance(part, Refusal):
            return {"type": "refusal", "refusal": part.refusal}
        return self._text(part.text)

    def _text(self, text: str) -> Item:
        if self.role == "assistant":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "input_text", "text": text}


class FunctionCallItem(StrictBody):
    """A call of a function. `arguments`: JSON text."""

    type: Literal["function_call"]
    call_id: _Id
    name: str
    arguments: str
    id: _Id | None = None
    status: _Status = "completed"
    caller: _Caller = None

    def kept(self) -> Item:
        return {
            "id": self.id or new_id("fc"),
            "type": "function_call",
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.arguments,
        }


class CustomCallItem(StrictBody):
    """A call of a custom tool, with a text as its input."""

    type: Literal["custom_tool_call"]
    call_id: _Id
    name: str
    input: str
    id: _Id | None = None
    status: _Status = "completed"
    caller: _Caller = None

    def kept(self) -> Item:
        return {
            "id": self.id or new_id("ctc"),
            "type": "custom_tool_call",
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "input": self.input,
        }


class CallOutputItem(StrictBody):
    """The result of a call of either kind."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: _Id
    output: Output
    id: _Id | None = None
    status: _Status = "completed"
    name: str | None = None
    caller: _Caller = None

    def kept(self) -> Item:
        output = self.output
        return {
            "id": self.id or new_id("fco" if self.type == "function_call_output" else "ctco"),
            "type": self.type,
            "status": self.status,
            "call_id": self.call_id,
            "output": output if isinstance(output, str) else [{"type": "input_text", "text": p.text} for p in output],
        }


class _SummaryText(StrictBody):
    type: Literal["summary_text"]
    text: str


class _ReasoningText(StrictBody):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(StrictBody):
    """A reasoning item echoed by a client: kept and listed, and no part of a prompt."""

    type: Literal["reasoning"]
    id: _Id | None = None
    summary: list[_SummaryText] = Field(default_factory=list)
    content: list[_ReasoningText] = Field(default_factory=list)
    encrypted_content: str | None = None
    status: _Status | None = None

    def kept(self) -> Item:
        item = {"id": self.id or new_id("rs"), **self.model_dump(exclude={"id"}, exclude_none=True)}
        return item if self.content else {name: value for name, value in item.items() if name != "content"}


class ItemReference(StrictBody):
    """Stands for an item of a kept response."""

    type: Literal["item_reference"]
    id: _Id


_TYPES = (
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "item_reference",
)


def _typed(value: Any) -> Any:
    """Add the types that clients may leave out: of messages, which have a role, and of references. A text is short for
    one message."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        return value
    typed = [_with_type(item) if isinstance(item, dict) and item.get("type") is None else item for item in value]
    return _supported(typed, _TYPES, "item", f"use {', '.join(_TYPES)}")


def _with_type(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "type": "message" if "role" in item else "item_reference"}


_InputItem = Annotated[
    MessageItem | FunctionCallItem | CustomCallItem | CallOutputItem | ReasoningItem | ItemReference,
    Field(discriminator="type"),
]
Input = Annotated[
    list[_InputItem],
    Field(max_length=MAX_MESSAGES),
    BeforeValidator(_typed, json_schema_input_type=str | list[_InputItem]),
]
"""The field `input` of a request."""
