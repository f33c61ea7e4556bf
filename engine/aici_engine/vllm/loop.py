"""The engine's thread on vLLM: a round with the guests, then a step of vLLM, with the guests' masks.

A prompt is computed while its guest starts: see `EarlyGuests`.
"""

import contextlib
import queue
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.control.session import GuestAnswer, GuestSession, NewFork
from aici_engine.engine_loop import FUEL_PER_CONTEXT, EngineLoop
from aici_engine.event_output import EventOutput
from aici_engine.events import TokenScore
from aici_engine.flight import FlightResult
from aici_engine.heartbeat import Heartbeat
from aici_engine.sample.sampler import RowToSample, Sampler
from aici_engine.step_committer import StepCommitter
from aici_engine.step_plan import PlannedChunk, StepPlan
from aici_engine.vllm.eos_words import EosWords
from aici_engine.vllm.gathering import Gathering
from aici_engine.vllm.row_engine import RowEngine, RowToken, Words
from aici_engine.vllm.row_queue import RowQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Sequence as Seq

    from aici_engine.arrays import Array
    from aici_engine.sequences.sequence import Sequence


PROBE_S: Final = 5.0
"""An engine without requests asks vLLM's processes so often whether they are alive."""


class VllmLoop(EngineLoop):
    """Owns the row engine.

    The EOS tokens: see `StepCommitter`. `is_early`: vLLM computes prompts while guests start. `probe_s`: see `PROBE_S`.
    """

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
        clock: "Callable[[], float]" = time.monotonic,
        is_early: bool,
        probe_s: float = PROBE_S,
    ) -> None:
        super().__init__(queue_=rows, session=session, output=output, heartbeat=heartbeat, clock=clock)
        self._engine = engine
        self._rows = rows
        self._words = EosWords(num_logits=engine.num_logits, eos_token=eos_for_guests, all_eos=eos_tokens)
        self._answers: dict[SeqId, GuestAnswer] = {}
        self._is_early = is_early
        self._asked_early: list[Sequence] = []
        """The sequences to sample in this step whose guests have not started yet."""
        self._forward_s = 0.0
        self._gathering = Gathering(clock)
        self._probe_s = probe_s if engine.is_elsewhere else None
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

    def _next_command(self) -> "Callable[[], None]":
        """Wait for a command. Meanwhile, look for dead and silent processes of vLLM: with requests, each step does."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._inbox.get(timeout=self._probe_s)
            self._heartbeat.compute(1)
            self._engine.check_health()
            self._heartbeat.computed()

    def _close(self) -> None:
        self._engine.close()

    def _is_busy(self) -> bool:
        return bool(self._early_sequences())

    def _early_sequences(self) -> "list[Sequence]":
        return self._early.sequences()[: self._rows.num_places]

    def _start_guest(self, seq: "Sequence") -> None:
        if self._is_early:
            self._early.add(seq)
        super()._start_guest(seq)

    def _step(self) -> None:
        lap = self.profile.lap
        self._live.finish_ended()
        self._rows.admit()
        lap("admit")
        if self._gathers():
            return
        slowed = self._session.slowed(self._rows.running)
        self._live.talk(lambda running: self._session.round(running, slowed), self._rows.running)
        self._live.finish_ended()
        lap("round")
        self._output.flush()
        self._fork()
        lap("ask")
        seqs = [seq for seq in self._rows.running if not seq.suspended and seq.ending is None]
        seqs = [seq for seq in seqs if seq.group not in slowed]
        early = self._early_sequences()
        self._rows.submit([*seqs, *early])
        lap("batch")
        if not seqs and not early:
            self._wait_longer()
            return
        self._wait_s = 0.0
        began = time.monotonic()
        self._heartbeat.compute(len(seqs) + len(early))
        tokens = self._engine.step(self._ask, self._masks)
        self._heartbeat.computed()
        self._forward_s = time.monotonic() - began
        lap("forward")
        self._commit(tokens, began)

    def _gathers(self) -> bool:
        """Return whether the step waits for guests that start. The thread then waits for commands."""
        num_starting = self.num_alive - len(self._rows.running) - len(self._rows.waiting) - len(self._early_sequences())
        is_idle = bool(self._rows.running) and not self._rows.num_rows
        wait_s = self._gathering.remaining_s(
            is_useful=is_idle and num_starting > 0 and self._live.runtime_error is None, step_s=self._forward_s
        )
        if wait_s > 0.0:
            self._wait_s = wait_s
        return wait_s > 0.0

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
        every = [self._rows.sequence(key) for key in keys]
        self._asked_early = self._early.those_of(every)
        seqs = [seq for seq in every if seq.guest.bound and seq.ending is None]
        self._live.talk(lambda seqs: _no_forks(self._session.ask(seqs, self._forward_s)), seqs)

    def _masks(self) -> Mapping[str, Words]:
        """Called by vLLM after the forward pass has begun: wait for the masks."""
        self._answers = {}
        self._live.talk(lambda _: self._answers.update(self._session.answers()), None)
        if self._asked_early:
            self._answers = {seq_id: answer.copy() for seq_id, answer in self._answers.items()}
            self._join()
        return {
            self._rows.key(seq): self._words.of(answer.bits)
            for seq in self._rows.running
            if (answer := self._answers.get(seq.seq_id)) is not None and answer.splice is None
        }

    def _join(self) -> None:
        """Let guests join that have started since the step began."""
        is_alone = len(self._asked_early) == self._rows.num_rows
        self._answers |= self._early.join(self._asked_early, is_alone=is_alone, step_s=self._forward_s)

    def _admit(self) -> None:
        self._rows.admit()

    def _commit(self, tokens: list[RowToken], began: float) -> None:
        sampled = {seq.seq_id: (seq, token) for token in tokens if (seq := self._rows.take(token)) is not None}
        for seq, _ in list(sampled.values()):
            if seq.controller is not None and not seq.guest.bound:
                del sampled[seq.seq_id]
                self._early.miss(seq)
                self._rows.end_row(seq)
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

    def sample_batch(
        self,
        wanted: "Seq[RowToSample[TokenScore]]",
        launched: object = None,  # noqa: ARG002 vLLM has sampled
    ) -> list[TokenScore | AiciError]:
        return [_with_top(each.row, each.seq.sampling.logprobs) for each in wanted]


def _with_top(score: TokenScore, num_logprobs: int | None) -> TokenScore:
    """Return a score with as many of the likeliest tokens as were asked for."""
    if num_logprobs is None:
        return TokenScore(score.token_id)
    return score._replace(top_logprobs=score.top_logprobs[:num_logprobs])


def _no_forks(forks: list[NewFork]) -> None:
    """Forks were made before the step."""
    assert not forks
