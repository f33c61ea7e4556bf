"""Bounds what the check of one constraint may cost, and tells the user which parts of the constraint are costly."""

import contextlib
import contextvars
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from aici_base.errors import UsageError

FUEL: Final = 16_000_000_000
"""WebAssembly instructions of a check: about 2 s of processor time. The largest of 1,199 real schemas takes 9e9."""

LONG_FUEL: Final = 15 * FUEL
"""For a command that reads texts with a constraint."""

MAX_TEXT_BYTES: Final = 256 << 10
"""Size of the grammars in Lark and GBNF of a check: Python translates 120 KiB in a second."""

_NUM_SHOWN: Final = 3
_COUNT: Final = re.compile(r"\{(?:\d*,)?(\d+)\}")
_tank: contextvars.ContextVar["Tank | None"] = contextvars.ContextVar("tank", default=None)
_P = ParamSpec("_P")
_R = TypeVar("_R")


class CostlyError(UsageError):
    """A guest had no answer before the fuel of the check was used up."""


class Tank:
    """What is left of the bounds of a check: fuel for guests, and bytes of grammars for the readers in Python."""

    def __init__(self, size: int, text_bytes: int = MAX_TEXT_BYTES) -> None:
        self.size = size
        self.fuel = size
        self.text_bytes = text_bytes


class CostlyRequestError(UsageError):
    """A check failed because earlier checks of the same request left too little of the request's bounds."""


class RequestTank:
    """What is left of the bounds of a request with several checks: at first, twice the bounds of a check."""

    def __init__(self) -> None:
        self._fuel = 2 * FUEL
        self._text_bytes = 2 * MAX_TEXT_BYTES

    @contextlib.contextmanager
    def check(self) -> Iterator[None]:
        """Bound the questions and grammars inside of the context as one check of the request."""
        fuel, text_bytes = max(0, min(FUEL, self._fuel)), min(MAX_TEXT_BYTES, self._text_bytes)
        tank = Tank(fuel, text_bytes)
        token = _tank.set(tank)
        try:
            yield
        except UsageError as error:
            lacks_fuel = fuel < FUEL and isinstance(error, CostlyError)
            if lacks_fuel or (text_bytes < MAX_TEXT_BYTES and tank.text_bytes < 0):
                raise CostlyRequestError(
                    "the constraints of this request are too costly together",
                    hint="send fewer constraints or tools a request, or simpler ones; those checked so far are"
                    " remembered, so a second request may succeed",
                ) from error
            raise
        finally:
            _tank.reset(token)
            self._fuel -= fuel - tank.fuel
            self._text_bytes -= text_bytes - tank.text_bytes


@contextlib.contextmanager
def one_tank(size: int | None = None) -> Iterator[Tank]:
    """Share one tank among all questions to guests, and all grammars, inside of the context. `size`: default, FUEL."""
    tank = _tank.get()
    if tank is not None:
        yield tank
        return
    tank = Tank(FUEL if size is None else size)
    token = _tank.set(tank)
    try:
        yield tank
    finally:
        _tank.reset(token)


def one_check(
    what: str, parts: Callable[[str], str]
) -> Callable[[Callable[Concatenate[str, _P], _R]], Callable[Concatenate[str, _P], _R]]:
    """Make a function check its first argument with the fuel of one check.

    `what`: a name for the argument. `parts` returns the hint for an argument that is too costly.
    """

    def decorate(check: Callable[Concatenate[str, _P], _R]) -> Callable[Concatenate[str, _P], _R]:
        @functools.wraps(check)
        def bounded(text: str, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                with one_tank():
                    return check(text, *args, **kwargs)
            except CostlyError as error:
                if error.hint:
                    raise
                raise CostlyError(f"this {what} is too costly: {error.message}", hint=parts(text)) from error

        return bounded

    return decorate


def costly_parts_of_pattern(pattern: str) -> str:
    counts = [int(count[1]) for count in _COUNT.finditer(pattern)]
    large = f", such as {{{max(counts)}}}" if counts else ""
    return f"write smaller counts{large}, fewer alternatives that begin alike, and fewer conditions (?=...), (?!...)"


def costly_parts_of_grammar(_text: str) -> str:
    return "make the grammar smaller: fewer rules, smaller counts in patterns, rules that can be read in one way only"


def costly_parts_of_schema(text: str) -> str:
    """Return the hint with the places of the parts that usually cost most, the most costly first."""
    try:
        found = sorted(_suspects(json.loads(text), ""), key=lambda each: -each[0])[:_NUM_SHOWN]
    except (ValueError, RecursionError):
        found = []
    if not found:
        return "make the schema smaller: fewer alternatives, smaller counts"
    return "simplify what probably costs most: " + "; ".join(shown for _, shown in found)


def _suspects(part: Any, pointer: str) -> Iterator[tuple[int, str]]:
    """Yield a guess of the cost and a description of each part whose automaton may be large."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _suspects(item, f"{pointer}/{index}")
    if not isinstance(part, dict):
        return
    for key, value in part.items():
        at = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        match key, value:
            case "oneOf", [_, _, *_]:
                shown = f"oneOf at #{at} has {len(value)} alternatives, each of which excludes the others: try anyOf"
                yield 100 * len(value) ** 2, shown
            case "allOf", [_, _, *_]:
                yield 50 * len(value), f"allOf at #{at} combines {len(value)} schemas"
            case (("not" | "if" | "contains" | "uniqueItems"), _) if value is not False:
                yield 100, f"{key} at #{at}"
            case "pattern", str():
                count = sum(int(each[1]) for each in _COUNT.finditer(value[:10_000]))
                yield 10 + count, f"the pattern at #{at}"
            case (("maxLength" | "minLength" | "maxItems" | "minItems"), int()) if value > 100:
                yield min(value, 10_000) // 100, f"{key} at #{at} is {value}"
        yield from _suspects(value, at)
