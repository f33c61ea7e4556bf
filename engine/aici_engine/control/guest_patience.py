"""How long a step waits for guests, while other sequences could go on.

A step of one kind of sequences waits for a slow guest, because waiting delays nobody else. Sequences are of one kind if
they have the same owner and the same module. With several kinds, a step waits for `_MOST_S` at most, and every kind has
an account: the seconds in which others waited for its guests. A kind whose account is used up is *hurried*: its guests
have the time of the forward pass, which costs nobody anything, and no more. A late guest is left out of steps until its
answer is there, so a hurried guest generates the same text, later.

An account fills again slowly, and a kind that uses up its account again is hurried twice as long as before. The account
outlives the requests: a new request does not begin anew. An owner has an account too, so that many modules gain little.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aici_runtime.wire import Patience

if TYPE_CHECKING:
    from aici_base.ids import SeqId
    from aici_engine.sequences.sequence import Sequence

_MOST_S = 0.03
"""A step of several kinds waits this long for guests, beyond the forward pass."""
_ROUND_S = 0.001
"""A hurried guest may always take this long: a step cannot be planned before post and pre."""
_KIND_S, _OWNER_S = 0.03, 0.12
"""What an account holds."""
_REFILL = 0.02
"""Seconds of credit in a second."""
_FIRST_PENALTY_S, _LONGEST_PENALTY_S = 1.0, 60.0
_MOST_ACCOUNTS = 4096

_Kind = tuple[str, str | None]


@dataclass(slots=True)
class _Account:
    """`debt_s`: waiting that is not refilled yet, at time `at`. `until`: the end of hurry. `penalty_s`: the next
    hurry."""

    at: float
    debt_s: float = 0.0
    until: float = 0.0
    penalty_s: float = _FIRST_PENALTY_S

    def charge(self, waited_s: float, most_s: float, now: float) -> None:
        self.debt_s = max(0.0, self.debt_s - _REFILL * (now - self.at)) + waited_s
        self.at = now
        if self.debt_s >= most_s and self.until <= now:
            if now - self.until > _LONGEST_PENALTY_S:
                self.penalty_s = _FIRST_PENALTY_S
            self.debt_s, self.until = 0.0, now + self.penalty_s
            self.penalty_s = min(_LONGEST_PENALTY_S, 2 * self.penalty_s)


class GuestPatience:
    """Used by the engine's thread alone. `now`: the clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._active: set[_Kind] = set()
        self._accounts: dict[_Kind, _Account] = {}

    def begin_step(self, running: Iterable["Sequence"]) -> None:
        """Note which kinds of sequences have work in this step."""
        self._active = {seq.kind for seq in running if not seq.guest.suspended}

    def limits(self, seqs: Collection["Sequence"], free_s: float = 0.0) -> Patience | None:
        """Return how long a turn waits for the guests of `seqs`; None without a bound.

        `free_s`: the time that a forward pass beside the turn is expected to take; 0 without a pass.
        """
        active = self._active
        if not active:
            return None
        if len(active) == 1:
            for seq in seqs:  # no generator: every step passes here, with cold caches
                if seq.kind in active:
                    return None
        others = {seq.seq_id: seq.kind for seq in seqs}
        now = self._now() if self._accounts else 0.0
        hurried: list[SeqId] = [seq_id for seq_id, kind in others.items() if self._is_hurried(kind, now)]
        return Patience(most_s=free_s + _MOST_S, hurried_s=max(_ROUND_S, free_s), hurried=hurried)

    def charge(self, seq: "Sequence", waited_s: float) -> None:
        """Others waited so long for the guest of `seq`."""
        now, kind = self._now(), seq.kind
        for key, most_s in ((kind, _KIND_S), ((kind[0], ""), _OWNER_S)):
            if key not in self._accounts:
                self._make_room(now)
                self._accounts[key] = _Account(now)
            self._accounts[key].charge(waited_s, most_s, now)

    def _is_hurried(self, kind: _Kind, now: float) -> bool:
        if not self._accounts:
            return False
        return any(
            account is not None and account.until > now
            for account in (self._accounts.get(kind), self._accounts.get((kind[0], "")))
        )

    def _make_room(self, now: float) -> None:
        if len(self._accounts) >= _MOST_ACCOUNTS:
            kept = {key: account for key, account in self._accounts.items() if account.until > now}
            self._accounts = kept if len(kept) < _MOST_ACCOUNTS else {}
