"""Which guests are calm: after how many rounds, as the earlier guests of the same controller have taught.

A guest without a record is calm after `calm_rounds` rounds without a wish: a wrong guess costs about what so many right
guesses save. Where the earlier guests went on for twice as many rounds a wish, a new guest is calm after its first
round. The record decides when guests are asked, never what they are asked.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from aici_engine.sequences.sequence import Sequence

_MARGIN = 2
_MOST_RECORDS = 4096
_MOST_ROUNDS = 1 << 16
"""Older rounds than about these count half: the prompt, too, decides how often a guest forces tokens."""

_Key = tuple[str, str, int]


_FEW = 12
"""One guest among so many, or more, is no reason for a round."""


def is_calm(seq: "Sequence") -> bool:
    """Return whether the next round need not wait for the guest.

    Forks share variables, so all forks of a request are asked before any fork goes on. A sequence without room ends in
    the round.
    """
    return seq.guest.num_calm >= seq.guest.calm_rounds and len(seq.group.members) == 1 and seq.room > 0


class CalmRecord:
    """Used by the engine's thread alone. `calm_rounds`: of a guest without a record.

    Owners have records of their own, and a record belongs to a module and its argument. The least recently used records
    are forgotten beyond 4096.
    """

    def __init__(self, calm_rounds: int) -> None:
        self._calm_rounds = calm_rounds
        self._records: dict[_Key, tuple[int, int]] = {}
        """The rounds without a wish, and the wishes."""

    def rounds_until_calm(self, seq: "Sequence") -> int:
        """Return the number of rounds after which the new guest of `seq` is calm."""
        num_quiet, num_wishes = self._records.get(_key(seq), (0, 0))
        is_quiet = num_quiet >= _MARGIN * self._calm_rounds * (num_wishes + 1)
        return min(1, self._calm_rounds) if is_quiet else self._calm_rounds

    def add(self, seq: "Sequence") -> None:
        """Add the rounds of a guest whose sequence has ended."""
        guest = seq.guest
        key = _key(seq)
        num_quiet, num_wishes = self._records.pop(key, (0, 0))
        num_quiet, num_wishes = num_quiet + guest.num_quiet, num_wishes + guest.num_wishes
        if num_quiet > _MOST_ROUNDS:
            num_quiet, num_wishes = num_quiet // 2, num_wishes // 2
        self._records[key] = (num_quiet, num_wishes)  # at the end: most recently used
        if len(self._records) > _MOST_RECORDS:
            del self._records[next(iter(self._records))]

    def are_too_few(self, wary: "Collection[Sequence]", num_guests: int) -> bool:
        """Return whether so few of all guests are not calm that a round for them costs the others more than it saves
        them.

        A guest that wants more than to go on after all loses a step, as a calm guest does.
        """
        if len(wary) * max(_FEW, self._calm_rounds) > num_guests:
            return False
        return all(
            len(seq.group.members) == 1 and seq.room > 0 and not (seq.guest.suspended or seq.guest.last_was_eos)
            for seq in wary
        )


def _key(seq: "Sequence") -> _Key:
    call = seq.controller
    assert call is not None
    argument = call.argument if isinstance(call.argument, str) else repr(call.argument)
    return seq.share.owner, call.module_id, hash(argument)
