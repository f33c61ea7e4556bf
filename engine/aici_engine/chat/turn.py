"""One answer of the assistant, possibly with tool calls. Call arguments are always valid against the tool's schema.

One generation cannot switch between free and constrained text. A turn is therefore a chain of generations. Every
generation continues where the previous generation ended. The mark `<tool_call>`, which most templates teach, switches:

    text     free text, until the model writes <tool_call> or ends    (tool_choice auto)
    document  JSON under a schema, or nothing but <tool_call>         (tool_choice auto, with a `document`)
    call     JSON that the tools' schemas allow                       (required and named begin here)
    head     the beginning of a call, which names the tool            (with `arguments`, in place of call)
    input    the tool's arguments, under the tool's own constraint
    more     nothing, or another <tool_call>                          (if several calls are allowed)
"""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from aici_base.errors import UsageError
from aici_engine.chat.tools import (
    CLOSE,
    MARK,
    OPEN,
    CallArguments,
    CallReader,
    CallStart,
    Tool,
    call_head,
    calls_schema,
    new_call_id,
)
from aici_engine.sampling_params import SamplingParams

C = TypeVar("C")
"""What constrains a generation, in the words of the model that runs the turn."""
_MAX_CALLS = 16


@dataclass(frozen=True, slots=True)
class Named:
    """A tool choice: the model must call the tool `name`."""

    name: str


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | Named


