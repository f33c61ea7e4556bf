"""Sequences that wait for the next controller runtime, because theirs died before they had begun."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aici_engine.sequences.sequence import Sequence


class RuntimeQueue:
    """Used by the engine's thread alone.

    `is_expected`: when the runtime dies, its owner starts another within seconds. Without such an owner, sequences that
    need a dead runtime fail at once. `number`: of the runtime of now.
    """

    def __init__(self) -> None:
        self._waiting: list[Sequence] = []
        self.is_expected = False
        self.number = 0

    def __contains__(self, seq: "Sequence") -> bool:
        return seq in self._waiting

    def waits(self, seq: "Sequence") -> bool:
        """Let a sequence wait. Return False if no runtime is expected."""
        if self.is_expected:
            self._waiting.append(seq)
        return self.is_expected

    def next_runtime(self) -> "list[Sequence]":
        """Record that the next runtime is there. Return the sequences that may begin."""
        self.number += 1
        waiting, self._waiting = self._waiting, []
        return [seq for seq in waiting if seq.ending is None]

    def give_up(self) -> "list[Sequence]":
        """Record that no runtime comes soon. Return the sequences that have waited."""
        self.is_expected = False
        waiting, self._waiting = self._waiting, []
        return waiting
