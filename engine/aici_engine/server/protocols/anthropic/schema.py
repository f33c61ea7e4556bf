"""The bodies of requests. An unsupported field is declared only if the protocol has a value for it without effect."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from aici_engine.parameter import Api
from aici_engine.server.gateway.body_shape import MAX_MESSAGES, checked_keys
from aici_engine.server.protocols.constraint_fields import ConstraintFields, WantedConstraint
from aici_engine.server.protocols.sampling_fields import with_sampling_fields


class _Body(BaseModel):
    """Strict: "5" is not a number. Unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _with_few_keys(cls, value: Any) -> Any:
        return checked_keys(value)


def _absent(value: object, info: ValidationInfo) -> None:
    if value is not None:
        raise ValueError(f"{info.field_name} is not supported: leave it out")


def _only(*harmless: object) -> BeforeValidator:
    """Return a validator that accepts only the values without effect, `harmless`, and null."""

    def check(value: object, info: ValidationInfo) -> object:
        if value is not None and value not in harmless:
            texts = " or ".join(map(repr, harmless))
            raise ValueError(f"{info.field_name} must be {texts}: leave it out")
        return value

    return BeforeValidator(check)


Absent: TypeAlias = Annotated[None, BeforeValidator(_absent)]


class CacheControl(_Body):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class TextBlock(_Body):
    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: Absent = None


class ThinkingBlock(_Body):
    """What the assistant thought, which a client sends back. `signature` has no effect: nothing here signs thoughts."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(_Body):
    """A thought that only its author can read. The block has no effect."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(_Body):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: Annotated[Any, _only({"type": "direct"})] = None
    toolset_name: Absent = None


def _texts(value: object) -> object:
    return _blocks_of(value, {"text"})


def _blocks(value: object) -> object:
    return _blocks_of(value, {"text", "thinking", "redacted_thinking", "tool_use", "tool_result"})


def _blocks_of(value: object, kinds: set[str]) -> object:
    """Return a list of blocks. A string becomes one text block."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    for number, block in enumerate(value if isinstance(value, list) else []):
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind not in kinds:
            known = ", ".join(sorted(kinds))
            raise ValueError(f"block {number} is of type {kind}, which is not supported here: use {known}")
    return value


Texts: TypeAlias = Annotated[list[TextBlock], BeforeValidator(_texts)]


class ToolResultBlock(_Body):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Texts = []
    is_error: bool = False
    cache_control: CacheControl | None = None
    toolset_name: Absent = None


Block: TypeAlias = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]


class MessageParam(_Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], BeforeValidator(_blocks)]


def _object_schema(value: object) -> object:
    if isinstance(value, dict) and value.get("type", "object") != "object":
        raise ValueError('the schema of a tool\'s input must have the type "object"')
    return value


def _custom(value: object) -> object:
    if value is not None and value != "custom":
        raise ValueError(f"tools of type {value} are not supported: give custom tools, with an input_schema")
    return value


class ToolParam(_Body):
    """A custom tool. Inputs are always valid against `input_schema`, with or without `strict`. With `strict`, objects
    are closed, whatever `schema_options` says.

    `type` is the first field, so that a server tool is refused because of its type and not of a missing schema.
    """

    type: Annotated[str | None, BeforeValidator(_custom)] = None
    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,128}$")
    description: str = ""
    input_schema: Annotated[dict[str, Any], BeforeValidator(_object_schema)]
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: CacheControl | None = None
    allowed_callers: Annotated[Any, _only(["direct"])] = None
    defer_loading: Annotated[Any, _only(False)] = None
    input_examples: Absent = None


class Choice(_Body):
    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool = False


class NamedChoice(_Body):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class JsonFormat(_Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(_Body):
    """`effort` has no effect: the served model knows no such setting."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class ThinkingParam(_Body):
    """Switches thinking on or off in chat templates that have a switch. A model without thoughts never thinks.

    `disabled` forbids thoughts. `budget_tokens`: the most tokens of a thought, after which its end is forced.
    `display`: with `omitted`, thinking blocks have no text; thoughts are never summarized.
    """

    type: Literal["disabled", "enabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    display: Literal["summarized", "omitted"] | None = None

    @property
    def is_wanted(self) -> bool:
        return self.type != "disabled"

    @property
    def budget(self) -> int | None:
        return self.budget_tokens if self.is_wanted else 0


class ContextManagement(_Body):
    """Without effect: the response says that no edit was applied."""

    edits: list[dict[str, Any]] = []


class Metadata(_Body):
    user_id: str | None = None


class CountRequest(_Body):
    """The body of `/v1/messages/count_tokens`: the fields that make the prompt, and fields without effect."""

    model: str
    messages: list[MessageParam] = Field(min_length=1, max_length=MAX_MESSAGES)
    system: Texts = []
    tools: list[ToolParam] = []
    tool_choice: Annotated[Choice | NamedChoice, Field(discriminator="type")] | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    speed: Literal["standard", "fast"] | None = None
    thinking: ThinkingParam | None = None
    context_management: ContextManagement | None = None


@with_sampling_fields(Api.ANTHROPIC)
class MessagesRequest(CountRequest, ConstraintFields):
    """The body of `/v1/messages`. With `max_tokens` 0 nothing is generated."""

    stream: bool = False
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: Absent = None
    diagnostics: Absent = None
    inference_geo: Absent = None
    if TYPE_CHECKING:
        max_tokens: int

    def wanted(self) -> list[WantedConstraint]:
        found = super().wanted()
        if form := self.output_config and self.output_config.format:
            found.append(WantedConstraint("output_config.format", "json_schema", form.schema_, options=self.options()))
        return found
