"""One answer of the assistant, which may call tools. Arguments of a call are always valid against its schema.

Free text and constrained text cannot be one generation: so a turn is a chain of them, each going on where the last one
ended, and the switch between them is `<tool_call>`, the mark that most templates teach:

    text     free, until the model says <tool_call> or ends       (tool_choice auto)
    call     JSON that the tools' schemas allow                   (required and named begin here)
    more     nothing, or another <tool_call>                      (if calls may be several)
"""

import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall
from aici_engine.server.service import Generation, Service
from aici_engine.server.wire import BacktrackOut, ControlOut, TokenOut, UsageOut
from aici_runtime.errors import AiciError

MARK = "<tool_call>"
_OPEN, _CLOSE = f"{MARK}\n", "\n</tool_call>"
_MAX_CALLS = 16


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters`: a JSON Schema of an object, itself an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Named:
    """This tool and no other must be called."""

    name: str


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | Named


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """`prompt`: tokens up to where the answer begins. `controller` constrains the text and excludes tools."""

    prompt: list[int]
    sampling: SamplingParams
    controller: ControllerCall | None = None
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "none"
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Text:
    """What the text gains, and the tokens that brought it; `text` may be empty while some of it is held back."""

    text: str
    token: TokenOut | None = None


@dataclass(frozen=True, slots=True)
class CallStart:
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """What the JSON text of the last call's arguments gains."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """`stop`: the stop string that ended it. Usage counts every output token, the marks of calls too."""

    reason: Literal["end", "stop", "length", "tool_calls"]
    usage: UsageOut
    stop: str | None = None


Delta: TypeAlias = Text | CallStart | CallArguments | TurnEnd


async def run_turn(service: Service, request: TurnRequest) -> AsyncGenerator[Delta, None]:
    """A TurnEnd comes last, and only then; a failure is raised. Closing the generator ends the sequence.

    The caller has been admitted for one sequence.
    """
    turn = _Turn(service, request)
    async with contextlib.aclosing(turn.run()) as deltas:
        async for delta in deltas:
            yield delta


class _Turn:
    def __init__(self, service: Service, request: TurnRequest) -> None:
        self._service = service
        self._request = request
        self._sampling = request.sampling
        self._prompt = list(request.prompt)
        self._sampled = self._forced = 0
        self._last: FinishReason | None = None
        self._stop: str | None = None

    async def run(self) -> AsyncGenerator[Delta, None]:
        choice = self._request.tool_choice
        if choice == "none" or not self._request.tools:
            async for text in self._text(self._sampling.stop):
                yield text
            yield self._end()
            return
        if choice == "auto":
            said = []
            async for text in self._text((*self._sampling.stop, MARK)):
                said.append(text.text)
                yield text
            if self._stop != MARK:
                yield self._end()
                return
            self._go_on("".join(said))
        self._go_on(_OPEN)
        for _ in range(_MAX_CALLS):
            async for delta in self._call():
                yield delta
            if self._last is FinishReason.LENGTH or not self._request.parallel or isinstance(choice, Named):
                break
            if not await self._more():
                break
        yield self._end(calls=True)

    async def _text(self, stop: tuple[str, ...]) -> AsyncGenerator[Text, None]:
        sampling = replace(self._sampling, stop=stop)
        async with contextlib.aclosing(self._generate(sampling, self._request.controller)) as texts:
            async for text in texts:
                yield text

    async def _call(self) -> AsyncGenerator[Delta, None]:
        controller = await self._service.constraints.json_schema(_calls_schema(self._tools()))
        reader = _CallReader(self._tools())
        sampling = replace(self._sampling, stop=(), logprobs=None)
        async with contextlib.aclosing(self._generate(sampling, controller)) as texts:
            async for text in texts:
                for delta in reader.read(text.text):
                    yield delta
        self._go_on(reader.text + _CLOSE)

    async def _more(self) -> bool:
        """Whether the model goes on to another call."""
        controller = await self._service.constraints.regex(f"(\n{_OPEN})?")
        sampling = replace(self._sampling, stop=(), logprobs=None)
        text = "".join([text.text async for text in self._generate(sampling, controller)])
        if not text.endswith(_OPEN):
            return False
        self._go_on(text)
        return True

    async def _generate(
        self, sampling: SamplingParams, controller: ControllerCall | None
    ) -> AsyncGenerator[Text, None]:
        if sampling.max_tokens is not None:
            sampling = replace(sampling, max_tokens=max(0, sampling.max_tokens - self._sampled - self._forced))
        generation = Generation(prompt=self._prompt, sampling=sampling, controller=controller)
        async with self._service.start(generation) as stream:
            async for event in stream:
                if isinstance(event, TokenOut):
                    yield Text(event.text, event)
                elif isinstance(event, BacktrackOut | ControlOut):
                    continue
            finish = stream.finish
        assert finish is not None
        self._sampled += finish.usage.sampled
        self._forced += finish.usage.forced
        self._last, self._stop = finish.reason, finish.stop
        if finish.failure is not None:
            raise finish.failure.error()
        if finish.reason in _FAILURES:
            raise AiciError(_FAILURES[finish.reason])
        if finish.tail:
            yield Text(finish.tail)

    def _go_on(self, text: str) -> None:
        self._prompt = self._prompt + self._service.vocabulary.encode(text, add_special_tokens=False)

    def _tools(self) -> Sequence[Tool]:
        choice = self._request.tool_choice
        if isinstance(choice, Named):
            return [tool for tool in self._request.tools if tool.name == choice.name]
        return self._request.tools

    def _end(self, *, calls: bool = False) -> TurnEnd:
        usage = UsageOut(len(self._request.prompt), self._sampled, self._forced)
        if self._last is FinishReason.LENGTH:
            return TurnEnd("length", usage)
        if calls:
            return TurnEnd("tool_calls", usage)
        return TurnEnd("stop", usage, self._stop) if self._stop is not None else TurnEnd("end", usage)


_FAILURES = {
    FinishReason.ABORT: "the request was ended by the server",
    FinishReason.DEADLOCK: "the controller waits, and nobody is left who could wake it",
    FinishReason.OUT_OF_FUEL: "the controller used up ten contexts' worth of tokens without an end",
}


class _CallReader:
    """Takes a call's JSON apart as it comes: compact, name first, as the schema says it."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._heads = {_head(tool.name): tool.name for tool in tools}
        self._started = False
        self._held = ""
        self.text = ""

    def read(self, text: str) -> list[Delta]:
        self.text += text
        self._held += text
        deltas: list[Delta] = []
        if not self._started:
            head = next((head for head in self._heads if self._held.startswith(head)), None)
            if head is None:
                return []
            self._started = True
            self._held = self._held[len(head) :]
            deltas.append(CallStart(f"call_{uuid.uuid4().hex[:24]}", self._heads[head]))
        # The last brace is the call's own: whatever may be it waits.
        self._held, ready = self._held[-1:], self._held[:-1]
        return [*deltas, CallArguments(ready)] if ready else deltas


def _head(name: str) -> str:
    return f'{{"name":{json.dumps(name, ensure_ascii=False)},"arguments":'


def _calls_schema(tools: Sequence[Tool]) -> str:
    """One call of one of the tools. Each tool's schema is a document of its own: `#` in it means itself."""

    def call(number: int, tool: Tool) -> dict[str, Any]:
        arguments = {"$id": f"tool:{number}", "type": "object", **tool.parameters}
        properties = {"name": {"const": tool.name}, "arguments": arguments}
        required = ["name", "arguments"]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    calls = [call(number, tool) for number, tool in enumerate(tools)]
    return json.dumps({"anyOf": calls} if len(calls) > 1 else calls[0])
