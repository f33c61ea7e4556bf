"""The body of `POST /v1/responses`, and the turn that it asks for."""

import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from aici_base.errors import NotFoundError, UsageError
from aici_engine.chat.tools import Tool
from aici_engine.config import MAX_PRIORITY
from aici_engine.parameter import Api
from aici_engine.sampling_params import SamplingParams, from_request
from aici_engine.server.errors import LongPromptError, about
from aici_engine.server.protocols.chat.prompt import (
    ChatFormat,
    ChatPrompt,
    PromptMessage,
    Rendering,
    chat_format,
    chat_prompt,
)
from aici_engine.server.protocols.chat.turn import ToolConstraints, TurnRequest, constraints_of_tools
from aici_engine.server.protocols.constraint_fields import ConstraintFields, WantedConstraint, answer_constraint
from aici_engine.server.protocols.reasoning_fields import ReasoningFields
from aici_engine.server.protocols.responses.conversation import messages_of
from aici_engine.server.protocols.responses.fields import Unsupported, only
from aici_engine.server.protocols.responses.items import Input, Item, ItemReference
from aici_engine.server.protocols.responses.tools import Choice, Tools, arguments_of, check_tools, chosen
from aici_engine.server.protocols.sampling_fields import with_sampling_fields
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.response_store import ResponseStore
from aici_engine.server.service.service import Service

_Render: TypeAlias = Callable[[Sequence[PromptMessage], Sequence[Tool]], Awaitable[ChatPrompt]]
Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
"""What a response can include. All but the last concern items that this server does not generate."""


