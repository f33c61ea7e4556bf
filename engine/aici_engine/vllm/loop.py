"""The engine's thread on vLLM: a round with the guests, then a step of vLLM, with the guests' masks."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.control.session import GuestAnswer, GuestSession, NewFork
from aici_engine.engine_loop import FUEL_PER_CONTEXT, EngineLoop
from aici_engine.event_output import EventOutput
from aici_engine.events import TokenScore
from aici_engine.flight import FlightResult
from aici_engine.heartbeat import Heartbeat
from aici_engine.sample.sampler import RowToSample, Sampler
from aici_engine.scheduler import PlannedChunk, StepPlan
from aici_engine.step_committer import StepCommitter
from aici_engine.vllm.eos_words import EosWords
from aici_engine.vllm.row_engine import RowEngine, RowToken, Words
from aici_engine.vllm.row_queue import RowQueue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Seq

    from aici_engine.arrays import Array
    from aici_engine.sequences.sequence import Sequence


class VllmLoop(EngineLoop):
    """Owns the row engine. The EOS tokens: see `StepCommitter`."""

    def __init__(
        self,
        engine: RowEngine,
        *,
        rows: RowQueue,
        session: GuestSession,
        output: EventOutput,
        eos_tokens: frozenset[TokenId],
        eos_for_guests: TokenId,
        kept_eos: TokenId | None,
        heartbeat: Heartbeat,
    ) -> None:
        super().__init__(queue_=rows, session=session, output=output, heartbeat=heartbeat)
        self._engine = engine
        self._rows = rows
        self._words = EosWords(num_logits=engine.num_logits, eos_token=eos_for_guests, all_eos=eos_tokens)
        self._answers: dict[SeqId, GuestAnswer] = {}
        self._forward_s = 0.0
        self._committer = StepCommitter(
            queue=rows,
            session=session,
            sampler=_VllmSampler(),
            output=output,
            live=self._live,
            profile=self.profile,
            eos_tokens=eos_tokens,
            eos_for_guests=eos_for_guests,
            kept_eos=kept_eos,
            max_fuel=FUEL_PER_CONTEXT * engine.context,
        )

    @property
    def tokens_generated(self) -> int:
        return self._committer.tokens_generated

    def _drop_steps(self) -> None:
        """Nothing: a step has ended when the next one begins."""

    def _close(self) -> None:
        self._engine.close()

    def _step(self) -> None:
        lap = self.profile.lap
        self._live.finish_ended()
        self._rows.admit()
        lap("admit")
        slowed = self._session.slowed()
        self._live.talk(lambda running: self._session.round(running, slowed), self._rows.running)
        self._live.finish_ended()
        lap("round")
        self._output.flush()
        self._fork()
        lap("ask")
        seqs = [seq for seq in self._rows.running if not seq.suspended and seq.ending is None]
        seqs = [seq for seq in seqs if seq.group not in slowed]
        self._rows.submit(seqs)
        lap("batch")
        if not seqs:
            self._wait_longer()
            return
        self._wait_s = 0.0
        began = time.monotonic()
        self._heartbeat.compute(len(seqs))
        tokens = self._engine.step(self._ask, self._masks)
        self._heartbeat.computed()
        self._forward_s = time.monotonic() - began
        lap("forward")
        self._commit(tokens, began)

    def _fork(self) -> None:
        """Let guests fork that want to. A sequence and its new forks have their masks, and wait for their rows.

        The message goes to calm guests too, which may want to fork then: hence the loop.
        """
        while seqs := [seq for seq in self._rows.running if seq.guest.num_branches > 1 and seq.ending is None]:
            for fork in self._new_forks(seqs):
                self._live.add(fork.child)
                self._output.forked(fork.child, fork.parent, fork.begin)
                self._rows.fork(fork.parent, fork.child)
            self._live.talk(self._keep_answers, None)

    def _new_forks(self, seqs: "list[Sequence]") -> list[NewFork]:
        found: list[NewFork] = []
        self._live.talk(lambda seqs: found.extend(self._session.ask(seqs)), seqs)
        return found

    def _keep_answers(self, _: None) -> None:
        answers = self._session.answers()
        self._session.keep({seq_id: answer.copy() for seq_id, answer in answers.items()})

    def _ask(self, keys: list[str]) -> None:
        """Called by vLLM before the forward pass: let guests compute their masks."""
        seqs = [seq for seq in map(self._rows.sequence, keys) if seq.controller is not None and seq.ending is None]
        self._live.talk(lambda seqs: _no_forks(self._session.ask(seqs, self._forward_s)), seqs)

    def _masks(self) -> Mapping[str, Words]:
        """Called by vLLM after the forward pass has begun: wait for the masks."""
        self._answers = {}
        self._live.talk(lambda _: self._answers.update(self._session.answers()), None)
        return {
            self._rows.key(seq): self._words.of(answer.bits)
            for seq in self._rows.running
            if (answer := self._answers.get(seq.seq_id)) is not None and answer.splice is None
        }

    def _commit(self, tokens: list[RowToken], began: float) -> None:
        sampled = {seq.seq_id: (seq, token) for token in tokens if (seq := self._rows.take(token)) is not None}
        answers, self._answers = self._answers, {}
        # vLLM may put off a row that it wanted to compute: the guest's answer waits.
        self._session.keep({seq_id: answer.copy() for seq_id, answer in answers.items() if seq_id not in sampled})
        self._committer.commit(
            FlightResult(
                plan=StepPlan([PlannedChunk(seq, 1, samples=True) for seq, _ in sampled.values()]),
                rows=[[token.score] for _, token in sampled.values()],
                spoiled=False,
                answers=answers,
                new_forks=[],
                began_at=began,
                forward_s=self._forward_s,
                waited_s=0.0,
            )
        )


class _VllmSampler(Sampler[TokenScore]):
    """The null sampler: vLLM has sampled, and a row is the token."""

    def rows(self, logits: "Array") -> "Iterable[TokenScore]":  # noqa: ARG002
        return ()

    def score(self, seq: "Sequence", rows: "Seq[TokenScore]") -> None:
        """Nothing: requests for scores are refused."""

    def sample_batch(self, wanted: "Seq[RowToSample[TokenScore]]") -> list[TokenScore | AiciError]:
        return [_with_top(each.row, each.seq.sampling.logprobs) for each in wanted]


def _with_top(score: TokenScore, num_logprobs: int | None) -> TokenScore:
    """Return a score with as many of the likeliest tokens as were asked for."""
    if num_logprobs is None:
        return TokenScore(score.token_id)
    return score._replace(top_logprobs=score.top_logprobs[:num_logprobs])


def _no_forks(forks: list[NewFork]) -> None:
    """Forks were made before the step."""
    assert not forks
