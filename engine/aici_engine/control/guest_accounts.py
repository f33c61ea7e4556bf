"""Who pays for guests: for the waits of others, and for processor time."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from aici_base.ids import SeqId
from aici_engine.control.guest_patience import GuestPatience
from aici_engine.control.guest_time import GuestTime
from aici_engine.sequences.group import SequenceGroup
from aici_engine.sequences.sequence import Sequence
from aici_runtime.wire import Patience, Turn

if TYPE_CHECKING:
    from aici_engine.request import Share

SHORT_S = 0.001
"""Waits below this time are charged to nobody."""


class GuestAccounts:
    """Used by the engine's thread alone. `patience`: how long steps wait for guests. `time`: the processor time."""

    def __init__(self, guest_time: GuestTime | None = None) -> None:
        self.patience = GuestPatience(time.monotonic)
        self.time = guest_time or GuestTime(time.monotonic)
        self._shares: dict[SeqId, Share] = {}
        """Of the guests that were bound, until their last processor time is known."""

    def add(self, seq: Sequence) -> None:
        """The guest is bound."""
        self._shares[seq.seq_id] = seq.share

    def remove(self, seq_ids: Iterable[SeqId]) -> None:
        """The guests are freed, and their last processor time was counted."""
        for seq_id in seq_ids:
            self._shares.pop(seq_id, None)

    def clear(self) -> None:
        """The runtime has died."""
        self._shares.clear()

    def slowed(self, seqs: Iterable[Sequence]) -> frozenset[SequenceGroup]:
        """Return those requests that sit out the next step, because their owner's budget of processor time is used
        up."""
        if not self.time.has_budgets or not self.time.begin_step():
            return frozenset()
        return frozenset(seq.group for seq in seqs if self.time.is_slowed(seq.share))

    def count_time(self, cpu_s: Mapping[SeqId, float], fresh: Collection[Sequence]) -> None:
        """Count the processor time that the runtime tells of. `fresh`: guests that are about to be bound."""
        shares = self._shares | {seq.seq_id: seq.share for seq in fresh}
        times: defaultdict[Share, float] = defaultdict(float)
        for seq_id, used_s in cpu_s.items():
            if (share := shares.get(seq_id)) is not None:
                times[share] += used_s
        self.time.add(times)

    def charge(self, seqs: Iterable[Sequence], patience: Patience, turn: Turn, waited_s: float) -> None:
        """Charge the wait for an answer to those of `seqs` whose guests took long. `patience`: of the turn."""
        if waited_s < SHORT_S:
            return
        free_s = patience.hurried_s
        for seq_id, seq in {seq.seq_id: seq for seq in seqs}.items():
            if seq_id in patience.hurried or seq.guest.late:
                continue  # the answer did not wait for the guest
            results = [result for part in (turn.post, turn.pre, turn.mid) if (result := part.get(seq_id))]
            is_late = any(getattr(result.result, "late", False) for result in results)
            took_s = waited_s if is_late else sum(result.micros for result in results) / 1e6 - free_s
            if took_s > 0:
                self.patience.charge(seq, min(waited_s, took_s))
