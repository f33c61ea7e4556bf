"""Programs as the property test of scripts generates them: what all three languages can say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CURRENT = object()
"""In an expression: the text of the step."""


@dataclass(frozen=True)
class Var:
    """Its value, empty while it is not set."""

    name: str


@dataclass(frozen=True)
class IfEq:
    a: "Expr"
    b: "Expr"
    eq: "Expr"
    neq: "Expr"


Expr = tuple["str | Var | IfEq | object", ...]
"""The texts of its parts, one after another."""


@dataclass(frozen=True)
class Set:
    name: str
    value: Expr
    append: bool = False


@dataclass(frozen=True)
class Words:
    """One of these texts. `options`: in the tokens that the tokenizer makes of it; else in any."""

    words: tuple[str, ...]
    written_as: Literal["regex", "choices", "options"]


@dataclass(frozen=True)
class Letters:
    """So many of these; `most` None: any number."""

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
    """One token that a text of this language begins with, chosen step by step."""

    language: Words | Letters


@dataclass(frozen=True)
class Fork:
    """Each branch, then what follows this step."""

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
    """How one fork ended: `path` holds its number at each fork, `log` the lines that a program or its steps wrote. The
    text is that of the whole sequence; it is empty where the fork failed."""

    path: tuple[int, ...]
    text: bytes
    log: str
    end: Literal["stop", "fail", "deadlock"]


@dataclass(frozen=True)
class Outcome:
    """`forks` by path. `variables` None: nobody was told, since the program failed before it had a sequence."""

    forks: list[Result]
    variables: dict[str, str] | None
