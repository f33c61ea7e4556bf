"""One answer of the assistant, which may call tools. Arguments of a call are always valid against its schema.

Free text and constrained text cannot be one generation: so a turn is a chain of them, each going on where the last one
ended, and the switch between them is `<tool_call>`, the mark that most templates teach:

    text     free, until the model says <tool_call> or ends       (tool_choice auto)
    call     JSON that the tools' schemas allow                   (required and named begin here)
    more     nothing, or another <tool_call>                      (if calls may be several)
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
    """This tool and no other must be called."""

    name: str


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | Named


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """`prompt`: tokens up to where the answer begins. `controller` constrains the text and excludes tools.

    `score_from`, `priority`, `cache_salt`: as in a Generation; the first for text alone.
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
    """What the text gains, and the token that brought it; `text` may be empty while some of it is held back."""

    text: str
    token: TokenOut | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """The controller took back the last tokens. What the text gains next begins with the arrow."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Of the prompt's tokens."""

    scores: Sequence[Score]


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """`text`: the true one, without what a controller took back. `stop`: the stop string that ended it.

    Usage counts every output token, those of the calls too.
    """

    reason: Literal["end", "stop", "length", "tool_calls"]
    usage: UsageOut
    text: str
    stop: str | None = None


Delta: TypeAlias = Text | Removed | Scores | CallStart | CallArguments | TurnEnd


async def run_turn(service: Service, who: Principal, request: TurnRequest) -> AsyncGenerator[Delta, None]:
    """A TurnEnd comes last, and only then; a failure is raised. Closing the generator ends the sequence.

    `who` has been admitted for one sequence.
    """
    async with contextlib.AsyncExitStack() as streams:
        async for delta in _Turn(service, who, request, streams).run():
            yield delta


class _Turn:
    """Its sequences end with `streams`."""

    def __init__(
        self, service: Service, who: Principal, request: TurnRequest, streams: contextlib.AsyncExitStack
    ) -> None:
        self._service = service
        self._who = who
        self._request = request
        self._streams = streams
        # A call ends with its JSON: nothing else may end it, and its tokens are not the text's.
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
        """What constrains a call. Made before anything is said: UsageError for a schema that cannot be honoured."""
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
        """Whether the model goes on to another call."""
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
        """One part of the turn. Nothing comes if the parts before it left no room."""
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
