"""The declaration of a sampling parameter: values, defaults, protocols and command-line flag.

`aici_engine.sampling_params` holds the table. This module reads and renders the table, and knows no parameter by name.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum
from numbers import Real
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from aici_base.errors import UsageError

Kind: TypeAlias = Literal["number", "whole number", "flag", "texts", "biases", "tokens", "token runs"]
"""texts: `tuple[str, ...]`. biases: `Mapping[int, float]`, token to number. tokens: `tuple[int, ...]`. token runs:
tuples of such tuples."""

_SHOWN_CHARS = 80
_NUMBERS = (float, int, Real)
"""Python's numbers first: a check against the abstract class, for numpy's numbers, takes a microsecond."""


class Api(StrEnum):
    """A protocol of requests to the engine."""

    OPENAI_CHAT = "OpenAI chat"
    OPENAI_COMPLETIONS = "OpenAI completions"
    OPENAI_RESPONSES = "OpenAI responses"
    ANTHROPIC = "Anthropic"
    REST = "AICI REST"
    LMTP = "LMTP"


class _Default(Enum):
    SAME = "same"
    REQUIRED = "required"


SAME: Final = _Default.SAME
"""The default of the parameter itself."""
REQUIRED: Final = _Default.REQUIRED
"""No default: a request without the field is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiField:
    """The field of a parameter in one protocol. `Parameter` supplies every value left out here.

    `other_name`: a second name of the same field; a request with both names gives both the same value. `why`: the
    reason for a default of the protocol's own. `ge`, `gt`, `le`, `lt` narrow the range of a number or of a bias.
    `max_items` bounds a list. `one_alone`: a single text is accepted as a list of one.
    """

    name: str = ""
    other_name: str = ""
    default: object = SAME
    why: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    max_items: int | None = None
    one_alone: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.other_name) if self.other_name else (self.name,)

    @property
    def bounds(self) -> tuple[float | None, float | None, float | None, float | None]:
        """`ge`, `gt`, `le`, `lt`."""
        return self.ge, self.gt, self.le, self.lt


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """The flag of `aici run`: `--` and the parameter's name. `help` and `default` replace the parameter's own."""

    help: str = ""
    default: object = SAME
    ge: float | None = None
    metavar: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One row of the table: the annotation of a field of `SamplingParams`.

    `help`: one sentence about the effect. `why`: the reason for the default. `ge`, `gt`, `le`, `lt`: the range of a
    number, or of a bias. `max_items`: the length of `texts`. `max_chars`: the length of all texts together. `wanted`:
    valid values in words, if the range does not say enough. `off`: values that switch the parameter off.
    `is_moot_if_greedy`: without effect at temperature 0.

    None for a protocol: the protocol does not have the parameter. None for `flag`: `aici run` has no flag.
    `read_table` copies `name`, `kind`, `optional` and `default` from the annotated field.
    """

    help: str
    why: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    max_items: int | None = None
    max_chars: int | None = None
    wanted: str = ""
    off: tuple[object, ...] = ()
    is_moot_if_greedy: bool = False

    openai_chat: ApiField | None = None
    openai_completions: ApiField | None = None
    openai_responses: ApiField | None = None
    anthropic: ApiField | None = None
    rest: ApiField | None = None
    lmtp: ApiField | None = None
    flag: Flag | None = None

    name: str = ""
    kind: Kind = "number"
    optional: bool = False
    default: object = None

    def field(self, api: Api) -> ApiField | None:
        """Return the field in a protocol with name, default and range filled in, or None."""
        declared: ApiField | None = getattr(self, api.name.lower())
        if declared is None:
            return None
        low, high = (declared.ge, declared.gt), (declared.le, declared.lt)
        if low == (None, None):
            low = (self.ge, self.gt)
        if high == (None, None):
            high = (self.le, self.lt)
        return replace(
            declared,
            name=declared.name or self.name,
            default=self.default if declared.default is SAME else declared.default,
            ge=low[0],
            gt=low[1],
            le=high[0],
            lt=high[1],
            max_items=declared.max_items or self.max_items,
        )

    def check(self, value: object, *, name: str = "") -> None:
        """Raise UsageError for a value out of range. `name`: the caller's name of the parameter."""
        if self._takes(value):
            return
        name = name or self.name
        try:
            shown = self._shown(value)
        except ValueError:  # an int of more digits than Python writes
            shown = "a number of thousands of digits"
        shown = shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."
        raise UsageError(f"{name} is {shown}", hint=f"{name} must be {self.wanted or self._range()}", param=name)

    def _takes(self, value: Any) -> bool:
        if value is self.default:
            return True
        if value is None:
            return self.optional
        if self.kind == "number":
            return isinstance(value, _NUMBERS) and _is_finite(value) and self._is_within(value)
        if self.kind == "whole number":
            return isinstance(value, int) and self._is_within(value)
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "texts":
            is_short = isinstance(value, tuple) and (self.max_items is None or len(value) <= self.max_items)
            if not (is_short and all(isinstance(text, str) and text for text in value)):
                return False
            return self.max_chars is None or sum(map(len, value)) <= self.max_chars
        if self.kind == "tokens":
            return self._is_run(value)
        if self.kind == "token runs":
            is_short = isinstance(value, tuple) and (self.max_items is None or len(value) <= self.max_items)
            return is_short and all(run and self._is_run(run) for run in value)
        return isinstance(value, Mapping) and self._bad_bias(value) is None

    def _is_run(self, value: Any) -> bool:
        is_short = isinstance(value, tuple) and (self.max_items is None or len(value) <= self.max_items)
        return is_short and all(isinstance(token, int) and token >= 0 for token in value)

    def _is_within(self, value: Any) -> bool:
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def _bad_bias(self, biases: Mapping[Any, Any]) -> tuple[object, object] | None:
        low = -math.inf if self.ge is None else self.ge
        high = math.inf if self.le is None else self.le
        # Half the vocabulary may be biased: the loop formats nothing and calls nothing of ours.
        for token, bias in biases.items():
            if not (isinstance(token, int) and isinstance(bias, (int, float)) and low <= bias <= high):
                return token, bias
        return None

    def _shown(self, value: object) -> str:
        if isinstance(value, Mapping) and (bad := self._bad_bias(value)) is not None:
            return f"{bad[1]!r} for token {bad[0]!r}"
        return str(value) if isinstance(value, Real) else repr(value)

    def _range(self) -> str:
        span = range_in_words(self.ge, self.gt, self.le, self.lt)
        if self.kind == "flag":
            return "true or false"
        if self.kind == "texts":
            chars = f", of at most {self.max_chars} characters in all" if self.max_chars else ""
            return f"a tuple of at most {self.max_items} strings, none of them empty{chars}"
        if self.kind == "tokens":
            return f"a tuple of at most {self.max_items} numbers of tokens"
        if self.kind == "token runs":
            return f"a tuple of at most {self.max_items} tuples of numbers of tokens, none of them empty"
        if self.kind == "biases":
            return f"numbers {span}, each for the number of a token"
        if self.kind == "whole number":
            return f"a whole number {span}".rstrip()
        return span or "a number"


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of float
        return False


