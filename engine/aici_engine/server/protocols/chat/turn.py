"""Turns of a chat on the server: `aici_engine.chat.turn` over the service."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aici_controllers.schema_check import SchemaOptions
from aici_engine.chat.tool_syntax import ToolSyntax
from aici_engine.chat.tools import Tool, warnings_about_tools
from aici_engine.chat.turn import (
    ArgumentsConstraint,
    ChatTurn,
    Delta,
    GenerationEnd,
    Named,
    Removed,
    Scores,
    Text,
    Thought,
    ToolChoice,
    TurnEnd,
    TurnUsage,
    arguments_constraints,
    callable_tools,
    calls_constraint,
)
from aici_engine.chat.turn_runner import run_chat_turn
from aici_engine.events import FinishReason
from aici_engine.sampling_params import SamplingParams
from aici_engine.server.link.stream import EngineStream
from aici_engine.server.link.wire import BacktrackOut, ScoreOut, TokenOut
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.constraints import CheckedCall, KeyConstraints
from aici_engine.server.service.service import Generation, Service
from aici_engine.speculation.prediction import num_accepted

__all__ = [
    "ArgumentsConstraint",
    "Delta",
    "Named",
    "Removed",
    "Scores",
    "Text",
    "Thought",
    "ToolChoice",
    "ToolConstraints",
    "TurnEnd",
    "TurnRequest",
    "TurnUsage",
    "constraints_of_tools",
    "run_turn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest(ChatTurn[CheckedCall]):
    """One turn to generate, as a ChatTurn.

    `score_from`, `priority`, `cache_salt`, `is_whole` and `prediction` mean the same as in a Generation. A turn with
    tools has no `score_from`.
    """

    score_from: int | None = None
    priority: int = 0
    cache_salt: str | None = None
    is_whole: bool = False
    prediction: list[int] = field(default_factory=list)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the client must know about the constraint or the tools: parts of schemas that are not enforced."""
        warnings = () if self.calls is None else self.calls.warnings
        about_tools = warnings_about_tools(callable_tools(self.tools, self.tool_choice), warnings)
        text = self.controller or self.document
        about_inputs = (
            f"tool {name}: {warning}" for name, each in self.arguments.items() for warning in each.constraint.warnings
        )
        return (*(() if text is None else text.warnings), *about_tools, *about_inputs)


class ToolConstraints(NamedTuple):
    """Two fields of a TurnRequest."""

    calls: CheckedCall | None = None
    arguments: Mapping[str, ArgumentsConstraint[CheckedCall]] = {}


async def constraints_of_tools(
    constraints: KeyConstraints, tools: Sequence[Tool], choice: ToolChoice, options: SchemaOptions, syntax: ToolSyntax
) -> ToolConstraints:
    """Return the constraints of tool calls in a syntax. Raises UsageError for a wrong schema."""

    async def json_schema(schema: str) -> CheckedCall:
        return await constraints.json_schema(schema, options)

    known = callable_tools(tools, choice)
    if syntax.header is not None:
        return ToolConstraints(arguments=await arguments_constraints(json_schema, known))
    return ToolConstraints(await calls_constraint(json_schema, known, syntax))


def run_turn(service: Service, principal: Principal, request: TurnRequest) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a turn, TurnEnd last. A failure is raised. Closing the generator ends the sequence.

    The caller must have been admitted for one sequence.
    """
    deltas = run_chat_turn(_ServedModel(service, principal, request), request)
    return _comparing(deltas, request.prediction) if request.prediction else deltas


async def _comparing(deltas: AsyncGenerator[Delta, None], prediction: Sequence[int]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas, and count in the usage how much of the prediction the answer has."""
    answer: list[int] = []
    async with contextlib.aclosing(deltas):
        async for delta in deltas:
            match delta:
                case Text(token=token) if token is not None:
                    answer.append(token.token)
                case Removed(num_tokens):
                    del answer[max(0, len(answer) - num_tokens) :]
                case TurnEnd(usage=usage):
                    accepted = num_accepted(prediction, answer)
                    delta = replace(delta, usage=replace(usage, predicted=len(prediction), accepted=accepted))
            yield delta


class _ServedModel:
    """Runs the generations of a turn on the engine process."""

    def __init__(self, service: Service, principal: Principal, request: TurnRequest) -> None:
        self._service = service
        self._principal = principal
        self._request = request

    @property
    def max_len(self) -> int:
        return self._service.info.max_len

    def encode(self, text: str) -> list[int]:
        return self._service.vocabulary.encode(text, add_special_tokens=False)

    def special_token(self, name: str) -> int | None:
        return self._service.vocabulary.special_token(name)

    async def regex(self, pattern: str) -> CheckedCall:
        return await self._service.constraints.of(self._principal).regex(pattern)

    @contextlib.asynccontextmanager
    async def generate(
        self, prompt: list[int], sampling: SamplingParams, controller: CheckedCall | None
    ) -> AsyncIterator["_StreamedGeneration"]:
        generation = Generation(
            prompt=prompt,
            sampling=sampling,
            controller=controller,
            # The prompts of later generations are the turn's own text.
            score_from=self._request.score_from if prompt is self._request.prompt else None,
            priority=self._request.priority,
            cache_salt=self._request.cache_salt,
            is_whole=self._request.is_whole,
            prediction=self._request.prediction,
        )
        async with self._service.start(self._principal, generation) as stream:
            yield _StreamedGeneration(stream)


class _StreamedGeneration:
    """The deltas of a stream of the engine process."""

    def __init__(self, stream: EngineStream) -> None:
        self._stream = stream
        self._last_token: int | None = None

    async def __aiter__(self) -> AsyncIterator[Text | Removed | Scores]:
        async for event in self._stream:
            match event:
                case TokenOut():
                    self._last_token = event.token
                    yield Text(event.text, event)
                case BacktrackOut():
                    yield Removed(event.num_tokens)
                case ScoreOut():
                    yield Scores(event.scores)

    def end(self) -> GenerationEnd:
        finish = self._stream.result()
        return GenerationEnd(
            text=finish.text,
            tail=finish.tail,
            stop=finish.stop,
            is_full=finish.reason is FinishReason.LENGTH,
            sampled=finish.usage.sampled,
            forced=finish.usage.forced,
            cached=finish.usage.cached,
            last_token=self._last_token,
        )
