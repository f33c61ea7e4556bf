"""Prompts that are computed while their guests start.

The mask of the first token is needed only after the prompt. A guest that has started before the step ends *joins* the
step: the guest is bound and gives its mask, and the step takes a token. The sequence of a later guest takes no token in
the step, and goes on once its guest has started.

Where the model computes in C, guests join while the pass computes, and nothing waits for them. Others join after the
pass.
"""

import threading
from collections.abc import Callable, Collection
from collections.abc import Sequence as Seq
from typing import Final

from aici_base.ids import SeqId
from aici_engine.control.session import GuestAnswer, GuestSession
from aici_engine.live_sequences import LiveSequences
from aici_engine.sequences.sequence import Sequence

LONGEST_S: Final = 0.03
"""No step waits longer for guests that start."""


class EarlyGuests:
    """Used by the engine's thread, except `tell`. `join_beside` runs on another thread while the engine's is in C.

    `accept` accepts sequences whose guests have started, and returns those that run. `clock`: seconds.
    """

    def __init__(
        self,
        session: GuestSession,
        live: LiveSequences,
        accept: Callable[[list[Sequence]], list[Sequence]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._live = live
        self._accept = accept
        self._clock = clock
        self._starting: dict[SeqId, Sequence] = {}
        self._joined: set[SeqId] = set()
        self._told: dict[SeqId, bool] = {}
        self._news = threading.Event()

    def add(self, seq: Sequence) -> None:
        """Note that the prompt of a sequence may be computed while its guest starts. `leave` must follow."""
        self._starting[seq.seq_id] = seq

    def tell(self, seq: Sequence, *, has_started: bool) -> None:
        """Note that a guest has started, or has failed to. Call on any thread, before `leave`."""
        self._told[seq.seq_id] = has_started
        self._news.set()

    def sequences(self) -> list[Sequence]:
        """Return the sequences whose prompts may be computed, oldest first."""
        return [seq for seq in self._starting.values() if seq.ending is None]

    def those_of(self, seqs: Collection[Sequence]) -> list[Sequence]:
        """Return those of `seqs` without a guest so far: it starts, or has to start anew on the next runtime."""
        return [seq for seq in seqs if seq.guest.starting or seq.seq_id in self._starting]

    def join_beside(
        self, seqs: Seq[Sequence], *, is_over: Callable[[], bool], until: float
    ) -> dict[SeqId, GuestAnswer]:
        """Bind guests as soon as they have started, until the forward pass `is_over`, and return their masks.

        `seqs`: see `join`; all of them run. `until`: when the pass is expected to end. `wake` must follow the end of
        the pass.
        """
        left, answers, may_start = list(seqs), dict[SeqId, GuestAnswer](), True
        while may_start:
            self._news.clear()
            if is_over():
                break
            started, may_start = self._poll(left)
            if started:
                left = [seq for seq in left if seq not in started]
                bound = self._bind(self._let_in(started), max(0.0, until - self._clock()))
                # The next message to the runtime overwrites the masks.
                answers |= {seq_id: answer.copy() for seq_id, answer in bound.items()}
            elif may_start:
                self._news.wait()
        return answers

    def wake(self) -> None:
        """The forward pass is over."""
        self._news.set()

    def join(self, seqs: Seq[Sequence], *, is_alone: bool, step_s: float) -> dict[SeqId, GuestAnswer]:
        """Bind the guests that have started since the step began, and return their masks (`GuestSession.bind`).

        `seqs`: the sequences whose prompts the step has computed, and whose guests start. `is_alone`: the step computes
        nothing else. It then waits for guests, at most as long as the step took (`step_s`): a late guest's token would
        take another step. A guest that wants more than to go on gives no mask, and its sequence takes no token.
        """
        until = self._clock() + (min(step_s, LONGEST_S) if is_alone else 0.0)
        left, fresh, may_start = list(seqs), [], True
        while may_start:
            self._news.clear()
            started, may_start = self._poll(left)
            if started:
                fresh += self._let_in(started)
            left = [seq for seq in left if seq not in started]
            wait_s = until - self._clock()
            if wait_s <= 0.0:
                break
            if may_start:
                self._news.wait(wait_s)
        return self._bind(fresh)

    def miss(self, seq: Sequence) -> None:
        """Note that the step has ended before the guest has started: the prompt is computed."""
        self._starting.pop(seq.seq_id, None)

    def leave(self, seq: Sequence) -> bool:
        """Forget a sequence whose guest has started or failed to. Return whether the sequence has joined a step."""
        self._starting.pop(seq.seq_id, None)
        self._told.pop(seq.seq_id, None)
        is_joined = seq.seq_id in self._joined
        self._joined.discard(seq.seq_id)
        return is_joined

    def _let_in(self, started: list[Sequence]) -> list[Sequence]:
        """Accept sequences, which then have joined the step. Return those that run."""
        for seq in started:
            del self._starting[seq.seq_id]
            self._joined.add(seq.seq_id)
        return self._accept(started)

    def _bind(self, fresh: list[Sequence], free_s: float = 0.0) -> dict[SeqId, GuestAnswer]:
        answers: dict[SeqId, GuestAnswer] = {}
        if fresh:
            self._live.talk(lambda fresh: answers.update(self._session.bind(fresh, free_s)), fresh)
        return answers

    def _poll(self, seqs: list[Sequence]) -> tuple[list[Sequence], bool]:
        """Return those of `seqs` whose guests have started, and whether the guests of others may still start."""
        told = [(seq, self._told.get(seq.seq_id)) for seq in seqs if seq.seq_id in self._starting]
        return [seq for seq, has_started in told if has_started], any(has_started is None for _, has_started in told)
