"""What a run has to say on stderr: the controller's logs, and failures."""

from typing import TYPE_CHECKING, Any

from aici_base.plain_text import without_controls
from aici_cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aici import AiciError, Fork, Result

MAX_TOLD = 16
"""Failures of forks that are printed. A fork bomb has a thousand."""


def report(results: "Sequence[Result[Any]]", *, log: bool, constrained: bool) -> None:
    """Print logs and failures. Raise the first failure, after the other failures were printed."""
    from aici import FinishReason

    for result in results:
        sequences: Sequence[Result[Any] | Fork] = result.forks or [result]
        marks = [f"[{fork.index}] " for fork in result.forks] or [""]
        for mark, sequence in zip(marks, sequences, strict=True):
            for line in sequence.logs.splitlines() if log else ():
                say(mark + without_controls(line, keep="\t"))
        failures: list[tuple[str, AiciError]] = [
            (mark, sequence.error) for mark, sequence in zip(marks, sequences, strict=True) if sequence.error
        ]
        for mark, error in failures[1:MAX_TOLD]:
            say(f"{mark}{error.message}")
        if len(failures) > MAX_TOLD:
            say(f"and {len(failures) - MAX_TOLD} more")
        for mark, error in failures[:1]:
            raise error.with_message(mark + error.message) if mark else error
        if constrained and any(sequence.finish_reason is FinishReason.LENGTH for sequence in sequences):
            say("note: stopped at --max-tokens or the end of the context; the constraint may be unfinished")
