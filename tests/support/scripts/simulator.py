"""The meaning of programs, without engine steps: every fork runs until the fork waits, in no particular order."""

import contextlib
import copy
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Literal

from tests.support.scripts import model
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
    Outcome,
    Result,
    Step,
    Steps,
    Stop,
    Token,
    Var,
    Wait,
    Words,
)

_MAX_FORCED_BYTES = 256


@dataclass
class _Fork:
    path: tuple[int, ...]
    tokens: list[int]
    todo: list[Step]
    labels: dict[str, int] = field(default_factory=lambda: {"prompt": 0})
    log: list[str] = field(default_factory=list)
    end: Literal["stop", "fail"] | None = None


def simulate(program: Steps) -> Outcome:
    variables: dict[str, str] = {}
    forks = [_Fork((), model.tokenize(model.PROMPT), list(program))]
    # A fork that moves may wake other forks; new forks are appended to the list and run after their parent.
    while sum(_advance(fork, forks, variables) for fork in forks):
        pass
    forks.sort(key=lambda fork: fork.path)
    return Outcome([_result(fork) for fork in forks], variables)


def _result(fork: "_Fork") -> Result:
    """If a fork failed, the length of its text is not defined: compare no text."""
    text = b"" if fork.end == "fail" else model.decode(fork.tokens)
    return Result(fork.path, text, "".join(fork.log), fork.end or "deadlock")


def _advance(fork: _Fork, forks: list[_Fork], variables: dict[str, str]) -> bool:
    """Run `fork` as far as possible. Return whether the fork did anything."""
    has_moved = False
    while fork.end is None:
        if not fork.todo:
            fork.end = "stop"
            break
        step = fork.todo[0]
        if isinstance(step, Wait) and not all(name in variables for name in step.names):
            return has_moved
        has_moved = True
        del fork.todo[0]
        if isinstance(step, Fork):
            children = [copy.deepcopy(fork) for _ in step.branches[1:]]
            for number, (each, branch) in enumerate(zip([fork, *children], step.branches, strict=True)):
                each.path += (number,)
                each.todo[:0] = branch
                if number > 0:
                    each.log.clear()
            forks += children
        else:
            _do(fork, step, variables)
    return has_moved


def _do(fork: _Fork, step: Step, variables: dict[str, str]) -> None:
    match step:
        case Stop() | Fail():
            fork.end = "stop" if isinstance(step, Stop) else "fail"
        case Log():
            _say(fork, "LOG", _value(step.text, variables))
        case Token():
            fork.tokens.append(model.greedy(fork.tokens, _allowed(Gen(language=step.language), [], b"")))
        case Fixed():
            if step.label is not None and step.following is None:
                fork.labels[step.label] = len(fork.tokens)
            text = _value(step.text, variables)
            if step.following is not None:
                position = fork.labels[step.following]
                removed = fork.tokens[position:]
                del fork.tokens[position:]
                if removed:
                    _say(fork, f"BACKTRACK {len(removed)}", model.decode(removed).decode())
                if not fork.tokens and not text:
                    fork.end = "fail"
                    return
                if step.label is not None:
                    fork.labels[step.label] = position
            _say(fork, "FIXED", text)
            fork.tokens += model.tokenize(text)
            _set(step, text, variables)
        case Gen():
            if step.label is not None:
                fork.labels[step.label] = len(fork.tokens)
            text = _generate(fork, step)
            _say(fork, "GEN", text)
            _set(step, text, variables)


def _say(fork: _Fork, what: str, text: str) -> None:
    fork.log.append(f"{what} {json.dumps(text, ensure_ascii=False)}\n")


def _set(step: Fixed | Gen, text: str, variables: dict[str, str]) -> None:
    for stmt in step.stmts:
        before = variables.get(stmt.name, "") if stmt.append else ""
        variables[stmt.name] = before + _value(stmt.value, variables, text)


def _value(expr: Expr, variables: dict[str, str], current: str = "") -> str:
    parts = []
    for part in expr:
        if part is CURRENT:
            parts.append(current)
        elif isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Var):
            parts.append(variables.get(part.name, ""))
        elif isinstance(part, IfEq):
            is_equal = _value(part.a, variables, current) == _value(part.b, variables, current)
            parts.append(_value(part.eq if is_equal else part.neq, variables, current))
    return "".join(parts)


