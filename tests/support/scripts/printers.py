"""Print programs in the three languages of the scripted guests."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    Steps,
    Stop,
    Token,
    Var,
    Wait,
    Words,
)


def _quoted(text: str) -> str:
    """A string literal of JavaScript and of Python."""
    return json.dumps(text, ensure_ascii=False)


def _regex(language: Words | Letters) -> str:
    if isinstance(language, Letters):
        return f"[{language.letters}]{{{language.least},{'' if language.most is None else language.most}}}"
    return "|".join(map(re.escape, language.words))


# --- Declarative steps


def declarative(program: Steps) -> str:
    return json.dumps({"steps": _decl_steps(program)}, ensure_ascii=False)


def _decl_steps(steps: Steps) -> list[Any]:
    return [_decl_step(step) for step in steps if not isinstance(step, Log | Pause)]


def _decl_step(step: Step) -> Any:
    match step:
        case Fixed():
            return {"Fixed": {"text": _decl_expr(step.text), "following": step.following} | _decl_attributes(step)}
        case Gen():
            language = step.language
            is_choices = isinstance(language, Words) and language.written_as == "choices"
            body = {"choices": list(language.words)} if is_choices else {"rx": _regex(language)}
            limits = ("max_tokens", "stop_at", "max_bytes", "max_words")
            return {"Gen": body | {name: getattr(step, name) for name in limits} | _decl_attributes(step)}
        case Fork():
            return {"Fork": {"branches": [_decl_steps(branch) for branch in step.branches]}}
        case Wait():
            return {"Wait": {"vars": list(step.names)}}
        case Fail():
            return {"Choose": {"options": {"Var": {"var": "never"}}}}
    return {"Stop": {}}


def _decl_attributes(step: Fixed | Gen) -> dict[str, Any]:
    values = [((Var(stmt.name),) if stmt.append else ()) + stmt.value for stmt in step.stmts]
    stmts = zip(step.stmts, values, strict=True)
    sets = [{"Set": {"var": stmt.name, "expr": _decl_expr(value)}} for stmt, value in stmts]
    return {"label": step.label, "stmts": sets}


def _decl_expr(expr: Expr) -> Any:
    parts = [_decl_part(part) for part in expr]
    return parts[0] if len(parts) == 1 else {"Concat": {"parts": parts}}


def _decl_part(part: object) -> Any:
    match part:
        case str():
            return {"String": {"str": part}}
        case Var():
            return {"Var": {"var": part.name}}
        case IfEq():
            return {"IfEq": {key: _decl_expr(getattr(part, key)) for key in ("a", "b", "eq", "neq")}}
    return {"Current": {}}


# --- JavaScript and Python, which share a shape


@dataclass(frozen=True)
class _Language:
    """`block`: the function that writes the lines of a block below the head of the block."""

    head: str
    tail: str
    block: Callable[[str, list[str]], list[str]]
    current: str
    is_branch: str
    var: str
    if_eq: str
    label: str
    same_label: str
    fixed: str
    fixed_after: str
    gen: str
    fork: str
    wait: str
    set: str
    append: str
    token: str
    log: str
    pause: str
    stop: str
    fail: str
    names: dict[str, str]
    constraints: dict[str, str]


_JS = _Language(
    head="async function main() {",
    tail="}\nawait main();",
    block=lambda head, lines: [f"{head} {{", *(f"  {line}" for line in lines), "}"],
    current="current",
    is_branch="if (branch{} === {})",
    var='(getVar({})?.decode() ?? "")',
    if_eq="({} === {} ? {} : {})",
    label="const {} = new Label();",
    same_label="const {} = {};",
    fixed="await fixed(current = {});",
    fixed_after="await {}.fixedAfter(current = {});",
    gen="current = await gen({{ {} }});",
    fork="const branch{} = await fork({});",
    wait="await waitVars({});",
    set="setVar({}, {});",
    append="appendVar({}, {});",
    token="await new ConstrainedToken(() => {}).run();",
    log="console.log(`LOG ${{JSON.stringify({})}}`);",
    pause="await pause();",
    stop="return;",
    fail='throw new Error("boom");',
    names={"regex": "regex: {}", "choices": "choices: {}", "options": "options: {}", "max_tokens": "maxTokens: {}",
           "max_bytes": "maxBytes: {}", "max_words": "maxWords: {}",
           "stop_at": "stopAt: {}", "store_var": "storeVar: {}"},
    constraints={"regex": "regexConstraint({})", "choices": "choicesConstraint({})",
                 "options": "new ChooseConstraint({})"},
)  # fmt: skip
_PY = _Language(
    head="import json\nfrom aici import *\nasync def main():",
    tail="start(main())",
    block=lambda head, lines: [f"{head}:", *(f"  {line}" for line in lines or ["pass"])],
    current="current",
    is_branch="if branch{} == {}",
    var='(get_var({}) or b"").decode()',
    if_eq="({2} if {0} == {1} else {3})",
    label="{} = Label()",
    same_label="{} = {}",
    fixed="current = {}; await FixedTokens(current)",
    fixed_after="current = {1}; await FixedTokens(current, following={0})",
    gen="current = await gen_text({})",
    fork="branch{} = await fork({})",
    wait="await wait_vars({})",
    set="set_var({}, {})",
    append="append_var({}, {})",
    token="await ConstrainedToken(lambda: {})",
    log="print('LOG', json.dumps({}))",
    pause="await Noop()",
    stop="return",
    fail='raise ValueError("boom")',
    names={"regex": "regex={}", "choices": "choices={}", "options": "options={}", "max_tokens": "max_tokens={}",
           "max_bytes": "max_bytes={}", "max_words": "max_words={}",
           "stop_at": "stop_at={}", "store_var": "store_var={}"},
    constraints={"regex": "RegexConstraint({})", "choices": "ChoicesConstraint({})",
                 "options": "ChooseConstraint({})"},
)  # fmt: skip


def javascript(program: Steps) -> str:
    lines = ["let current;", *_Printer(_JS).steps(program)]
    return "\n".join([_JS.head, *(f"  {line}" for line in lines), _JS.tail])


def python(program: Steps) -> str:
    lines = _Printer(_PY).steps(program) or ["pass"]
    return "\n".join([_PY.head, *(f"  {line}" for line in lines), _PY.tail])


def _constraint(language: Words | Letters, forms: dict[str, str]) -> str:
    if isinstance(language, Words) and language.written_as != "regex":
        return forms[language.written_as].format(json.dumps(language.words))
    return forms["regex"].format(_quoted(_regex(language)))


class _Printer:
    def __init__(self, language: _Language) -> None:
        self._to = language
        self._num_forks = 0

    def steps(self, steps: Steps) -> list[str]:
        return [line for step in steps for line in self._step(step)]

    def _step(self, step: Step) -> Iterator[str]:
        to = self._to
        match step:
            case Fixed():
                if step.following is None:
                    if step.label is not None:
                        yield to.label.format(step.label)
                    yield to.fixed.format(self._expr(step.text))
                else:
                    yield to.fixed_after.format(step.following, self._expr(step.text))
                    if step.label not in (None, step.following):
                        yield to.same_label.format(step.label, step.following)
                yield from self._stmts(step)
            case Gen():
                if step.label is not None:
                    yield to.label.format(step.label)
                yield to.gen.format(", ".join(self._options(step)))
                yield from self._stmts(step)
            case Token():
                yield to.token.format(_constraint(step.language, to.constraints))
            case Fork():
                number = self._num_forks
                self._num_forks += 1
                yield to.fork.format(number, len(step.branches))
                for index, branch in enumerate(step.branches):
                    yield from to.block(to.is_branch.format(number, index), self.steps(branch))
            case Wait():
                yield to.wait.format(", ".join(map(_quoted, step.names)))
            case Log():
                yield to.log.format(self._expr(step.text))
            case _:
                yield {Pause: to.pause, Stop: to.stop, Fail: to.fail}[type(step)]

    def _options(self, step: Gen) -> Iterator[str]:
        names = self._to.names
        yield _constraint(step.language, names)
        for name in ("max_tokens", "max_bytes", "max_words"):
            if (most := getattr(step, name)) is not None:
                yield names[name].format(most)
        if step.stop_at is not None:
            yield names["stop_at"].format(_quoted(step.stop_at))
        for stmt in step.stmts[:1]:
            if stmt == Set(stmt.name, (CURRENT,)):
                yield names["store_var"].format(_quoted(stmt.name))

    def _stmts(self, step: Fixed | Gen) -> Iterator[str]:
        for number, stmt in enumerate(step.stmts):
            is_stored = isinstance(step, Gen) and number == 0 and stmt == Set(stmt.name, (CURRENT,))
            if not is_stored:
                form = self._to.append if stmt.append else self._to.set
                yield form.format(_quoted(stmt.name), self._expr(stmt.value))

    def _expr(self, expr: Expr) -> str:
        return " + ".join(['""', *map(self._part, expr)])

    def _part(self, part: object) -> str:
        match part:
            case str():
                return _quoted(part)
            case Var():
                return self._to.var.format(_quoted(part.name))
            case IfEq():
                return self._to.if_eq.format(*(f"({self._expr(each)})" for each in (part.a, part.b, part.eq, part.neq)))
        return self._to.current
