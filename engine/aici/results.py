"""The result of a request: text, value, tokens, reason of the end, and forks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from aici.constraints import Constraint, Messages
from aici.errors import AiciError, ControllerError, UnfinishedError
from aici_engine.events import (
    CONTROLLER_FAILURES,
    ControlEvent,
    Event,
    FinishEvent,
    FinishReason,
    ForkedEvent,
    ForkEvent,
    Timings,
    Token,
    Usage,
)

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """One sequence of a request. Fork 0 is the root; `parent` is the number of the copied fork.

    `logs` and `error` are the fork's own. `error` is None unless the fork failed.
    """

    index: int
    parent: int | None
    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason
    stop: str | None
    logs: str
    error: AiciError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T_co]):
    """The outcome of one request.

    `text` excludes the prompt, and tokens removed by the controller. `stop` is the stop string at the end of the text,
    or None. `usage` and `variables` cover all forks. `variables` holds the last values of variables,
    decoded as UTF-8. `forks` is empty unless the controller forked; otherwise all forks follow in order, root first.
    `error` is None unless the request failed.

    >>> result = llm.generate("The answer is ", aici.regex(r"[0-9]{2}"))
    >>> print(len(result.text), result.finish_reason)
    2 aici-stop
    """

    prompt: str | Messages
    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason
    stop: str | None
    usage: Usage
    timings: Timings
    logs: str
    variables: Mapping[str, str]
    forks: tuple[Fork, ...]
    error: AiciError | None
    constraint: Constraint[T_co] = field(repr=False)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings of the constraint: the parts of a schema that are not enforced, for example.

        >>> llm.generate("A size: ", aici.json_schema({"enum": ["S", "M"], "colour": 1})).warnings
        ('not enforced: #/colour: unknown keyword',)
        """
        return self.constraint.warnings

    @property
    def value(self) -> T_co:
        """Return the text as a value: an instance for `json_schema`, otherwise the text itself.

        Raise the error of a failed request. Raise UnfinishedError if the text ended before the constraint was met.

        >>> llm.generate("Is water wet? ", aici.choice("yes", "no")).value in ("yes", "no")
        True
        """
        if self.error is not None:
            raise self.error
        complete = self.constraint.complete
        if complete == "stopped" and self.finish_reason not in (FinishReason.EOS, FinishReason.STOP):
            raise self._unfinished()
        try:
            return self.constraint.parse(self.text)
        except ValueError as error:
            raise self._unfinished() from error

    def _unfinished(self) -> UnfinishedError:
        ended = {FinishReason.LENGTH: "at max_tokens or at the end of the context"}
        where = ended.get(self.finish_reason, f"with {self.finish_reason}")
        return UnfinishedError(
            f"the text ended {where}, before it was what the constraint asks for: {self.text[-_SHOWN_CHARS:]!r}",
            hint="give more max_tokens" if self.finish_reason is FinishReason.LENGTH else "",
        )


class Collector(Generic[T]):
    """Adds up the events of a request to a Result."""

    def __init__(self, prompt: str | Messages, constraint: Constraint[T]) -> None:
        self._prompt = prompt
        self._constraint = constraint
        self._parents: dict[int, int] = {}
        self._ends: dict[int, FinishEvent] = {}
        self._storage: list[Mapping[str, Any]] = []
        self.result: Result[T] | None = None

    @property
    def ended(self) -> Result[T]:
        """Return the result, once the last event has come."""
        assert self.result is not None
        return self.result

    def add(self, event: Event) -> None:
        """Take the next event. `result` is set by the last one."""
        number, inner = (event.fork, event.event) if isinstance(event, ForkEvent) else (0, event)
        if isinstance(inner, ForkedEvent):
            self._parents[number] = inner.parent
        elif isinstance(inner, ControlEvent):
            self._storage += inner.storage
        elif isinstance(inner, FinishEvent) and number:
            self._ends[number] = inner
        elif isinstance(event, FinishEvent):
            self.result = self._result(event)

    def _result(self, end: FinishEvent) -> Result[T]:
        ends = {0: end, **dict(sorted(self._ends.items()))} if self._ends else {}
        return Result(
            prompt=self._prompt,
            text=end.text,
            tokens=end.tokens,
            finish_reason=end.reason,
            stop=end.stop,
            usage=end.usage,
            timings=end.timings,
            logs=end.logs,
            variables=_variables(self._storage),
            forks=tuple(self._fork(number, each) for number, each in ends.items()),
            error=_failure(end),
            constraint=self._constraint,
        )

    def _fork(self, number: int, end: FinishEvent) -> Fork:
        return Fork(
            index=number,
            parent=self._parents.get(number),
            text=end.text,
            tokens=end.tokens,
            finish_reason=end.reason,
            stop=end.stop,
            logs=end.logs,
            error=_failure(end),
        )


def _failure(end: FinishEvent) -> AiciError | None:
    if end.reason in CONTROLLER_FAILURES:
        return ControllerError(CONTROLLER_FAILURES[end.reason])
    return end.error


def _variables(storage: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Replay writes of variables. Bytes that are not UTF-8 become U+FFFD."""
    values: dict[str, bytes] = {}
    for command in storage:
        if write := command.get("WriteVar"):
            before = values.get(write["name"], b"") if write["op"] == "Append" else b""
            values[write["name"]] = before + bytes.fromhex(write["value"])
    return {name: value.decode(errors="replace") for name, value in values.items()}
