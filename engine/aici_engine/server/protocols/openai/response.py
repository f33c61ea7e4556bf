"""Common parts of chat and completion responses, streamed or not."""

import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aici_base.errors import AiciError
from aici_engine.server.gateway import sse
from aici_engine.server.gateway.error_responses import openai_body
from aici_engine.server.protocols.chat.turn import Delta, Removed, Text, Thought, TurnEnd, TurnRequest
from aici_engine.server.protocols.openai.fields import StreamOptions

FINISH_REASONS: Mapping[Literal["end", "stop", "length", "tool_calls"], str] = {
    "end": "stop",
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The fields at the top of a response and of its chunks. `kind`: the field `object`."""

    prefix: str
    kind: str
    model: str
    answer_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self, choices: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        top = {"id": f"{self.prefix}-{self.answer_id}", "object": self.kind, "created": self.created}
        return {**top, "model": self.model, "choices": choices, **more}


def variants(request: TurnRequest, num: int) -> list[TurnRequest]:
    """Return `num` copies of a request. With a seed, copy number i gets seed + i: different and repeatable answers."""
    seed = request.sampling.seed
    if seed is None:
        return [request] * num
    return [replace(request, sampling=replace(request.sampling, seed=seed + i)) for i in range(num)]


def usage(ends: Sequence[TurnEnd], num_made: int) -> dict[str, Any]:
    """Return the usage of a response. `ends`: `num_made` answers to the first prompt, then to the second, and so on.

    Each prompt counts once. Its `cached_tokens` is the smallest count among its answers: the answer that ran first
    filled the cache for the rest. `reasoning_tokens` are counted only if the model thought, and tokens of the
    prediction only if the request has a prediction. Rejected tokens are no part of `completion_tokens`.
    """
    prompt_tokens = sum(end.usage.prompt for end in ends[::num_made])
    completion_tokens = sum(end.usage.output for end in ends)
    starts = range(0, len(ends), num_made)
    cached_tokens = sum(min(end.usage.cached for end in ends[start : start + num_made]) for start in starts)
    details: dict[str, Any] = {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
    of_output: dict[str, int] = {}
    if thought_tokens := sum(end.usage.thought for end in ends):
        of_output["reasoning_tokens"] = thought_tokens
    if predicted := sum(end.usage.predicted for end in ends):
        accepted = sum(end.usage.accepted for end in ends)
        of_output |= {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": predicted - accepted}
    if of_output:
        details["completion_tokens_details"] = of_output
    return _sums(prompt_tokens, completion_tokens) | details


def _sums(prompt: int, output: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


class StreamUsage:
    """The field `usage` of a stream's chunks, as `stream_options` ask for it.

    Pass each delta to `add`. `of_chunk` returns the field of a chunk; `last` the usage of the last chunk, or None if no
    chunk without choices is wanted.
    """

    def __init__(self, turns: Sequence[TurnRequest], num_made: int, options: StreamOptions | None) -> None:
        options = options or StreamOptions()
        self._turns = turns
        self._num_made = num_made
        self._is_wanted, self._is_continuous = options.include_usage, options.continuous_usage_stats
        self._num_tokens = [0] * len(turns)
        self._ends: dict[int, TurnEnd] = {}

    def add(self, number: int, delta: Delta) -> None:
        match delta:
            case Text(token=token) | Thought(token=token) if token is not None:
                self._num_tokens[number] += 1
            case Removed(num_tokens):
                self._num_tokens[number] -= num_tokens
            case TurnEnd():
                self._ends[number] = delta

    @property
    def is_last(self) -> bool:
        """All turns have ended, and no chunk with the usage follows."""
        return len(self._ends) == len(self._turns) and not self._is_wanted

    def of_chunk(self) -> dict[str, Any]:
        if self._is_continuous:
            prompt = sum(len(turn.prompt) for turn in self._turns[:: self._num_made])
            output = sum(
                self._ends[number].usage.output if number in self._ends else self._num_tokens[number]
                for number in range(len(self._turns))
            )
            return {"usage": _sums(prompt, output)}
        return {"usage": None} if self._is_wanted else {}

    def last(self) -> dict[str, Any] | None:
        return usage([self._ends[each] for each in sorted(self._ends)], self._num_made) if self._is_wanted else None


async def events(chunks: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    """Yield chunks as server-sent events, then `[DONE]`.

    A failure before the first chunk is raised. A later failure is the last event, without `[DONE]`.
    """
    begun = False
    try:
        async for chunk in chunks:
            begun = True
            yield sse.event(chunk)
    except AiciError as error:
        if not begun:
            raise
        yield sse.event(openai_body(error))
    else:
        yield sse.DONE
    finally:
        await chunks.aclose()
