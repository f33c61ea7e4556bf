"""How a run went: its logs and what failed, on stderr."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aici_base.errors import AiciError, ControllerError
from aici_cli.output import say
from aici_cli.render import Answer

if TYPE_CHECKING:
    from aici_engine.events import FinishEvent

MAX_TOLD = 16
"""Failures of forks: a fork bomb has a thousand."""


def report(answers: Sequence[Answer], *, log: bool, constrained: bool) -> None:
    """Raises the first failure; those of further forks are told before."""
    from aici_engine.events import FinishReason

    for answer in answers:
        ends = answer.ends
        mark = {number: f"[{number}] " if answer.forks else "" for number in ends}
        for number, end in ends.items():
            for line in end.logs.splitlines() if log else ():
                say(mark[number] + line)
        failures = [(mark[number], error) for number, end in ends.items() if (error := _failure(end))]
        for where, error in failures[1:MAX_TOLD]:
            say(f"{where}{error.message}")
        if len(failures) > MAX_TOLD:
            say(f"and {len(failures) - MAX_TOLD} more")
        for where, error in failures[:1]:
            raise type(error)(where + error.message, hint=error.hint) if where else error
        if constrained and any(end.reason is FinishReason.LENGTH for end in ends.values()):
            say("note: stopped at --max-tokens or the end of the context; the constraint may be unfinished")


def _failure(end: "FinishEvent") -> AiciError | None:
    from aici_engine.events import FinishReason

    if end.reason is FinishReason.DEADLOCK:
        return ControllerError("the controller waits, and nobody is left who could wake it")
    if end.reason is FinishReason.OUT_OF_FUEL:
        return ControllerError("the controller used up ten contexts' worth of tokens without an end")
    return end.error
