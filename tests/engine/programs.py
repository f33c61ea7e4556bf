"""A guest that runs a small program, forks included, and the expected result of a program.

A program is a list of steps:
    ("say", text)       allow one byte after the other       ("force", text)      from `pre`; text: str or bytes
    ("any", n)          n free tokens, printable             ("back", n, text)    take n tokens back, then force
    ("idle", n)         n steps without a change             ("fork", programs)   one fork a program, then the rest
    ("set", name, v)    ("append", name, v)                  ("wait", name)       until the variable is set
    ("log", text)       ("fail", text)                    ("crash", text) fails in `mid`
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aici_base.ids import TokenId
from aici_engine.events import Event, FinishEvent, ForkedEvent, ForkEvent, TokenEvent
from aici_runtime.wire import Pre, Splice
from tests.engine.support import Guest, encode

Step = tuple[Any, ...]
PRINTABLE = range(32, 127)


@dataclass
class Program(Guest):
    steps: list[Step] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)

    def init_prompt(self, prompt: list[TokenId]) -> None:
        self.steps = list(self.argument)
        self.tokens = prompt

    def pre(self) -> Pre | str:
        forced: list[TokenId] = []
        while self.steps:
            step = self.steps[0]
            if step[0] == "fail":
                return str(step[1])
            if step[0] == "force":
                forced += encode(step[1])
            elif step[0] == "log":
                self.says += step[1]
            elif step[0] == "set":
                self.variables[step[1]] = step[2]
            elif step[0] == "append":
                self.variables[step[1]] = self.variables.get(step[1], "") + step[2]
            elif step[0] != "wait" or step[1] not in self.variables:
                break
            self.steps.pop(0)
        self.tokens += forced
        kind = self.steps[0][0] if self.steps else "stop"
        num_forks = {"stop": 0, "fork": len(self.steps[0][1]) if kind == "fork" else 0}.get(kind, 1)
        return Pre(suspend=kind == "wait", num_forks=num_forks, ff_tokens=tuple(forced))

    def mid(self) -> Any:
        if self.steps and self.steps[0][0] == "fork":
            self.steps[:1] = self.steps[0][1][self.branch]
        kind, *rest = self.steps[0] if self.steps else ("stop",)
        if kind == "say":
            return _data(rest[0])[:1]
        if kind == "any":
            return PRINTABLE
        if kind == "crash":
            return str(rest[0])
        if kind == "back":
            return Splice(rest[0] + 1, tuple(encode(rest[1])))
        # Change nothing in this step: remove the last token and force the same token.
        return Splice(2, (self.tokens[-1],))

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        super().post(tokens, backtrack)
        del self.tokens[len(self.tokens) - max(0, backtrack - 1) :]
        self.tokens += tokens
        kind, *rest = self.steps[0] if self.steps else ("stop",)
        if kind == "say":
            self._go_on(("say", _data(rest[0])[1:]) if _data(rest[0])[1:] else None)
        elif kind in ("any", "idle"):
            self._go_on((kind, rest[0] - 1) if rest[0] > 1 else None)
        elif kind == "back":
            self._go_on(None)
        return False

    def _go_on(self, left: Step | None) -> None:
        self.steps[:1] = [] if left is None else [left]


def _data(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def expected(program: Sequence[Step], text: str = "") -> list[str]:
    """Return the texts of all forks, in no particular order.

    Not for programs with free tokens, or with more tokens taken back than said.
    """
    for at, step in enumerate(program):
        if step[0] in ("say", "force"):
            text += step[1]
        elif step[0] == "back":
            text = text[: len(text) - step[1]] + step[2]
        elif step[0] == "fork":
            return [each for branch in step[1] for each in expected([*branch, *program[at + 1 :]], text)]
    return [text]


@dataclass
class Told:
    """The events of one fork. `stream`: the pieces of text, joined. `lineage`: as in `Sequence`."""

    parent: int | None = None
    lineage: tuple[int, ...] = ()
    num_children: int = 0
    stream: str = ""
    events: list[Event] = field(default_factory=list)
    end: FinishEvent | None = None


def by_fork(events: Sequence[Event]) -> dict[int, Told]:
    """Return the events by fork, and check the beginning and the end of every fork."""
    forks = {0: Told()}
    for event in events[:-1]:
        assert not isinstance(event, FinishEvent)
        number, inner = (event.fork, event.event) if isinstance(event, ForkEvent) else (0, event)
        if isinstance(inner, ForkedEvent):
            assert number == len(forks)
            parent = forks[inner.parent]
            parent.num_children += 1
            lineage = (*parent.lineage, parent.num_children)
            forks[number] = Told(inner.parent, lineage, stream=inner.text)
        told = forks[number]
        assert told.end is None
        told.events.append(inner)
        if isinstance(inner, TokenEvent):
            told.stream += inner.text
        if isinstance(inner, FinishEvent):
            told.end, told.stream = inner, told.stream + inner.tail
    last = events[-1]
    assert isinstance(last, FinishEvent)
    if forks[0].end is None:
        forks[0].end, forks[0].stream = last, forks[0].stream + last.tail
    ends = [told.end for told in forks.values()]
    assert all(end is not None for end in ends)
    assert forks[0].end.text == last.text
    own = [end.usage for end in ends[1:] if end is not None]
    assert all(usage.prompt_tokens == 0 for usage in own)
    assert last.usage.sampled_tokens >= sum(usage.sampled_tokens for usage in own)
    return forks
