"""One answer of the assistant, possibly with tool calls. Call arguments are always valid against the tool's schema.

One generation cannot switch between free and constrained text. A turn is therefore a chain of generations. Every
generation continues where the previous generation ended. The mark `<tool_call>`, which most templates teach, switches:

    text     free text, until the model writes <tool_call> or ends    (tool_choice auto)
    call     JSON that the tools' schemas allow                       (required and named begin here)
    more     nothing, or another <tool_call>                          (if several calls are allowed)
"""

import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from aici_base.errors import UsageError
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall
from aici_engine.server.link.wire import BacktrackOut, Score, ScoreOut, TokenOut, UsageOut
from aici_engine.server.protocols.chat.tools import (
    CLOSE,
    MARK,
    OPEN,
    CallArguments,
    CallReader,
    CallStart,
    Tool,
    calls_schema,
)
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation, Service

_MAX_CALLS = 16


@dataclass(frozen=True, slots=True)
class Named:
    """A tool choice: the model must call the tool `name`."""

    name: str


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | Named


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One turn to generate. `prompt`: all tokens before the answer. A turn has a `controller` or tools, not both.

    `score_from`, `priority` and `cache_salt` mean the same as in a Generation. A turn with tools has no `score_from`.
    """

    prompt: list[int]
    sampling: SamplingParams
    controller: ControllerCall | None = None
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "none"
    parallel: bool = True
    score_from: int | None = None
    priority: int = 0
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A delta: more text, and the token of that text. `text` may be empty while text is held back."""

    text: str
    token: TokenOut | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """A delta: the controller removed the last `num_tokens` tokens. The next text begins with the arrow `↩`."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class Scores:
    """A delta: the scores of the prompt's tokens."""

    scores: Sequence[Score]


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The last delta. `text`: the final text, without removed tokens. `stop`: the stop string that ended the text.

    `usage` counts every output token, including tokens of tool calls.
    """

    reason: Literal["end", "stop", "length", "tool_calls"]
    usage: UsageOut
    text: str
    stop: str | None = None


Delta: TypeAlias = Text | Removed | Scores | CallStart | CallArguments | TurnEnd


async def run_turn(service: Service, who: Principal, request: TurnRequest) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a turn, TurnEnd last. A failure is raised. Closing the generator ends the sequence.

    The caller must have been admitted for one sequence.
    """
    async with contextlib.AsyncExitStack() as streams:
        async for delta in _Turn(service, who, request, streams).run():
            yield delta


class _Turn:
    """The state of a turn. Its sequences end when `streams` is closed."""

    def __init__(
        self, service: Service, who: Principal, request: TurnRequest, streams: contextlib.AsyncExitStack
    ) -> None:
        self._service = service
        self._who = who
        self._request = request
        self._streams = streams
        # Only the end of the JSON ends a call. The tokens of a call are not part of the text, so no log-probabilities.
        self._in_calls = replace(request.sampling, stop=(), logprobs=None, ignore_eos=False)
        self._prompt = request.prompt
        self._usage = UsageOut(len(request.prompt), 0, 0)
        self._text = ""
        self._said = ""
        self._stop: str | None = None
        self._is_full = False

    async def run(self) -> AsyncGenerator[Delta, None]:
        sampling = self._request.sampling
        choice = self._request.tool_choice if self._request.tools else "none"
        if choice == "none":
            async for delta in self._generate(sampling, self._request.controller):
                yield delta
            self._text = self._said
            yield self._end()
            return
        calls = await self._calls()
        if choice == "auto":
            async for delta in self._generate(replace(sampling, stop=(*sampling.stop, MARK)), None):
                yield delta
            self._text = self._said
            if self._stop != MARK:
                yield self._end()
                return
        self._go_on(self._text + OPEN)
        for num_calls in range(_MAX_CALLS):
            reader = CallReader(self._tools())
            async for text in self._generate(self._in_calls, calls):
                if isinstance(text, Text):
                    for part in reader.read(text.text):
                        yield part
            if self._is_full:
                if reader.started or not num_calls:
                    yield self._end()
                    return
                break
            self._go_on(reader.text + CLOSE)
            if not self._request.parallel or isinstance(choice, Named) or not await self._more():
                break
        yield TurnEnd("tool_calls", self._usage, self._text)

    async def _calls(self) -> ControllerCall:
        """Return the constraint of a call. Raises UsageError, before any text, if a tool's schema is not supported."""
        constraints = self._service.constraints
        try:
            return await constraints.json_schema(calls_schema(self._tools()))
        except UsageError:
            for tool in self._tools():
                try:
                    await constraints.json_schema(json.dumps(tool.parameters))
                except UsageError as error:
                    raise UsageError(f"the parameters of the tool {tool.name}: {error.message}") from error
            raise

    async def _more(self) -> bool:
        """Let the model choose to end or to begin another call; return True for another call."""
        controller = await self._service.constraints.regex(f"(\n{OPEN})?")
        texts = self._generate(self._in_calls, controller)
        said = "".join([text.text async for text in texts if isinstance(text, Text)])
        if not said.endswith(OPEN):
            return False
        self._go_on(said)
        return True

    async def _generate(
        self, sampling: SamplingParams, controller: ControllerCall | None
    ) -> AsyncGenerator[Text | Removed | Scores, None]:
        """Run one generation of the chain. Yield nothing if earlier generations used up the tokens."""
        if self._usage.output:
            room = self._service.info.max_len - len(self._prompt)
            if sampling.max_tokens is not None:
                room = min(room, sampling.max_tokens - self._usage.output)
            if room <= 0:
                self._is_full = True
                return
            sampling = replace(sampling, max_tokens=room)
        generation = Generation(
            prompt=self._prompt,
            sampling=sampling,
            controller=controller,
            score_from=self._request.score_from,
            priority=self._request.priority,
            cache_salt=self._request.cache_salt,
        )
        stream = await self._streams.enter_async_context(self._service.start(self._who, generation))
        async for event in stream:
            match event:
                case TokenOut():
                    yield Text(event.text, event)
                case BacktrackOut():
                    yield Removed(event.num_tokens)
                case ScoreOut():
                    yield Scores(event.scores)
        finish = stream.result()
        if finish.tail:
            yield Text(finish.tail)
        used, gained = self._usage, finish.usage
        cached = gained.cached if self._prompt is self._request.prompt else used.cached
        self._usage = UsageOut(used.prompt, used.sampled + gained.sampled, used.forced + gained.forced, cached)
        self._said, self._stop = finish.text, finish.stop
        self._is_full = finish.reason is FinishReason.LENGTH

    def _go_on(self, text: str) -> None:
        self._prompt = self._prompt + self._service.vocabulary.encode(text, add_special_tokens=False)

    def _tools(self) -> Sequence[Tool]:
        choice = self._request.tool_choice
        if isinstance(choice, Named):
            return [tool for tool in self._request.tools if tool.name == choice.name]
        return self._request.tools

    def _end(self) -> TurnEnd:
        if self._is_full:
            return TurnEnd("length", self._usage, self._text)
        return TurnEnd("end" if self._stop is None else "stop", self._usage, self._text, self._stop)