def range_in_words(ge: float | None, gt: float | None, le: float | None, lt: float | None) -> str:
    """Return a range as words ("above 0 and at most 1"); an empty text if nothing bounds the range."""
    low = f"from {_number(ge)}" if ge is not None else "" if gt is None else f"above {_number(gt)}"
    if le is not None:
        return f"{low} to {_number(le)}" if ge is not None else f"{low} and at most {_number(le)}".removeprefix(" and ")
    if lt is not None and ge is not None and ge == -lt:
        return f"a {lt.bit_length()}-bit number" if isinstance(lt, int) else ""
    if lt is not None:
        return f"{low} and below {_number(lt)}".removeprefix(" and ")
    return low


def _number(value: float) -> str:
    exponent = value.bit_length() - 1 if isinstance(value, int) and value > 1 << 20 else 0
    return f"2^{exponent}" if exponent and value == 1 << exponent else f"{value:g}"


def read_table(params: type[Any]) -> Mapping[str, Parameter]:
    """Return the parameters declared by the fields of a dataclass, by name, in the order of the fields."""
    hints = get_type_hints(params, include_extras=True)
    return {field.name: _completed(field, *get_args(hints[field.name])) for field in fields(params)}


def _completed(field: Any, kind: Any, parameter: Parameter) -> Parameter:
    alternatives = get_args(kind) if get_origin(kind) not in (tuple, Mapping) else ()
    optional = type(None) in alternatives
    plain = next((each for each in alternatives if each is not type(None)), kind)
    kinds: dict[Any, Kind] = {float: "number", int: "whole number", bool: "flag"}
    default = field.default_factory() if callable(field.default_factory) else field.default
    tuples: dict[Any, Kind] = {str: "texts", int: "tokens"}
    is_tuple = get_origin(plain) is tuple
    found: Kind = kinds.get(plain) or (tuples.get(get_args(plain)[0], "token runs") if is_tuple else "biases")
    return replace(parameter, name=field.name, kind=found, optional=optional, default=default)


def markdown_table(parameters: Iterable[Parameter]) -> str:
    """Return the table as Markdown: two tables, one of values and effects, one of names and defaults by protocol."""
    parameters = list(parameters)
    values = [["Parameter", "Values", "Default", "Why", "Effect"]]
    names = [["Parameter", *Api, "`aici run`"]]
    for each in parameters:
        wanted = each.wanted or each._range()
        values.append([f"`{each.name}`", wanted, _default(each.default), each.why, each.help])
        names.append([f"`{each.name}`", *(_cell(each, api) for api in Api), _flag_cell(each)])
    return f"{_markdown(values)}\n{_markdown(names)}"


def _cell(parameter: Parameter, api: Api) -> str:
    field = parameter.field(api)
    if field is None:
        return ""
    parts = [" or ".join(f"`{name}`" for name in field.names)]
    if field.default is REQUIRED:
        parts.append("required")
    elif field.default != parameter.default:
        parts.append(f"default {_default(field.default)}" + (f" ({field.why})" if field.why else ""))
    declared = getattr(parameter, api.name.lower())
    if span := range_in_words(declared.ge, declared.gt, declared.le, declared.lt):
        parts.append(span)
    if declared.max_items:
        parts.append(f"at most {declared.max_items}")
    return ", ".join(parts)


def _flag_cell(parameter: Parameter) -> str:
    if parameter.flag is None:
        return ""
    name = f"`--{parameter.name.replace('_', '-')}`"
    default = parameter.flag.default
    return name if default is SAME else f"{name}, default {_default(default)}"


def _default(value: object) -> str:
    if value is None or value == () or value == {}:
        return "none"
    return f"{str(value).lower()}" if isinstance(value, bool) else str(value)


def _markdown(rows: list[list[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


__all__ = [
    "REQUIRED",
    "SAME",
    "Api",
    "ApiField",
    "Flag",
    "Kind",
    "Parameter",
    "markdown_table",
    "range_in_words",
    "read_table",
]
