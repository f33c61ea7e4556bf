"""The request of `/v1/chat/completions`, and the turns that the request needs."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from aici_base.errors import UsageError
from aici_engine.parameter import Api
from aici_engine.sampling_params import SamplingParams
from aici_engine.server.errors import about
from aici_engine.server.gateway.body_shape import MAX_MESSAGES
from aici_engine.server.protocols.chat.prompt import chat_format, chat_prompt
from aici_engine.server.protocols.chat.turn import TurnRequest, constraints_of_tools
from aici_engine.server.protocols.constraint_fields import WantedConstraint, answer_constraint
from aici_engine.server.protocols.openai.fields import SamplingFields
from aici_engine.server.protocols.openai.messages import (
    ChatMessage,
    Choice,
    Content,
    ToolSpec,
    allowed_tools,
    neutral_choice,
    neutral_tools,
)
from aici_engine.server.protocols.openai.prompt_fields import ConversationFields
from aici_engine.server.protocols.openai.response import variants
from aici_engine.server.protocols.reasoning_fields import ChatReasoningFields
from aici_engine.server.protocols.sampling_fields import with_sampling_fields
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Service


def _replaced(_: Any) -> None:
    raise ValueError("not supported: use tools and tool_choice")


_Replaced = Annotated[None, BeforeValidator(_replaced)]


_OF_TAGS: Final = ("format", "structures", "triggers")


class JsonSchema(StrictBody):
    """The answer is always valid against `schema`, `strict` or not. With `strict`, objects are closed, whatever
    `schema_options` says. `name` and `description` have no effect."""

    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]
    name: str = ""
    description: str = ""
    strict: bool = False


class Prediction(StrictBody):
    """The text that the answer probably has. The answer is the same without, and may come later."""

    type: Literal["content"]
    content: Content


class ResponseFormat(StrictBody):
    """`schema`: the place of the schema in llama.cpp's protocol, beside the type json_object or json_schema.

    A structural_tag has the members of XGrammar's document: `format`, or `structures` and `triggers`.
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None
    schema_: Annotated[dict[str, Any] | bool | None, Field(alias="schema")] = None
    format: Any = None
    structures: Any = None
    triggers: Any = None

    def structural_tag(self) -> dict[str, Any] | None:
        """Return the structural tag; None for another type."""
        tag = {name: value for name in _OF_TAGS if (value := getattr(self, name)) is not None}
        if self.type == "structural_tag":
            return {"type": self.type, **tag}
        if tag:
            param = f"response_format.{next(iter(tag))}"
            raise UsageError(f"{param} belongs to the type structural_tag", param=param)
        return None

    def schema_text(self) -> str | None:
        """Return the JSON Schema as JSON text; None for plain text."""
        if self.schema_ is not None:
            of_no_schema = self.type in ("text", "structural_tag")
            if of_no_schema or self.json_schema is not None:
                problem = "belongs to the type json_object" if of_no_schema else "and json_schema together"
                raise UsageError(f"response_format.schema {problem}", param="response_format.schema")
            return json.dumps(self.schema_)
        if (self.json_schema is not None) != (self.type == "json_schema"):
            problem = "belongs to the type json_schema" if self.json_schema else "is missing"
            raise UsageError(f"response_format.json_schema {problem}", param="response_format.json_schema")
        if self.json_schema is not None:
            return json.dumps(self.json_schema.schema_)
        return '{"type":"object"}' if self.type == "json_object" else None


@with_sampling_fields(Api.OPENAI_CHAT)
class ChatRequest(SamplingFields, ConversationFields, ChatReasoningFields):
    """The body of `/v1/chat/completions`.

    `modalities` accepts only the value without effect. `verbosity` is a hint and has no effect. `prediction` is the
    beginning of the drafts, if the engine drafts.
    The chat template gets `chat_template_kwargs`. `functions` and `function_call` are refused,
    with a hint to use tools.
    """

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    logprobs: bool = False
    response_format: ResponseFormat | None = None
    tools: list[ToolSpec] = Field(default_factory=list, max_length=128)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool = True
    modalities: list[Literal["text"]] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    prediction: Prediction | None = None
    functions: _Replaced = None
    function_call: _Replaced = None
    if TYPE_CHECKING:
        top_logprobs: int | None

    async def turns(self, service: Service, principal: Principal) -> list[TurnRequest]:
        """Return `n` turns. Raises AiciError for an invalid request; only a controller can find further errors."""
        tools = neutral_tools(self.tools)
        choice = neutral_choice(self.tool_choice, tools)
        callable_tools = allowed_tools(self.tool_choice, tools)
        for name in ("prompt_logprobs", "return_token_ids"):
            if choice != "none" and getattr(self, name) not in (None, False):
                raise UsageError(f"{name} and tools together", hint="leave one out", param=name)
        sampling = self.scored(self._with_logprobs(self.sampling(service, Api.OPENAI_CHAT)))
        with about("messages"):
            messages, answer, rendering = self.conversation(
                principal, self.messages, keep_last=self.keep_last(service), **self.thinking_options()
            )
            has_document = choice == "auto" and bool(self.asked())
            form = await chat_format(service, self.chat_template, owner=principal.name, has_document=has_document)
        constraint = await answer_constraint(service, principal, self, choice, form.syntax)
        with about("messages"):
            shown = tools if choice != "none" else ()
            budget = self.thinking_budget(service.chat_settings)
            prompt = await chat_prompt(
                service, form, messages, shown, answer=answer, rendering=rendering, budget=budget
            )
        prediction: list[int] = []
        if self.prediction is not None:
            with about("prediction"):
                text = service.vocabulary.plain(self.prediction.content)
                prediction = await service.tokenize(text, add_special_tokens=False)
        options = self.options(strict=self._has_strict_tool())
        constraints = await constraints_of_tools(
            service.constraints.of(principal), callable_tools, choice, options, form.syntax
        )
        turn = TurnRequest(
            prompt=prompt.tokens,
            thinking=prompt.thinking,
            sampling=sampling,
            controller=constraint.controller,
            document=constraint.document,
            tools=callable_tools,
            tool_choice=choice,
            parallel=self.parallel_tool_calls,
            priority=self.priority,
            cache_salt=self.cache_salt,
            is_whole=not self.stream,
            score_from=None if self.prompt_logprobs is None else 0,
            keeps_stop=self.include_stop_str_in_output,
            syntax=form.syntax,
            calls=constraints.calls,
            arguments=constraints.arguments,
            prediction=prediction,
        )
        return variants(turn, self.n)

    def _has_strict_tool(self) -> bool:
        """All tools are one schema: one strict tool closes the objects of all."""
        return any(tool.function.strict for tool in self.tools)

    def wanted(self) -> list[WantedConstraint]:
        found = super().wanted()
        form = self.response_format
        if form is not None and (schema := form.schema_text()) is not None:
            options = self.options(strict=bool(form.json_schema and form.json_schema.strict))
            found.append(WantedConstraint("response_format", "json_schema", schema, options=options))
        if form is not None and (tag := form.structural_tag()) is not None:
            found.append(WantedConstraint("response_format", "structural_tag", tag, options=self.options()))
        return found

    def _with_logprobs(self, sampling: SamplingParams) -> SamplingParams:
        """Return `sampling` with log-probabilities only if the field `logprobs` asks for them."""
        if not self.logprobs and sampling.logprobs is not None:
            raise UsageError("top_logprobs without logprobs", hint="set logprobs to true", param="top_logprobs")
        return replace(sampling, logprobs=sampling.logprobs or 0) if self.logprobs else sampling
