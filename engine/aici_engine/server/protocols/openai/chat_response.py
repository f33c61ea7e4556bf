"""Responses of `/v1/chat/completions`: one JSON object, or a stream of chunks."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from aici_engine.chat.tools import CallArguments, CallStart
from aici_engine.server.link.wire import TokenOut
from aici_engine.server.protocols.chat.collect import CollectedTurn, collect_turns, merge_turns
from aici_engine.server.protocols.chat.turn import Delta, Text, Thought, TurnEnd, TurnRequest, run_turn
from aici_engine.server.protocols.openai.chat_request import ChatRequest
from aici_engine.server.protocols.openai.logprobs import chat_logprobs
from aici_engine.server.protocols.openai.response import FINISH_REASONS, Head, StreamUsage, usage
from aici_engine.server.protocols.openai.token_fields import prompt_logprobs, token_ids
from aici_engine.server.protocols.warnings import warning_field
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Service


async def chat_completion(
    service: Service, principal: Principal, request: ChatRequest, turns: Sequence[TurnRequest]
) -> dict[str, Any]:
    """Run the turns, one per choice, and return the `chat.completion` object."""
    async with service.admit(principal, len(turns)):
        done = await collect_turns([run_turn(service, principal, turn) for turn in turns])
    head = Head(prefix="chatcmpl", kind="chat.completion", model=service.name)
    choices = [_choice(service, request, i, answer) for i, answer in enumerate(done)]
    used = usage([answer.ended for answer in done], len(turns))
    more: dict[str, Any] = {}
    if request.return_token_ids:
        more["prompt_token_ids"] = turns[0].prompt
    if request.prompt_logprobs is not None:
        more["prompt_logprobs"] = prompt_logprobs(service.vocabulary, done[0].scores, request.prompt_logprobs)
    return head.body(choices, usage=used, **more, **warning_field(turns[0].warnings))


def _choice(service: Service, request: ChatRequest, index: int, answer: CollectedTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.thought:
        message["reasoning_content"] = answer.thought
    if answer.calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    return {
        "index": index,
        "message": message,
        "logprobs": _logprobs(service, request, answer.tokens),
        "finish_reason": FINISH_REASONS[answer.ended.reason],
        **(token_ids(answer.tokens) if request.return_token_ids else {}),
    }


def _logprobs(service: Service, request: ChatRequest, tokens: Sequence[TokenOut]) -> dict[str, Any] | None:
    if not request.logprobs:
        return None
    # With `prompt_logprobs`, the engine may report more of the likeliest tokens than are wanted here.
    shown = [msgspec.structs.replace(token, top=token.top[: request.top_logprobs or 0]) for token in tokens]
    return chat_logprobs(service.vocabulary, shown)


async def chat_chunks(
    service: Service, principal: Principal, request: ChatRequest, turns: Sequence[TurnRequest]
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the turns and yield chunks in the order of arrival. A choice's first chunk has its role, and an empty content
    unless the answer begins with a tool call.

    With `stream_options.include_usage`, the last chunk has the usage and no choices. Warnings are in the last chunk.
    """
    head = Head(prefix="chatcmpl", kind="chat.completion.chunk", model=service.name)
    used = StreamUsage(turns, len(turns), request.stream_options)
    warnings = warning_field(turns[0].warnings)
    choices = [_ChatChoice(service, request, i) for i in range(len(turns))]
    prompt = {"prompt_token_ids": turns[0].prompt} if request.return_token_ids else {}
    async with (
        service.admit(principal, len(turns)),
        contextlib.aclosing(merge_turns([run_turn(service, principal, turn) for turn in turns])) as deltas,
    ):
        async for number, delta in deltas:
            used.add(number, delta)
            for choice in choices[number].of(delta):
                ends_choice = used.is_last and choice["finish_reason"] is not None
                yield head.body([choice], **prompt, **used.of_chunk(), **(warnings if ends_choice else {}))
                prompt = {}
    if (last := used.last()) is not None:
        yield head.body([], usage=last, **warnings)


class _ChatChoice:
    """Turns the deltas of one choice into chunks."""

    def __init__(self, service: Service, request: ChatRequest, index: int) -> None:
        self._service = service
        self._request = request
        self._index = index
        self._num_calls = 0
        self._begun = False

    def of(self, delta: Delta) -> list[dict[str, Any]]:
        begin = {"role": "assistant", "content": None if isinstance(delta, CallStart) else ""}
        choices = [] if self._begun else [self._choice(begin)]
        self._begun = True
        match delta:
            case Thought(text):
                if text:
                    choices.append(self._choice({"reasoning_content": text}))
            case Text(text, token):
                tokens = [] if token is None else [token]
                logprobs = _logprobs(self._service, self._request, tokens) if token is not None and token.data else None
                ids = token_ids(tokens) if self._request.return_token_ids else {}
                if text or logprobs or ids:
                    choices.append(self._choice({"content": text}, logprobs) | ids)
            case CallStart(call_id, name):
                self._num_calls += 1
                function = {"name": name, "arguments": ""}
                choices.append(self._call({"id": call_id, "type": "function", "function": function}))
            case CallArguments(text):
                choices.append(self._call({"function": {"arguments": text}}))
            case TurnEnd():
                choices.append(self._choice({}, finish_reason=FINISH_REASONS[delta.reason]))
        return choices

    def _call(self, gained: dict[str, Any]) -> dict[str, Any]:
        return self._choice({"tool_calls": [{"index": self._num_calls - 1, **gained}]})

    def _choice(
        self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
