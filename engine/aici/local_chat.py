"""Turns of a chat on a local engine: `aici_engine.chat.turn` over a backend, in the calling thread."""

import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from aici import constraints
from aici.backend import Backend, Call, Cancel, ChatCall, ChatOutcome
from aici.constraints import UNCONSTRAINED, Constraint, Messages
from aici.errors import AiciError, UsageError
from aici.stream import Stream
from aici.tools import FunctionTool
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.past_arguments import read_arguments
from aici_engine.chat.settings import ChatSettings
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.thinking import thinking_of_prompt
from aici_engine.chat.tools import CallArguments, CallStart, PastCall, Tool, warnings_about_tools
from aici_engine.chat.turn import (
    ChatTurn,
    GenerationEnd,
    Named,
    Removed,
    Scores,
    Text,
    Thought,
    ToolChoice,
    TurnEnd,
    arguments_constraints,
    callable_tools,
    calls_constraint,
)
from aici_engine.chat.turn_runner import run_chat_turn
from aici_engine.events import BacktrackEvent, FinishEvent, FinishReason, TokenEvent
from aici_engine.sampling_params import SamplingParams

T = TypeVar("T")
_CHOICES: Mapping[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required"}


class Tokenizing(Protocol):
    """The part of a vocabulary for chats."""

    def plain(self, text: str) -> str: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def special_token(self, name: str) -> int | None: ...


def run_chat(
    backend: Backend, vocabulary: Tokenizing, template: ChatTemplate, max_len: int, call: ChatCall, cancel: Cancel
) -> ChatOutcome:
    """Run a turn to the end. Blocks; another thread may end the turn by `cancel`."""
    model = _LocalModel(backend, vocabulary, max_len, cancel)
    choice = _CHOICES.get(call.tool_choice, Named(call.tool_choice)) if call.tools else "none"
    tools = [_tool(tool) for tool in call.tools]
    callable_ones = callable_tools(tools, choice)

    async def json_schema(schema: str) -> Constraint[Any]:
        return constraints.json_schema(schema, **call.schema_options)

    settings = ChatSettings()
    syntax, tags = settings.syntax_of(template), settings.tags_of(template)
    calls = _finish_now(calls_constraint(json_schema, callable_ones, syntax))
    arguments = _finish_now(arguments_constraints(json_schema, callable_ones)) if syntax.header else {}
    shown = tools if choice != "none" else []
    text = conversation_text(template, vocabulary.plain, prompt_messages(call.messages), shown, syntax=syntax)
    request = ChatTurn(
        prompt=vocabulary.encode(text, add_special_tokens=False),
        sampling=call.sampling,
        controller=call.constraint,
        tools=tools,
        tool_choice=choice,
        parallel=call.parallel,
        syntax=syntax,
        calls=calls,
        arguments=arguments,
        thinking=None if tags is None else thinking_of_prompt(tags, text, None),
    )
    outcome = _finish_now(_collect(model, request))
    return replace(outcome, warnings=warnings_about_tools(callable_ones, calls.warnings if calls else ()))


async def _collect(model: "_LocalModel", request: ChatTurn[Constraint[Any]]) -> ChatOutcome:
    calls: list[tuple[str, str, str]] = []
    reasoning = ""
    async with contextlib.aclosing(run_chat_turn(model, request)) as deltas:
        async for delta in deltas:
            match delta:
                case Thought(text):
                    reasoning += text
                case CallStart(call_id, name):
                    calls.append((call_id, name, ""))
                case CallArguments(text):
                    call_id, name, arguments = calls[-1]
                    calls[-1] = (call_id, name, arguments + text)
                case TurnEnd(reason, usage, text):
                    return ChatOutcome(
                        text=text,
                        calls=tuple(calls),
                        finish_reason="stop" if reason == "end" else reason,
                        prompt_tokens=usage.prompt,
                        output_tokens=usage.output,
                        reasoning=reasoning,
                    )
    raise AssertionError("a turn ended without its last delta")


class _LocalModel:
    """Runs the generations of a turn. Nothing in here waits for an event loop: `await` never suspends."""

    def __init__(self, backend: Backend, vocabulary: Tokenizing, max_len: int, cancel: Cancel) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._cancel = cancel
        self.max_len = max_len

    def encode(self, text: str) -> list[int]:
        return self._vocabulary.encode(text, add_special_tokens=False)

    def special_token(self, name: str) -> int | None:
        return self._vocabulary.special_token(name)

    async def regex(self, pattern: str) -> Constraint[Any]:
        return constraints.regex(pattern)

    @contextlib.asynccontextmanager
    async def generate(
        self, prompt: list[int], sampling: SamplingParams, controller: Constraint[Any] | None
    ) -> AsyncIterator["_LocalGeneration"]:
        call = Call(prompt=tuple(prompt), sampling=sampling, constraint=controller)
        with Stream(self._backend, call, "", UNCONSTRAINED) as stream, self._cancel.covering(stream.close):
            yield _LocalGeneration(stream)


class _LocalGeneration:
    """The deltas of a stream."""

    def __init__(self, stream: Stream[str]) -> None:
        self._stream = stream
        self._tail = ""
        self._last_token: int | None = None

    async def __aiter__(self) -> AsyncIterator[Text | Removed | Scores]:
        for event in self._stream:
            if isinstance(event, TokenEvent):
                self._last_token = event.token.token_id
                yield Text(event.text, event.token)
            elif isinstance(event, BacktrackEvent):
                yield Removed(event.num_tokens)
            elif isinstance(event, FinishEvent):
                self._tail = event.tail

    def end(self) -> GenerationEnd:
        result = self._stream.result()
        if result.finish_reason is FinishReason.ABORT:
            raise AiciError("the chat was ended before its answer was complete")
        return GenerationEnd(
            text=result.text,
            tail=self._tail,
            stop=result.stop,
            is_full=result.finish_reason is FinishReason.LENGTH,
            sampled=result.usage.sampled_tokens,
            forced=result.usage.ff_tokens,
            cached=result.usage.cached_tokens,
            last_token=self._last_token,
        )


def _finish_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a turn waited for an event loop")


def prompt_messages(messages: Messages) -> list[PromptMessage]:
    """Return messages in the form of OpenAI's API as messages of a prompt. Raise UsageError for wrong messages."""
    try:
        return [_message(message) for message in messages]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"a message is not as a chat needs it: {error!r}", hint="a message has a role and a content, a text"
        ) from error


def _message(message: Mapping[str, Any]) -> PromptMessage:
    role, content = message["role"], message.get("content") or ""
    if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
        raise ValueError(f"role {role!r} with a content of type {type(content).__name__}")
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    return PromptMessage(role=role, content=content, calls=calls, call_id=message.get("tool_call_id") or "")


def _call(call: Mapping[str, Any]) -> PastCall:
    function = call["function"]
    arguments = read_arguments(function["arguments"])
    if arguments is None:
        raise ValueError(f"the arguments of the call {call['id']} are not a JSON object")
    return PastCall(call["id"], function["name"], arguments)


def _tool(tool: FunctionTool) -> Tool:
    return Tool(tool.name, tool.description, tool.parameters)