@dataclass(frozen=True, slots=True)
class ArgumentsConstraint(Generic[C]):
    """The constraint of one tool's arguments. `is_text`: of the text `input` and the quote after it, not of JSON."""

    constraint: C
    is_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn(Generic[C]):
    """One turn to generate. `prompt`: all tokens before the answer. A turn has a `controller` or tools, not both.

    `calls`: the constraint of `calls_constraint`, if a tool may be called. `document`: with tool_choice auto, the
    constraint that the answer is a JSON document or the text `MARK`; None if the answer's text is free. `keeps_stop`:
    the stop string that ends the text is part of the text. `arguments`: in place of `calls`, a constraint for each tool
    that may be called, if the input of one is a text under a grammar.
    """

    prompt: list[int]
    sampling: SamplingParams
    controller: C | None = None
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "none"
    parallel: bool = True
    calls: C | None = None
    document: C | None = None
    keeps_stop: bool = False
    arguments: Mapping[str, ArgumentsConstraint[C]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """A delta: more text, and the token of that text, as the model reports tokens.

    `text` may be empty while text is held back.
    """

    text: str
    token: Any = None


@dataclass(frozen=True, slots=True)
class Removed:
    """A delta: the controller removed the last `num_tokens` tokens. The next text begins with the arrow `↩`."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class Scores:
    """A delta: the scores of the prompt's tokens."""

    scores: Sequence[Any]


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """Tokens of a turn. `cached` of the prompt's tokens were not computed. `sampled` and `forced` count the output."""

    prompt: int
    sampled: int
    forced: int
    cached: int = 0

    @property
    def output(self) -> int:
        return self.sampled + self.forced


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The last delta. `text`: the final text, without removed tokens. `stop`: the stop string that ended the text.

    `usage` counts every output token, including tokens of tool calls.
    """

    reason: Literal["end", "stop", "length", "tool_calls"]
    usage: TurnUsage
    text: str
    stop: str | None = None


Delta: TypeAlias = Text | Removed | Scores | CallStart | CallArguments | TurnEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEnd:
    """The end of one generation. `tail`: text that only the end released. `is_full`: no more tokens were allowed."""

    text: str
    tail: str
    stop: str | None
    is_full: bool
    sampled: int
    forced: int
    cached: int


class RunningGeneration(Protocol):
    """One generation of a turn, as its deltas come."""

    def __aiter__(self) -> AsyncIterator[Text | Removed | Scores]: ...

    def end(self) -> GenerationEnd:
        """Return the end, after the last delta. Raise the failure of a generation that failed."""


class ChatModel(Protocol[C]):
    """What runs the generations of a turn: a server's engine process, or an engine in this process."""

    @property
    def max_len(self) -> int:
        """Return the number of tokens that a sequence can have, prompt and output together."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text that continues another text."""

    async def regex(self, pattern: str) -> C: ...

    def generate(
        self, prompt: list[int], sampling: SamplingParams, controller: C | None
    ) -> AbstractAsyncContextManager[RunningGeneration]:
        """Return a generation that begins and ends with its context."""


def callable_tools(tools: Sequence[Tool], choice: ToolChoice) -> Sequence[Tool]:
    """Return the tools that a choice lets the model call."""
    if isinstance(choice, Named):
        return [tool for tool in tools if tool.name == choice.name]
    return () if choice == "none" else tools


async def calls_constraint(json_schema: Callable[[str], Awaitable[C]], tools: Sequence[Tool]) -> C | None:
    """Return the constraint of a call of any of the tools; None without tools.

    `json_schema` returns the constraint of JSON text under a schema, or raises UsageError if the schema is not
    supported. The error then names the tool.
    """
    if not tools:
        return None
    try:
        return await json_schema(calls_schema(tools))
    except UsageError:
        for tool in tools:
            try:
                await json_schema(json.dumps(tool.parameters))
            except UsageError as error:
                raise error.with_message(f"the parameters of the tool {tool.name}: {error.message}") from error
        raise


async def run_chat_turn(model: ChatModel[C], request: ChatTurn[C]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a turn, TurnEnd last. A failure is raised. Closing the generator ends the sequence."""
    async with contextlib.AsyncExitStack() as generations:
        async for delta in _Turn(model, request, generations).run():
            if isinstance(delta, TurnEnd) and delta.stop is not None and request.keeps_stop:
                yield Text(delta.stop)
                delta = replace(delta, text=delta.text + delta.stop)
            yield delta


class _Turn(Generic[C]):
    """The state of a turn. Its sequences end when `generations` is closed."""

    def __init__(self, model: ChatModel[C], request: ChatTurn[C], generations: contextlib.AsyncExitStack) -> None:
        self._model = model
        self._request = request
        self._generations = generations
        # Only the end of the JSON ends a call. The tokens of a call are not part of the text, so no log-probabilities.
        self._in_calls = replace(
            request.sampling,
            stop=(),
            logprobs=None,
            ignore_eos=False,
            min_tokens=0,
            stop_token_ids=(),
            bad_tokens=(),
        )
        self._prompt = request.prompt
        self._usage = TurnUsage(len(request.prompt), 0, 0)
        self._text = ""
        self._said = ""
        self._stop: str | None = None
        self._is_full = False
        self._wants_call = False
        self._call_text = ""
        self._has_call_begun = False

    async def run(self) -> AsyncGenerator[Delta, None]:
        sampling = self._request.sampling
        choice = self._request.tool_choice if self._request.tools else "none"
        if choice == "none":
            async for delta in self._generate(sampling, self._request.controller):
                yield delta
            self._text = self._said
            yield self._end()
            return
        if choice == "auto":
            async for delta in self._document() if self._request.document else self._free_text():
                yield delta
            if not self._wants_call:
                yield self._end()
                return
        self._go_on(self._text + OPEN)
        for num_calls in range(_MAX_CALLS):
            async for part in self._call_in_parts() if self._request.arguments else self._call():
                yield part
            if self._is_full:
                if self._has_call_begun or not num_calls:
                    yield self._end()
                    return
                break
            self._go_on(self._call_text + CLOSE)
            if not self._request.parallel or isinstance(choice, Named) or not await self._more():
                break
        yield TurnEnd("tool_calls", self._usage, self._text)

    async def _call(self) -> AsyncGenerator[CallStart | CallArguments, None]:
        """Generate a call under one schema of all tools."""
        assert self._request.calls is not None
        reader = CallReader(callable_tools(self._request.tools, self._request.tool_choice))
        async for text in self._generate(self._in_calls, self._request.calls):
            if isinstance(text, Text):
                for part in reader.read(text.text):
                    yield part
        self._call_text, self._has_call_begun = reader.text, reader.started

    async def _call_in_parts(self) -> AsyncGenerator[CallStart | CallArguments, None]:
        """Generate the beginning of a call, which names the tool, then the arguments under the tool's constraint."""
        before = self._prompt
        heads = {call_head(name): name for name in self._request.arguments}
        self._has_call_begun = False
        controller = await self._model.regex("|".join(head.replace("{", r"\{") for head in heads))
        async for _ in self._generate(self._in_calls, controller):
            pass
        if self._is_full:
            return
        head, self._has_call_begun = self._said, True
        self._go_on(head)
        yield CallStart(new_call_id(), heads[head])
        arguments = self._request.arguments[heads[head]]
        written = ""
        async for part in (
            self._text_input(arguments.constraint) if arguments.is_text else self._json(arguments.constraint)
        ):
            written += part.text
            yield part
        self._prompt, self._call_text = before, f"{head}{written}}}"

    async def _json(self, constraint: C) -> AsyncGenerator[CallArguments, None]:
        async for text in self._generate(self._in_calls, constraint):
            if isinstance(text, Text) and text.text:
                yield CallArguments(text.text)

    async def _text_input(self, constraint: C) -> AsyncGenerator[CallArguments, None]:
        """Yield the arguments `{"input": ...}` around a text, which the model ends with a quote."""
        begin = '{"input": "'
        self._go_on(begin)
        yield CallArguments(begin)
        held = ""
        async for text in self._generate(self._in_calls, constraint):
            if isinstance(text, Text):
                held += text.text
                ready, held = held[:-1], held[-1:]
                if ready:
                    yield CallArguments(json.dumps(ready, ensure_ascii=False)[1:-1])
        if not self._is_full:
            yield CallArguments('"}')

    async def _free_text(self) -> AsyncGenerator[Text | Removed | Scores, None]:
        sampling = self._request.sampling
        async for delta in self._generate(replace(sampling, stop=(*sampling.stop, MARK)), None):
            yield delta
        self._text = self._said
        self._wants_call = self._stop == MARK

    async def _document(self) -> AsyncGenerator[Text | Removed | Scores, None]:
        """Yield a JSON document, or nothing if the model wants a call. The first character tells which it is."""
        begun = ""
        async for delta in self._generate(self._request.sampling, self._request.document):
            if isinstance(delta, Text):
                begun = begun or delta.text[:1]
            if begun != MARK[0]:
                yield delta
        self._wants_call = self._said == MARK
        self._text = "" if begun == MARK[0] else self._said

    async def _more(self) -> bool:
        """Let the model choose to end or to begin another call; return True for another call."""
        controller = await self._model.regex(f"(\n{OPEN})?")
        texts = self._generate(self._in_calls, controller)
        said = "".join([text.text async for text in texts if isinstance(text, Text)])
        if not said.endswith(OPEN):
            return False
        self._go_on(said)
        return True

    async def _generate(
        self, sampling: SamplingParams, controller: C | None
    ) -> AsyncGenerator[Text | Removed | Scores, None]:
        """Run one generation of the chain. Yield nothing if earlier generations used up the tokens."""
        if self._usage.output:
            room = self._model.max_len - len(self._prompt)
            if sampling.max_tokens is not None:
                room = min(room, sampling.max_tokens - self._usage.output)
            if room <= 0:
                self._is_full = True
                return
            sampling = replace(sampling, max_tokens=room)
        generation = await self._generations.enter_async_context(
            self._model.generate(self._prompt, sampling, controller)
        )
        async for delta in generation:
            yield delta
        end = generation.end()
        if end.tail:
            yield Text(end.tail)
        used = self._usage
        cached = end.cached if self._prompt is self._request.prompt else used.cached
        self._usage = TurnUsage(used.prompt, used.sampled + end.sampled, used.forced + end.forced, cached)
        self._said, self._stop = end.text, end.stop
        self._is_full = end.is_full

    def _go_on(self, text: str) -> None:
        self._prompt = self._prompt + self._model.encode(text)

    def _end(self) -> TurnEnd:
        if self._is_full:
            return TurnEnd("length", self._usage, self._text)
        return TurnEnd("end" if self._stop is None else "stop", self._usage, self._text, self._stop)
