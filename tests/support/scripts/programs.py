"""Random programs whose outcome does not depend on time.

A variable is of either kind: set once, by one fork, and read by other forks after a wait; or used by a single
branch. Several forks run the steps after a fork step, so such steps set no variable.
"""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.support.scripts.model import WORDS
from tests.support.scripts.nodes import (
    CURRENT,
    Expr,
    Fail,
    Fixed,
    Fork,
    Gen,
    IfEq,
    Letters,
    Log,
    Pause,
    Set,
    Step,
    Stop,
    Token,
    Var,
    Wait,
    Words,
)

_MAX_FORKS = 7
_TEXTS = st.one_of(st.sampled_from(["", "x", 'a"\n', *WORDS]), st.text("ab é", max_size=4))
_WORDS = st.lists(st.text("ab c", max_size=4), min_size=1, max_size=4, unique=True).map(tuple)


@dataclass
class _Budget:
    num_variables: int = 0
    num_forks: int = 1
    num_labels: int = 0


@dataclass
class _Scope:
    """The names and numbers that a step may use. `num_here`: how many forks run the step."""

    budget: _Budget
    labels: list[str]
    readable: list[str]
    own: str | None
    num_here: int = 1
    depth: int = 0
    is_script: bool = False


@st.composite
def programs(draw: st.DrawFn, *, is_script: bool) -> list[Step]:
    """`is_script`: use the features of JavaScript and Python only; else the features of declarative steps only."""
    labels = [] if is_script else ["prompt"]
    return _steps(draw, _Scope(_Budget(), labels, [], "own", is_script=is_script), least=0)


def _steps(draw: st.DrawFn, scope: _Scope, *, least: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(draw(st.integers(least, 4))):
        step = _step(draw, scope)
        steps.append(step)
        if isinstance(step, Stop | Fail):
            break
    return steps


def _step(draw: st.DrawFn, scope: _Scope) -> Step:
    kinds = ["fixed", "gen", "gen", "fixed", "fork", "wait"]
    kinds += ["log", "pause", "token"] if scope.is_script else []
    kinds += ["end"] if scope.depth > 0 else []
    kind = draw(st.sampled_from(kinds))
    if kind == "fork" and scope.depth < 3:
        num = draw(st.integers(2, 3))
        if scope.budget.num_forks + scope.num_here * (num - 1) <= _MAX_FORKS:
            return _fork(draw, scope, num)
    if kind == "wait":
        return _wait(draw, scope)
    if kind == "log":
        return Log(_expr(draw, scope))
    if kind == "pause":
        return Pause()
    if kind == "token":
        return Token(_words(draw, scope) if draw(st.booleans()) else _letters(draw))
    if kind == "end":
        return draw(st.sampled_from([Stop(), Stop(), Fail()]))
    return _gen(draw, scope) if kind == "gen" else _fixed(draw, scope)


def _fork(draw: st.DrawFn, scope: _Scope, num: int) -> Fork:
    scope.budget.num_forks += scope.num_here * (num - 1)
    branches, kept = [], list(scope.labels)
    for _ in range(num):
        own = None
        if scope.own is not None:
            own = f"own{scope.budget.num_variables}"
            scope.budget.num_variables += 1
        inner = replace(scope, labels=list(scope.labels), readable=list(scope.readable), own=own, depth=scope.depth + 1)
        branch = _steps(draw, inner, least=1)
        if not any(not isinstance(step, Log | Pause) for step in branch):
            branch.append(Fixed(text=("x",)))
        branches.append(branch)
        while kept != inner.labels[: len(kept)]:
            kept.pop()
    scope.labels[:] = kept
    scope.own = None
    scope.num_here *= num  # at most
    return Fork(branches)


def _wait(draw: st.DrawFn, scope: _Scope) -> Wait:
    names = draw(st.lists(st.integers(0, scope.budget.num_variables + 1), min_size=1, max_size=2, unique=True))
    waited = [f"v{number}" for number in names]
    scope.readable += waited
    return Wait(waited)


def _label(draw: st.DrawFn, scope: _Scope) -> str | None:
    if not draw(st.booleans()):
        return None
    scope.budget.num_labels += 1
    return f"label{scope.budget.num_labels}"


def _fixed(draw: st.DrawFn, scope: _Scope) -> Fixed:
    following = None
    if scope.labels and draw(st.integers(0, 2)) == 0:
        following = draw(st.sampled_from(scope.labels))
        del scope.labels[scope.labels.index(following) + (following == "prompt") :]
    text = _expr(draw, scope)
    label = _label(draw, scope)
    if label is not None:
        scope.labels.append(label)
    return Fixed(text=text, following=following, label=label, stmts=_stmts(draw, scope))


def _gen(draw: st.DrawFn, scope: _Scope) -> Gen:
    label = _label(draw, scope)
    if label is not None:
        scope.labels.append(label)
    language: Words | Letters
    limits: dict[str, Any] = {}
    if draw(st.booleans()):
        language = _words(draw, scope)
        if draw(st.booleans()):
            limits["max_tokens"] = draw(st.integers(1, 4))
    else:
        language = _letters(draw)
        limits["max_tokens"] = draw(st.integers(1, 6))
    if draw(st.integers(0, 2)) == 0:
        limits["stop_at"] = draw(st.sampled_from(["a", "b", " ", "ab", "c"]))
    if draw(st.integers(0, 2)) == 0:
        limits |= draw(st.sampled_from([{"max_bytes": 1}, {"max_bytes": 3}, {"max_words": 1}, {"max_words": 2}]))
    return Gen(language=language, label=label, stmts=_stmts(draw, scope), **limits)


def _words(draw: st.DrawFn, scope: _Scope) -> Words:
    return Words(draw(_WORDS), draw(st.sampled_from(["regex", "choices", *(["options"] if scope.is_script else [])])))


def _letters(draw: st.DrawFn) -> Letters:
    least = draw(st.integers(0, 3))
    most = draw(st.sampled_from([None, least + 1, least + 4]))
    return Letters(draw(st.sampled_from(["a", "ab", "ab c", "b c"])), least, most)


def _stmts(draw: st.DrawFn, scope: _Scope) -> list[Set]:
    if scope.own is None or not draw(st.booleans()):
        return []
    append = draw(st.booleans())
    if append or draw(st.booleans()):
        name = scope.own
    else:
        name = f"v{scope.budget.num_variables}"
        scope.budget.num_variables += 1
    value = draw(st.one_of(st.just((CURRENT,)), st.builds(lambda: _expr(draw, scope, CURRENT))))
    if name not in scope.readable:
        scope.readable.append(name)
    return [Set(name, value, append)]


def _expr(draw: st.DrawFn, scope: _Scope, *more: object) -> Expr:
    texts = st.one_of(_TEXTS, st.sampled_from([*map(Var, ["none", *scope.readable]), *more]))
    parts = tuple(draw(st.lists(texts, min_size=1, max_size=2)))
    if draw(st.integers(0, 4)) == 0:
        some = [(draw(texts),) for _ in range(3)]
        parts += (IfEq((draw(texts),), *some),)
    return parts
