"""A sequence whose last token is computed: about to be sampled, or changed by its guest."""

from typing import Any, NamedTuple

from aici_engine.control.session import GuestAnswer
from aici_engine.sample.sampler import RowToSample
from aici_engine.sequences.sequence import Sequence


class Candidate(NamedTuple):
    """A sequence with its last token computed, and the guest's answer, if any."""

    seq: Sequence
    to_sample: RowToSample[Any]
    answer: GuestAnswer | None

    def wants_token(self) -> bool:
        """There is room for a token, and the guest, if any, gave a mask and no splice."""
        seq, _, answer = self
        return seq.room > 0 and (seq.controller is None if answer is None else answer.splice is None)
