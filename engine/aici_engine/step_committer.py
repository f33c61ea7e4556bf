"""The third part of a step: pool states, score prompts, sample, append tokens, and end sequences."""

import time
from collections.abc import Container, Mapping
from functools import partial
from typing import Any

import numpy as np

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.candidate import Candidate
from aici_engine.control.session import GuestAnswer, GuestSession
from aici_engine.draft_walk import DraftWalks
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason, TokenScore
from aici_engine.flight import FlightResult
from aici_engine.live_sequences import LiveSequences
from aici_engine.profile import Profile
from aici_engine.run_ahead import RunAhead
from aici_engine.sample.sampler import RowToSample, Sampler
from aici_engine.sequence_queue import SequenceQueue
from aici_engine.sequences.sequence import Sequence


class StepCommitter:
    """Commits steps, in the order in which they were planned.

    `eos_tokens`: the tokens that end plain generation. `eos_for_guests`: guests are told of this EOS if any EOS was
    sampled. `kept_eos`: the model's substitute for an EOS if a controller goes on; `None` keeps the EOS. `max_fuel`: a
    request with a higher cost ends with `OUT_OF_FUEL`. `walks`: carries out drafts; None if no step has any.
    `run_ahead`: begins the next pass before the tokens are known; None where the processor computes. `asks_early`: see
    `GuestSession.ask_early`; for one step in flight at a time.
    `tokens_generated`: output tokens of all requests so far.
    """

    def __init__(
        self,
        *,
        queue: SequenceQueue,
        session: GuestSession,
        sampler: Sampler[Any],
        output: EventOutput,
        live: LiveSequences,
        profile: Profile,
        eos_tokens: frozenset[TokenId],
        eos_for_guests: TokenId,
        kept_eos: TokenId | None,
        max_fuel: int,
        walks: DraftWalks | None = None,
        run_ahead: RunAhead | None = None,
        asks_early: bool = False,
    ) -> None:
        self._queue = queue
        self._session = session
        self._sampler = sampler
        self._output = output
        self._live = live
        self._profile = profile
        self._eos_tokens = eos_tokens
        self._eos_for_guests = eos_for_guests
        self._kept_eos = kept_eos
        self._max_fuel = max_fuel
        self._walks = walks
        self._run_ahead = run_ahead
        self._asks_early = asks_early
        self._sampled_at = 0.0
        self.tokens_generated = 0

    def commit(self, result: FlightResult) -> None:
        """Append to the sequences of the flight and their new forks. An error ends its own sequence only."""
        walks = self._walks if result.plan.drafts else None
        if walks is not None:
            walks.begin(result)
        self._pool(result)
        candidates = self._candidates(result)
        self._profile.lap("commit")
        tokens = self._sample(result, candidates)
        self._profile.lap("sample")
        self._tell_all(candidates, tokens)
        is_asked = self._ask_early(result, is_appended=False)
        self._append_all(candidates, tokens)
        if walks is not None:
            is_asked = self._walk(walks, result, tokens, is_asked)
        self._live.finish_ended()
        self._profile.lap("commit")
        if not is_asked:
            self._ask_early(result, is_appended=True)

    def _ask_early(self, result: FlightResult, *, is_appended: bool) -> bool:
        """Let guests begin with the masks of the next step, which most likely samples the same sequences. Return
        whether they were asked.

        If the row of a drafted token is sampled next, the mask is for that row. So the guests of a step with several
        sequences wait until the drafts are walked.
        """
        if not self._asks_early or (result.plan.drafts and not is_appended and len(result.plan.chunks) > 1):
            return False
        calm = self._session.early_turn(is_appended=is_appended, max_fuel=self._max_fuel)
        if not calm:
            return False
        self._live.talk(lambda calm: self._session.ask_early(calm, self._queue.running, result.forward_s), calm)
        self._profile.lap("ask")
        return True

    def _walk(self, walks: DraftWalks, result: FlightResult, tokens: Container[SeqId], is_asked: bool) -> bool:
        """Sample the rows of drafted tokens, as far as the drafts are right. Return whether guests were asked early
        after the last row; `is_asked`: after the first."""
        while candidates := walks.go_on(tokens):
            tokens = self._choose(result, candidates)
            self._profile.lap("sample")
            self._tell_all(candidates, tokens)
            is_asked = self._ask_early(result, is_appended=False)
            self._append_all(candidates, tokens)
        walks.end()
        return is_asked

    def _pool(self, result: FlightResult) -> None:
        """Pool the final states of prompts, and end the requests whose prompts are complete."""
        for chunk, states in zip(result.plan.chunks, result.states, strict=False):
            if chunk.seq.pooling is not None and chunk.seq.ending is None:
                chunk.seq.pooling.add(states)
                if chunk.samples:
                    self._output.embedded(chunk.seq)
                    chunk.seq.end(FinishReason.LENGTH)

    def _candidates(self, result: FlightResult) -> list[Candidate]:
        """Give new forks the pages of their parents, score prompts, and return the sequences ready for a token."""
        candidates = []
        for chunk, rows in zip(result.plan.chunks, result.rows, strict=False):
            family = result.family(chunk.seq) if result.new_forks else [chunk.seq]
            for fork in family[1:]:
                if fork.ending is None:
                    self._queue.fork(chunk.seq, fork)
            for seq in family:
                if seq.ending is None and rows:
                    if seq.sampler.prompt_scores is not None:
                        self._score(seq, rows)
                    if chunk.samples:
                        answer = result.answers.get(seq.seq_id)
                        bits = None if answer is None else answer.bits
                        last = len(rows) - 1 - len(result.plan.drafts.get(chunk.seq.seq_id, ()))
                        row = RowToSample(seq, rows[last], bits, shared=seq is not family[-1])
                        candidates.append(Candidate(seq, row, answer))
        return candidates

    def _sample(self, result: FlightResult, candidates: list[Candidate]) -> dict[SeqId, TokenScore | AiciError]:
        """Sample the candidates in need of a token, and record the time of the step."""
        ahead = None if result.new_forks else self._run_ahead
        tokens = self._choose(result, candidates, ahead)
        if result.rows:
            now = time.monotonic()
            # Flights overlap: a flight's own time begins when the flight before has ended.
            took_s = now - max(result.began_at, self._sampled_at) - result.waited_s
            self._queue.record_time(result.plan, took_s)
            self._sampled_at = now
        return tokens

    def _choose(
        self, result: FlightResult, candidates: list[Candidate], ahead: RunAhead | None = None
    ) -> dict[SeqId, TokenScore | AiciError]:
        """Return tokens and errors by sequence, for the candidates in need of a token."""
        needy = [candidate for candidate in candidates if candidate.wants_token()]
        wanted = [candidate.to_sample for candidate in needy]
        launched = () if ahead is None else (partial(ahead.begin, needy),)
        tokens = self._sampler.sample_batch(wanted, *launched)
        return {
            candidate.seq.seq_id: _with_times(token, candidate, result.forward_s)
            for token, candidate in zip(tokens, needy, strict=True)
        }

    def _score(self, seq: Sequence, rows: list[Any]) -> None:
        try:
            self._sampler.score(seq, rows)
        except AiciError as error:
            seq.end(FinishReason.FAIL, error)
        else:
            self._output.scored(seq)

    def _tell_all(self, candidates: list[Candidate], tokens: Mapping[SeqId, TokenScore | AiciError]) -> None:
        """Tell the guests of their sampled tokens, before these are appended."""
        for candidate in candidates:
            sampled = tokens.get(candidate.seq.seq_id)
            if candidate.seq.controller is not None and isinstance(sampled, TokenScore):
                self._tell(candidate, sampled.token_id)

    def _tell(self, candidate: Candidate, token: TokenId) -> None:
        if token not in self._eos_tokens:
            self._session.sampled(candidate.seq, token)
        else:
            bits = candidate.to_sample.bits
            is_choice = bits is None or int(np.bitwise_count(bits).sum()) > 1
            self._session.sampled(candidate.seq, self._eos_for_guests, is_choice=is_choice)

    def _append_all(self, candidates: list[Candidate], tokens: Mapping[SeqId, TokenScore | AiciError]) -> None:
        for candidate in candidates:
            if candidate.seq.ending is None:
                self._append(candidate, tokens.get(candidate.seq.seq_id))

    def _append(self, candidate: Candidate, sampled: TokenScore | AiciError | None) -> None:
        """Append the sampled token, or carry out the guest's splice."""
        seq = candidate.seq
        try:
            if isinstance(sampled, AiciError):
                raise sampled
            if sampled is None:
                self._append_nothing(seq, candidate.answer)
            else:
                self._append_sampled(seq, sampled)
        except AiciError as error:
            seq.end(FinishReason.FAIL, error)
            return
        if seq.controller is None and seq.room <= 0:
            seq.end(FinishReason.LENGTH)
        if seq.group.fuel > self._max_fuel:
            seq.group.end(FinishReason.OUT_OF_FUEL)

    def _append_nothing(self, seq: Sequence, answer: GuestAnswer | None) -> None:
        """Carry out the guest's splice, or end a sequence without room. No token was sampled."""
        before = seq.transcript.num_generated
        if answer is not None and answer.splice is not None and seq.room > 0:
            self._session.splice(seq, answer.splice)
        elif answer is not None or seq.controller is None:
            # The sequence has no room: a request may want only the scores of its prompt.
            seq.end(FinishReason.LENGTH)
        # Else a calm guest wanted more than to go on, and the session has carried out the wish.
        self.tokens_generated += seq.transcript.num_generated - before
        self._queue.settle(seq)

    def _append_sampled(self, seq: Sequence, score: TokenScore) -> None:
        self.tokens_generated += 1
        is_eos = score.token_id in self._eos_tokens
        is_stop = seq.controller is None and score.token_id in seq.sampling.stop_token_ids
        if is_stop or (is_eos and seq.controller is None):
            self._output.sampled_eos(seq, score)
            if is_stop or not seq.sampling.ignore_eos:
                seq.end(FinishReason.EOS)
        elif is_eos:
            # The controller decides on the meaning of EOS. If the controller goes on, the model must not see an EOS.
            self._output.sampled_eos(seq, score, kept_as=self._kept_eos)
        else:
            self._output.sampled(seq, score)


def _with_times(token: TokenScore | AiciError, candidate: Candidate, forward_s: float) -> TokenScore | AiciError:
    if isinstance(token, AiciError) or token.explanation is None:
        return token
    guest_s = None if candidate.answer is None else candidate.answer.took_s
    return token._replace(explanation=token.explanation._replace(forward_s=forward_s, guest_s=guest_s))