class TextFormat(StrictBody):
    """The answer is always valid against `schema`, `strict` or not. With `strict`, objects are closed, whatever
    `schema_options` says. `name` and `description` have no effect."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    description: str | None = None
    strict: bool = False

    def schema_text(self) -> str | None:
        """Return the JSON Schema as JSON text; None for plain text."""
        if (self.schema_ is not None) != (self.type == "json_schema"):
            problem = "belongs to the type json_schema" if self.schema_ is not None else "is missing"
            raise UsageError(f"text.format.schema {problem}", param="text.format.schema")
        if self.schema_ is not None:
            return json.dumps(self.schema_)
        return '{"type":"object"}' if self.type == "json_object" else None


def _known_format(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "grammar":
        raise ValueError("the type grammar is not supported: use the field guided_grammar or guided_regex")
    return value


class TextConfig(StrictBody):
    """`verbosity` has no effect."""

    format: Annotated[TextFormat | None, BeforeValidator(_known_format)] = None
    verbosity: Literal["low", "medium", "high"] | None = None


class EventOptions(StrictBody):
    include_obfuscation: Literal[False] = False


class PromptFields(ReasoningFields):
    """The fields that make the prompt."""

    model: str | None = None
    input: Input = Field(default_factory=list)
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Tools = Field(default_factory=list)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool = True
    text: TextConfig | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    conversation: Unsupported = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """`earlier`: the items of the previous responses. `own`: the input items of this request."""

    earlier: list[Item]
    own: list[Item]


@with_sampling_fields(Api.OPENAI_RESPONSES)
class ResponseRequest(PromptFields, ConstraintFields):
    """The body of `POST /v1/responses`.

    `max_tool_calls`, `text.verbosity`, `service_tier`, `prompt_cache_key`, `prompt_cache_retention`,
    `prompt_cache_options`, `safety_identifier`, `user` and `metadata` have no effect on the answer.
    """

    stream: bool = False
    stream_options: EventOptions | None = None
    store: bool = True
    background: Annotated[Any, only(False)] = False
    include: list[Includable] = Field(default_factory=list)
    metadata: Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)] = Field(
        default_factory=dict
    )
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: str | None = None
    user: str | None = None

    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, lt=MAX_PRIORITY)] = 0

    prompt: Unsupported = None
    moderation: Unsupported = None
    context_management: Annotated[Any, only([])] = None
    background_options: Unsupported = None
    access_programs: Unsupported = None
    image: Unsupported = None
    if TYPE_CHECKING:
        temperature: float
        top_p: float
        max_output_tokens: int | None
        top_logprobs: int | None

    def text_config(self) -> dict[str, Any]:
        """Return the field `text` of the response."""
        given = self.text or TextConfig()
        form: dict[str, Any] = {"type": "text"}
        if given.format is not None:
            form = given.format.model_dump(by_alias=True, exclude_none=True)
            if form["type"] != "json_schema":
                form = {"type": form["type"]}
        return {"format": form, "verbosity": given.verbosity or "medium"}

    def choice_field(self) -> str | dict[str, Any]:
        """Return the field `tool_choice` of the response."""
        choice = self.tool_choice or "auto"
        return choice if isinstance(choice, str) else choice.model_dump()

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or "message.output_text.logprobs" in self.include

    @property
    def custom_tools(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools if tool.type == "custom")

    async def turn(self, service: Service, principal: Principal, conversation: Conversation) -> TurnRequest:
        """Return the turn. Raises AiciError for an invalid request; only a controller can find further errors."""
        check_tools(self.tools)
        choice, callable_tools = chosen(self.tool_choice, self.tools)
        tools = [tool.neutral() for tool in callable_tools]
        form = await chat_format(service, has_document=choice == "auto" and bool(self.asked()))
        constraint = await answer_constraint(service, principal, self, choice, form.syntax)
        is_strict = any(tool.type == "function" and tool.strict for tool in callable_tools)
        options = self.options(strict=is_strict)
        arguments = await arguments_of(service.constraints.of(principal), callable_tools, options)
        constraints = ToolConstraints(arguments=arguments)
        if not arguments:
            constraints = await constraints_of_tools(
                service.constraints.of(principal), tools, choice, options, form.syntax
            )
        prompt = await prompt_of(service, self, conversation, form)
        return TurnRequest(
            prompt=prompt.tokens,
            thinking=prompt.thinking,
            sampling=self._sampling(),
            controller=constraint.controller,
            document=constraint.document,
            tools=tools,
            tool_choice=choice,
            parallel=self.parallel_tool_calls,
            priority=self.priority,
            cache_salt=self.cache_salt,
            is_whole=not self.stream,
            syntax=form.syntax,
            calls=constraints.calls,
            arguments=constraints.arguments,
        )

    def _sampling(self) -> SamplingParams:
        if self.stream_options is not None and not self.stream:
            raise UsageError("stream_options without stream", hint="set stream to true", param="stream_options")
        return from_request(
            Api.OPENAI_RESPONSES, self, logprobs=(self.top_logprobs or 0) if self.wants_logprobs else None
        )

    def wanted(self) -> list[WantedConstraint]:
        found = super().wanted()
        form = self.text.format if self.text else None
        if form is not None and (schema := form.schema_text()) is not None:
            options = self.options(strict=form.strict)
            found.append(WantedConstraint("text.format", "json_schema", schema, options=options))
        return found


async def conversation_of(store: ResponseStore, principal: Principal, body: PromptFields) -> Conversation:
    """Return the items before the answer. Raises UsageError for a response or an item that is not kept."""
    earlier: list[Item] = []
    if (previous := body.previous_response_id) is not None:
        try:
            earlier = await store.conversation(principal.name, previous)
        except NotFoundError as error:
            raise UsageError(error.message, hint=error.hint, param="previous_response_id") from error
    own: list[Item] = []
    for number, item in enumerate(body.input):
        if isinstance(item, ItemReference):
            with about(f"input.{number}.id"):
                own.append(await store.item(principal.name, item.id))
        else:
            own.append(item.kept())
    if not (earlier or own):
        raise UsageError("the parameter input is missing", hint="give a text or a list of items", param="input")
    return Conversation(earlier, own)


async def prompt_of(service: Service, body: PromptFields, conversation: Conversation, form: ChatFormat) -> ChatPrompt:
    """Return the prompt. With `tool_choice` none, the prompt shows no tools."""
    render = functools.partial(
        chat_prompt,
        service,
        form,
        rendering=Rendering(options=body.thinking_options()),
        budget=body.thinking_budget(service.chat_settings),
    )
    tools = [] if body.tool_choice == "none" else [tool.neutral() for tool in body.tools]
    with about("input"):
        messages = messages_of(body.instructions, [*conversation.earlier, *conversation.own])
        try:
            return await render(messages, tools)
        except LongPromptError:
            if body.truncation != "auto":
                raise
        return await _truncated(render, messages, tools, service.info.max_len // 2)


async def _truncated(
    render: _Render, messages: Sequence[PromptMessage], tools: Sequence[Tool], most: int
) -> ChatPrompt:
    """Return the longest prompt that begins with a later message of the user and takes `most` tokens at most.

    The system message at the beginning stays. Raises LongPromptError if the last message of the user is too long.
    """
    head = messages[:1] if messages[0].role == "system" else ()
    cuts = [i for i, message in enumerate(messages) if i > len(head) and message.role == "user"]
    if not cuts:
        return await render(messages, tools)  # raises
    low, high = 0, len(cuts) - 1
    while low < high:
        middle = (low + high) // 2
        if await _fits(render, [*head, *messages[cuts[middle] :]], tools, most):
            high = middle
        else:
            low = middle + 1
    return await render([*head, *messages[cuts[low] :]], tools)


async def _fits(render: _Render, messages: Sequence[PromptMessage], tools: Sequence[Tool], most: int) -> bool:
    try:
        return len((await render(messages, tools)).tokens) <= most
    except LongPromptError:
        return False
