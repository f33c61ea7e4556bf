"""Responses of `/v1/completions`: one JSON object, or a stream of chunks."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from aici_engine.server.protocols.chat.collect import CollectedTurn, collect_turns, merge_turns
from aici_engine.server.protocols.chat.turn import Delta, Scores, Text, TurnEnd, TurnRequest, run_turn
from aici_engine.server.protocols.openai.completion_request import CompletionRequest, Prompt
from aici_engine.server.protocols.openai.logprobs import CompletionLogprobs
from aici_engine.server.protocols.openai.response import FINISH_REASONS, Head, StreamUsage, usage
from aici_engine.server.protocols.openai.token_fields import prompt_logprobs, token_ids
from aici_engine.server.protocols.warnings import warning_field
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Service


async def completion(
    service: Service,
    principal: Principal,
    request: CompletionRequest,
    prompts: Sequence[Prompt],
    turns: Sequence[TurnRequest],
) -> dict[str, Any]:
    async with service.admit(principal, len(turns)):
        done = await collect_turns([run_turn(service, principal, turn) for turn in turns])
    head = Head(prefix="cmpl", kind="text_completion", model=service.name)
    choices = []
    for i, prompt in enumerate(prompts):
        made = done[i * request.num_made : (i + 1) * request.num_made]
        best = sorted(made, key=_logprob, reverse=True) if request.num_made > request.n else made
        choices += [
            _choice(service, request, prompt, i * request.n + j, answer) for j, answer in enumerate(best[: request.n])
        ]
    used = usage([answer.ended for answer in done], request.num_made)
    return head.body(choices, usage=used, **warning_field(turns[0].warnings))


def _logprob(answer: CollectedTurn) -> float:
    """Return the mean log-probability of a token; `best_of` ranks by it."""
    logprobs = [token.logprob or 0.0 for token in answer.tokens]
    return sum(logprobs) / len(logprobs) if logprobs else 0.0


def _choice(
    service: Service, request: CompletionRequest, prompt: Prompt, index: int, answer: CollectedTurn
) -> dict[str, Any]:
    stream = _CompletionChoice(service, request, prompt, index)
    text = prompt.text + answer.text if request.echo else answer.text
    logprobs = stream.logprobs_of(answer)
    choice = stream.choice(text, logprobs, FINISH_REASONS[answer.ended.reason])
    if request.return_token_ids:
        choice |= {"prompt_token_ids": prompt.tokens, **token_ids(answer.tokens)}
    if request.prompt_logprobs is not None:
        choice["prompt_logprobs"] = prompt_logprobs(service.vocabulary, answer.scores, request.prompt_logprobs)
    return choice


async def completion_chunks(
    service: Service,
    principal: Principal,
    request: CompletionRequest,
    prompts: Sequence[Prompt],
    turns: Sequence[TurnRequest],
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the turns and yield chunks in the order of arrival. With `echo`, a choice's first chunk is the prompt.

    With `stream_options.include_usage`, the last chunk has the usage and no choices. Warnings are in the last chunk.
    """
    head = Head(prefix="cmpl", kind="text_completion", model=service.name)
    used = StreamUsage(turns, request.num_made, request.stream_options)
    warnings = warning_field(turns[0].warnings)
    choices = [_CompletionChoice(service, request, prompts[i // request.n], i) for i in range(len(turns))]
    async with (
        service.admit(principal, len(turns)),
        contextlib.aclosing(merge_turns([run_turn(service, principal, turn) for turn in turns])) as deltas,
    ):
        async for number, delta in deltas:
            used.add(number, delta)
            for choice in choices[number].of(delta):
                ends_choice = used.is_last and choice["finish_reason"] is not None
                yield head.body([choice], **used.of_chunk(), **(warnings if ends_choice else {}))
    if (last := used.last()) is not None:
        yield head.body([], usage=last, **warnings)


class _CompletionChoice:
    """Turns the deltas of one choice into chunks."""

    def __init__(self, service: Service, request: CompletionRequest, prompt: Prompt, index: int) -> None:
        self._index = index
        self._prompt = prompt
        self._echo = request.echo
        self._wants_ids = request.return_token_ids
        self._prompt_ids = {"prompt_token_ids": prompt.tokens} if request.return_token_ids else {}
        self._logprobs: CompletionLogprobs | None = None
        if request.logprobs is not None:
            echoed = prompt.text if request.echo else ""
            self._logprobs = CompletionLogprobs(service.vocabulary, top=request.logprobs > 0, prompt=echoed)

    def of(self, delta: Delta) -> list[dict[str, Any]]:
        choices = []
        if self._echo:
            # With log-probabilities, the prompt's scores are the first delta.
            scored = self._logprobs.of(delta.scores) if self._logprobs and isinstance(delta, Scores) else None
            choices.append(self.choice(self._prompt.text, scored))
            self._echo = False
        match delta:
            case Text(text, token):
                logprobs = self._logprobs.of_output([token]) if self._logprobs and token else None
                ids = token_ids([] if token is None else [token]) if self._wants_ids else {}
                if text or logprobs or ids:
                    choices.append(self.choice(text, logprobs) | ids | self._prompt_ids)
                    self._prompt_ids = {}
            case TurnEnd():
                choices.append(self.choice("", finish_reason=FINISH_REASONS[delta.reason]))
        return choices

    def logprobs_of(self, answer: CollectedTurn) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        scores = answer.scores if self._echo else ()
        return self._logprobs.of([*scores, *((t.token, t.logprob, t.top) for t in answer.tokens)])

    def choice(
        self, text: str, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
