"""The walk along the drafts of a step: sample the rows of drafted tokens, one after the other.

Row 0 follows the last token of a sequence and is sampled as in a step without drafts. If the sampled token is the first
drafted token, row 1 holds the logits after the token, exactly as the next step would compute them. So row 1 is sampled
too, in the same way: the guest is told of the token, may stop, wait or force tokens, and gives a mask. The walk of a
sequence ends with the first sampled token that is not the drafted token; that token stays. Every token is drawn with
the next number of the sequence's own generator, so texts are the same with and without drafts.

Guests have the same calls in the same order as without drafts, as long as no step is full: a guest with forced tokens
that wait for room is asked `pre` once for each such step, with and without drafts. A guest that was asked and does more
than to go on was asked in the place of the next round (`GuestSession.hear`).
"""

import time
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from aici_base.ids import SeqId, TokenId
from aici_engine.candidate import Candidate
from aici_engine.control.session import GuestAnswer, GuestSession
from aici_engine.flight import FlightResult
from aici_engine.live_sequences import LiveSequences
from aici_engine.profile import Profile
from aici_engine.sample.sampler import RowToSample
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.sequence import Sequence

_HURRIED_S: Final = 0.001
"""Guests for whom others have waited too long get so many seconds for a mask."""


@dataclass(slots=True)
class _Walk:
    """`start`: the tokens of the sequence before the draft. `rows[i]`: the logits after `i` drafted tokens."""

    seq: Sequence
    draft: list[TokenId]
    rows: list[Any]
    start: int

    def num_right(self) -> int:
        """Return how many tokens at the beginning of the draft are tokens of the sequence."""
        tokens = self.seq.tokens[self.start : self.start + len(self.draft)]
        same = 0
        while same < len(tokens) and tokens[same] == self.draft[same]:
            same += 1
        return same

    def is_at_row(self) -> bool:
        """The tokens of the sequence end within the draft, so the logits after the last token are there."""
        return 0 < len(self.seq.tokens) - self.start == self.num_right()


class DraftWalks:
    """Used by the engine's thread alone, with no other step in flight.

    `num_drafted`, `num_accepted`: drafted tokens that were computed and that were right, since the engine started.
    """

    def __init__(self, *, scheduler: Scheduler, session: GuestSession, live: LiveSequences, profile: Profile) -> None:
        self._scheduler = scheduler
        self._session = session
        self._live = live
        self._profile = profile
        self._walks: dict[SeqId, _Walk] = {}
        self._began_at = 0.0
        self._num_rows = {False: 0, True: 0}
        """Sampled rows of drafted tokens in this step, by whether the sequence has a guest."""
        self.num_drafted = 0
        self.num_accepted = 0

    def begin(self, result: FlightResult) -> None:
        """The rows of the step are computed, and no token is appended yet."""
        self._walks = {}
        self._began_at = 0.0
        self._num_rows = {False: 0, True: 0}
        for chunk, rows in zip(result.plan.chunks, result.rows, strict=False):
            if draft := result.plan.drafts.get(chunk.seq.seq_id):
                self._walks[chunk.seq.seq_id] = _Walk(
                    chunk.seq, draft, rows[len(rows) - 1 - len(draft) :], start=len(chunk.seq.tokens)
                )

    def go_on(self, sampled: Container[SeqId]) -> list[Candidate]:
        """Return the candidates of the next rows; none at the end. `sampled`: the sequences that were sampled last."""
        self._began_at = self._began_at or time.monotonic()
        going = [walk for seq_id, walk in self._walks.items() if seq_id in sampled and self._goes_on(walk)]
        controlled = [walk for walk in going if walk.seq.controller is not None]
        ready = self._hold_round(controlled) if controlled else []
        # Below, a guest that was taken for calm may force tokens after the row.
        rows = [(walk, walk.num_right()) for walk in going if walk.seq.controller is None or walk in ready]
        answers = self._ask([walk.seq for walk in ready]) if ready else {}
        self._profile.lap("answers")
        candidates = []
        for walk, row in rows:
            seq = walk.seq
            if seq.ending is None:
                self._scheduler.accept(seq, walk.start + row)
                answer = answers.get(seq.seq_id)
                bits = None if answer is None else answer.bits
                candidates.append(Candidate(seq, RowToSample(seq, walk.rows[row], bits), answer))
                self._num_rows[seq.controller is not None] += 1
        self._profile.lap("commit")
        return candidates

    def end(self) -> None:
        """No row is left to sample: count drafted tokens that are right as computed, and give the rest back."""
        for walk in self._walks.values():
            seq, num_right = walk.seq, walk.num_right()
            self.num_drafted += len(walk.draft)
            self.num_accepted += num_right
            if seq.ending is None:
                # A guest may have forced right tokens and a wrong one. The last token is computed for its logits.
                num_computed = min(walk.start + num_right, len(seq.tokens) - 1)
                is_behind = walk.start <= seq.progress.num_computed < num_computed
                # A guest that took tokens back and forced them again has lost their pages.
                if is_behind and self._scheduler.has_pages(seq, num_computed):
                    self._scheduler.accept(seq, num_computed)
                self._scheduler.give_back(seq)
        self._walks = {}
        # Guests cost much more than sampling, so the whole time counts as theirs if there are any.
        with_guests = self._num_rows[True] > 0
        if num_rows := self._num_rows[with_guests]:
            self._scheduler.record_walk(num_rows, time.monotonic() - self._began_at, with_guests=with_guests)

    def _goes_on(self, walk: _Walk) -> bool:
        seq = walk.seq
        return seq.ending is None and walk.is_at_row() and not self._session.guest_time.is_slowed(seq.share)

    def _hold_round(self, walks: list[_Walk]) -> list[_Walk]:
        """Tell the guests of the accepted tokens, as the next step would. Return the walks of guests that go on."""
        walking = {walk.seq.group for walk in walks}
        others = {seq.group for seq in (*self._scheduler.running, *self._scheduler.waiting)} - walking
        self._live.talk(lambda running: self._session.round(running, others), self._scheduler.running)
        ready = []
        for walk in walks:
            seq = walk.seq
            if seq.ending is None and walk.is_at_row() and not seq.suspended and seq.guest.num_branches == 1:
                ready.append(walk)
            elif seq.ending is None:
                self._session.hear(seq)
        return ready

    def _ask(self, seqs: list[Sequence]) -> dict[SeqId, GuestAnswer]:
        """Return masks and splices. A guest that failed, or wants more than to go on, has no answer."""
        answers: dict[SeqId, GuestAnswer] = {}

        def ask(seqs: list[Sequence]) -> None:
            self._session.ask(seqs, _HURRIED_S)
            answers.update(self._session.answers())

        self._live.talk(ask, seqs)
        return answers
