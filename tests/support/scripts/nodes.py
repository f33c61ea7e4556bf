"""Programs of the property test of scripts, restricted to the features of all three languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CURRENT = object()
"""In an expression: the text of the step."""


@dataclass(frozen=True)
class Var:
    """The value of a variable, empty if the variable is not set."""

    name: str


@dataclass(frozen=True)
class IfEq:
    a: "Expr"
    b: "Expr"
    eq: "Expr"
    neq: "Expr"


Expr = tuple["str | Var | IfEq | object", ...]
"""The concatenated texts of the parts."""


@dataclass(frozen=True)
class Set:
    name: str
    value: Expr
    append: bool = False


@dataclass(frozen=True)
class Words:
    """One of `words`. Written as `options`, a word comes in the tokenizer's tokens; else any tokens may spell the
    word."""

    words: tuple[str, ...]
    written_as: Literal["regex", "choices", "options"]


@dataclass(frozen=True)
class Letters:
    """From `least` to `most` of `letters`; `most` None: any number."""

    letters: str
    least: int
    most: int | None


@dataclass(frozen=True, kw_only=True)
class Fixed:
    text: Expr
    following: str | None = None
    label: str | None = None
    stmts: Sequence[Set] = ()


@dataclass(frozen=True, kw_only=True)
class Gen:
    language: Words | Letters
    max_tokens: int | None = None
    stop_at: str | None = None
    max_bytes: int | None = None
    max_words: int | None = None
    label: str | None = None
    stmts: Sequence[Set] = ()


@dataclass(frozen=True)
class Token:
    """One token with which a text of the language begins, chosen in a step of the program."""

    language: Words | Letters


@dataclass(frozen=True)
class Fork:
    """In every branch: the steps of the branch, then the steps after the fork."""

    branches: Sequence[Sequence["Step"]]


@dataclass(frozen=True)
class Wait:
    names: Sequence[str]


@dataclass(frozen=True)
class Log:
    text: Expr


@dataclass(frozen=True)
class Pause:
    pass


@dataclass(frozen=True)
class Stop:
    pass


@dataclass(frozen=True)
class Fail:
    pass


Step = Fixed | Gen | Token | Fork | Wait | Log | Pause | Stop | Fail
Steps = Sequence[Step]


@dataclass(frozen=True)
class Result:
    """How a fork ended. `path`: the fork's number at every fork step. `log`: the lines that the program or its steps
    wrote. `text`: the text of the whole sequence; empty if the fork failed."""

    path: tuple[int, ...]
    text: bytes
    log: str
    end: Literal["stop", "fail", "deadlock"]


@dataclass(frozen=True)
class Outcome:
    """`forks` in the order of `path`. `variables` None: the program failed before the first sequence, and nothing
    was reported."""

    forks: list[Result]
    variables: dict[str, str] | None
