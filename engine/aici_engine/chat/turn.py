"""One answer of the assistant, possibly with a thought and tool calls. `turn_runner` generates it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from aici_base.errors import UsageError
from aici_engine.chat.thinking import Thinking
from aici_engine.chat.tool_syntax import GENERIC, ToolSyntax
from aici_engine.chat.tools import CallArguments, CallStart, Tool, calls_schema
from aici_engine.sampling_params import SamplingParams

C = TypeVar("C")
"""The constraint of a generation, in the words of the model that runs the turn."""


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

    `syntax`: how calls are written. `calls`: the constraint of `calls_constraint`, if a tool may be called. `document`:
    with tool_choice auto, the constraint that the answer is a JSON document or the mark of `syntax`; None if the
    answer's text is free. `keeps_stop`: the stop string that ends the text is part of the text. `arguments`: in place
    of `calls`, a constraint for each tool that may be called, if the syntax has headers or the input of a tool is a
    text under a grammar. `thinking`: the thought before the answer; every constraint begins after the thought.
    """

    prompt: list[int]
    sampling: SamplingParams
    controller: C | None = None
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "none"
    parallel: bool = True
    syntax: ToolSyntax = GENERIC
    calls: C | None = None
    document: C | None = None
    keeps_stop: bool = False
    arguments: Mapping[str, ArgumentsConstraint[C]] = field(default_factory=dict)
    thinking: Thinking | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """A delta: more text of the thought, and the token of that text. The line breaks at the ends are left out."""

    text: str
    token: Any = None


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
    """Tokens of a turn. `cached` of the prompt's tokens were not computed. `sampled` and `forced` count the output,
    `thought` of which belong to the thought. Of the `predicted` tokens that the client sent, the answer has
    `accepted`."""

    prompt: int
    sampled: int
    forced: int
    cached: int = 0
    thought: int = 0
    predicted: int = 0
    accepted: int = 0

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


Delta: TypeAlias = Thought | Text | Removed | Scores | CallStart | CallArguments | TurnEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEnd:
    """The end of one generation. `tail`: text that only the end released. `is_full`: no more tokens were allowed.

    `last_token`: the last token, also a special token that ended the generation.
    """

    text: str
    tail: str
    stop: str | None
    is_full: bool
    sampled: int
    forced: int
    cached: int
    last_token: int | None = None


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

    def special_token(self, name: str) -> int | None:
        """Return the special token with this name; None for a text that is written with ordinary tokens."""

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


async def calls_constraint(
    json_schema: Callable[[str], Awaitable[C]], tools: Sequence[Tool], syntax: ToolSyntax
) -> C | None:
    """Return the constraint of a call of any of the tools; None without tools, or if calls have headers.

    `json_schema` returns the constraint of JSON text under a schema, or raises UsageError if the schema is not
    supported. The error then names the tool.
    """
    if not tools or syntax.header is not None:
        return None
    try:
        return await json_schema(calls_schema(tools, syntax.key))
    except UsageError:
        await arguments_constraints(json_schema, tools)
        raise


async def arguments_constraints(
    json_schema: Callable[[str], Awaitable[C]], tools: Sequence[Tool]
) -> Mapping[str, ArgumentsConstraint[C]]:
    """Return the constraint of the arguments of each tool. Raises as `calls_constraint`."""
    found = {}
    for tool in tools:
        try:
            constraint = await json_schema(json.dumps({"type": "object", **tool.parameters}))
        except UsageError as error:
            raise error.with_message(f"the parameters of the tool {tool.name}: {error.message}") from error
        found[tool.name] = ArgumentsConstraint(constraint)
    return found
