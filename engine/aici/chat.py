"""An answer of the assistant, with calls of tools."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from aici.backend import Backend, Cancel, ChatCall, ChatOutcome
from aici.constraints import UNCONSTRAINED, Constraint, Messages
from aici.errors import UnfinishedError, UsageError
from aici.sampling import sampling_params
from aici.tools import FunctionTool, ToolCall, ToolLike, tools_of
from aici_controllers.schema_check import SchemaKeywords
from aici_engine.sampling_params import SamplingOptions, SamplingParams

T_co = TypeVar("T_co", covariant=True)
ChatFinish: TypeAlias = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResult(Generic[T_co]):
    """The assistant's answer.

    `text` comes before the calls, and may be empty. `finish_reason` is `tool_calls` if the model called tools, `length`
    if the answer was cut off, else `stop`. `prompt_tokens` and `output_tokens` are counts. `warnings` say which parts
    of the constraint, or of the tools' schemas, are not enforced. `reasoning`: what a model with think tags thought
    before its answer.

    >>> answer = llm.chat([{"role": "user", "content": "Say hello."}], max_tokens=5)
    >>> answer.message["role"], answer.tool_calls
    ('assistant', ())
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: ChatFinish
    prompt_tokens: int
    output_tokens: int
    constraint: Constraint[T_co] = field(repr=False)
    warnings: tuple[str, ...] = ()
    reasoning: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """Return the answer as a message, for the next round of the conversation.

        >>> llm.chat([{"role": "user", "content": "Say hello."}], max_tokens=5).message["role"]
        'assistant'
        """
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for call in self.tool_calls
            ]
        return message

    @property
    def value(self) -> T_co:
        """Return the text as a value of the constraint, as `Result.value` does.

        >>> sizes = aici.choice("big", "small")
        >>> llm.chat([{"role": "user", "content": "How big is a mouse?"}], sizes).value in ("big", "small")
        True
        """
        if self.constraint.complete == "stopped" and self.finish_reason == "length":
            raise UnfinishedError("the answer was cut off before it was complete", hint="give more max_tokens")
        try:
            return self.constraint.parse(self.text)
        except ValueError as error:
            raise UnfinishedError(
                "the answer is not what the constraint asks for", hint="give more max_tokens"
            ) from error


def chat(
    backend: Backend,
    messages: Messages,
    constraint: Constraint[Any] | None,
    *,
    tools: Sequence[ToolLike],
    tool_choice: str,
    parallel: bool,
    schema_options: SchemaKeywords | None,
    sampling: SamplingParams | None,
    options: SamplingOptions,
    cancel: Cancel | None = None,
) -> ChatResult[Any]:
    """Return the assistant's answer. Blocks. The arguments are those of `LLM.chat`."""
    known = tools_of(tools)
    params = sampling_params(sampling, options, constraint)
    if params.logprobs is not None:
        raise UsageError("a chat reports no log-probabilities", hint="use generate, or chat_stream", param="logprobs")
    if params.explain is not None:
        raise UsageError("a chat reports no explanations", hint="use generate, or chat_stream", param="explain")
    if constraint is not None and known:
        raise UsageError("a constraint and tools do not go together", hint="leave one of them out")
    if tool_choice not in ("auto", "none", "required") and tool_choice not in known:
        raise UsageError(
            f"no tool is called {tool_choice}", hint=f"tool_choice is auto, none, required, or one of {sorted(known)}"
        )
    call = ChatCall(
        messages=messages,
        sampling=params,
        constraint=constraint,
        tools=tuple(known.values()),
        tool_choice=tool_choice,
        parallel=parallel,
        schema_options=schema_options or SchemaKeywords(),
    )
    return _result(backend.chat(call, cancel or Cancel()), known, constraint or UNCONSTRAINED)


def _result(outcome: ChatOutcome, tools: Mapping[str, FunctionTool], constraint: Constraint[Any]) -> ChatResult[Any]:
    calls = []
    for call_id, name, arguments in outcome.calls:
        try:
            calls.append(ToolCall(call_id, name, json.loads(arguments), tools[name]))
        except ValueError:
            if outcome.finish_reason != "length":  # the last call may be cut off
                raise
    return ChatResult(
        text=outcome.text,
        tool_calls=tuple(calls),
        finish_reason=outcome.finish_reason,
        prompt_tokens=outcome.prompt_tokens,
        output_tokens=outcome.output_tokens,
        constraint=constraint,
        warnings=constraint.warnings or outcome.warnings,
        reasoning=outcome.reasoning,
    )