def _generate(fork: _Fork, gen: Gen) -> str:
    tokens: list[int] = []
    forced: list[int] = []
    may_force = gen.max_bytes is None and gen.max_words is None
    while True:
        if not forced and may_force:
            forced, may_force = _forced(gen.language, tokens), False
        text = model.decode(tokens)
        has_ended = bool(tokens) and tokens[-1] == model.EOS
        if has_ended or _is_over(gen, tokens, text) or not (allowed := _allowed(gen, tokens, text)):
            fork.tokens += tokens
            return text.decode()
        if forced:
            tokens.append(forced.pop(0))
        else:
            tokens.append(model.greedy(fork.tokens + tokens, allowed))
            may_force = gen.max_bytes is None and gen.max_words is None


def _forced(language: Words | Letters, tokens: list[int]) -> list[int]:
    """Return the tokenizer's tokens of the forced text, without the last tokens that may merge with the text after."""
    if isinstance(language, Words) and language.written_as == "options":
        return []

    def may_come(text: bytes) -> bool:
        return _fits(language, [*tokens, *(1 + byte for byte in text)])

    run = b""
    while not _is_whole(language, [*tokens, *(1 + byte for byte in run)]):
        ways = [run + bytes([byte]) for byte in range(256) if may_come(run + bytes([byte]))]
        if len(ways) != 1 or len(run) == _MAX_FORCED_BYTES:
            break
        run = ways[0]
    while run and not _is_text(run):
        run = run[:-1]

    def may_span(start: int) -> bool:
        """Whether a token from `start` on may reach beyond the forced text."""
        rest = run[start:]
        return any(
            len(token) > len(rest) and token.startswith(rest) and may_come(run[:start] + token)
            for token in model.TOKENS
        )

    starts = [start for start in range(len(run)) if may_span(start)]
    ends = [next(end for end in range(start, -1, -1) if _is_text(run[:end])) for start in starts]
    ways_to_cut = [_spelled(tokens[-1:], run[:end].decode()) for end in (len(run), *ends)]
    same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*ways_to_cut, strict=False))
    return [column[0] for column in same]


def _spelled(last: list[int], text: str) -> list[int]:
    """Tokenize `text` together with the last token if the tokenizer leaves the last token unchanged; else tokenize
    `text` alone."""
    with contextlib.suppress(UnicodeDecodeError):
        together = model.tokenize(model.decode(last).decode() + text)
        if last and together[:1] == last:
            return together[1:]
    return model.tokenize(text)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_over(gen: Gen, tokens: list[int], text: bytes) -> bool:
    """Whether the generation ends here for any choice of the model."""
    if gen.stop_at is not None and gen.stop_at.encode() in text:
        return True
    if gen.max_tokens is not None and len(tokens) >= gen.max_tokens:
        return True
    if gen.max_words is not None and _num_words(text) >= gen.max_words and text[-1:] in (b" ", b"\n", b"\t"):
        return True
    goes_on = any(_fits(gen.language, [*tokens, token]) for token in range(1, len(model.TOKENS)))
    return not goes_on and _is_whole(gen.language, tokens)


def _allowed(gen: Gen, tokens: list[int], text: bytes) -> list[int]:
    """Return the allowed tokens; empty if the bounds leave nothing but the end."""
    allowed = [token for token in range(1, len(model.TOKENS)) if _fits(gen.language, [*tokens, token])]
    if gen.max_bytes is not None:
        allowed = [token for token in allowed if len(text + model.TOKENS[token]) <= gen.max_bytes]
    if gen.max_words is not None:
        allowed = [token for token in allowed if _num_words(text + model.TOKENS[token]) <= gen.max_words]
    is_bounded = gen.max_bytes is not None or gen.max_words is not None
    may_end = _is_whole(gen.language, tokens) and (allowed or not is_bounded)
    return [model.EOS, *allowed] if may_end else allowed


def _num_words(text: bytes) -> int:
    return len(re.findall(rb"[^ \t\n]+", text))


def _fits(language: Words | Letters, tokens: list[int]) -> bool:
    """Whether a text of the language begins with `tokens`."""
    text = model.decode(tokens)
    if isinstance(language, Letters):
        is_short = language.most is None or len(text) <= language.most
        return is_short and all(chr(byte) in language.letters for byte in text)
    if language.written_as == "options":
        return any(model.tokenize(word)[: len(tokens)] == tokens for word in language.words)
    return any(word.encode().startswith(text) for word in language.words)


def _is_whole(language: Words | Letters, tokens: list[int]) -> bool:
    text = model.decode(tokens)
    if isinstance(language, Letters):
        return len(text) >= language.least
    if language.written_as == "options":
        return any(model.tokenize(word) == tokens for word in language.words)
    return any(word.encode() == text for word in language.words)
