"""The sequences of one request."""

from dataclasses import replace
from typing import TYPE_CHECKING

from aici_base.errors import AiciError
from aici_base.ids import SeqId
from aici_engine.events import FinishEvent, FinishReason, Origin
from aici_engine.request import Sink

if TYPE_CHECKING:
    from aici_engine.sequences.sequence import Sequence

SAMPLED_FUEL = 2
"""The cost of a sampled token."""


class SequenceGroup:
    """One request. `members`: the sequences that have not ended. `num_forks`: all sequences so far.

    Forks are numbered in the order of creation; 0 is the root, the only sequence at first.
    """

    def __init__(self, request_id: SeqId, sink: Sink) -> None:
        self.request_id = request_id
        self.sink = sink
        self.members: list[Sequence] = []
        self.num_forks = 0
        self._root_end: FinishEvent | None = None
        self._num_sampled = 0
        self._num_forced = 0
        self._num_idle = 0
        self._rounds_suspended = 0

    @property
    def fuel(self) -> int:
        """The cost of all forks: `SAMPLED_FUEL` a sampled token, 1 a forced token, 1 a step in which a guest changed
        nothing.

        A step without a change costs a forward pass too.
        """
        return SAMPLED_FUEL * self._num_sampled + self._num_forced + self._num_idle

    @property
    def suspended(self) -> bool:
        """All members are suspended, and no guest is late. So no member can wake a member."""
        return all(seq.guest.suspended and not seq.guest.late for seq in self.members if seq.ending is None)

    def join(self, seq: "Sequence") -> int:
        """Add a sequence; return the number of the fork."""
        self.members.append(seq)
        self.num_forks += 1
        return self.num_forks - 1

    def leave(self, seq: "Sequence", end: FinishEvent) -> None:
        """A sequence has ended with `end`."""
        self.members.remove(seq)
        if seq.fork == 0:
            self._root_end = end

    def request_end(self, total_s: float) -> FinishEvent:
        """Return the terminal event of the request: the root's end, with the usage of all forks. No member is left."""
        assert self._root_end is not None
        root = self._root_end
        usage = replace(root.usage, sampled_tokens=self._num_sampled, ff_tokens=self._num_forced)
        return replace(root, usage=usage, timings=replace(root.timings, total_s=total_s))

    def count(self, origin: Origin) -> None:
        """A token was appended to one of the sequences."""
        if origin is Origin.SAMPLED:
            self._num_sampled += 1
        else:
            self._num_forced += 1

    def count_idle_step(self) -> None:
        """The guest of a sequence used a step and changed nothing."""
        self._num_idle += 1

    def count_round(self) -> int:
        """A round has asked the guests. Return how many rounds in a row all members were suspended."""
        self._rounds_suspended = self._rounds_suspended + 1 if self.suspended else 0
        return self._rounds_suspended

    def end(self, reason: FinishReason, error: AiciError | None = None) -> None:
        """Ask for the end of all members."""
        for seq in self.members:
            seq.end(reason, error)
