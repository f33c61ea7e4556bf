"""The second part of a step: the forward pass, while guests compute their masks."""

import itertools
import logging
import time
from dataclasses import dataclass
from typing import Any

from aici_base.errors import AiciError
from aici_base.ids import SeqId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.storage import KVStorage
from aici_engine.control.session import GuestAnswer, GuestSession, NewFork
from aici_engine.event_output import EventOutput
from aici_engine.events import FinishReason
from aici_engine.live_sequences import LiveSequences
from aici_engine.model.interface import Model
from aici_engine.profile import Profile
from aici_engine.sample.logprobs import num_rows
from aici_engine.sample.sampler import Sampler
from aici_engine.scheduler import Scheduler, StepPlan
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_input import Chunk

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step's forward pass and guests, before sampling.

    `rows[i]`: the rows of logits for chunk i of the plan, in the sampler's form; a GPU may still compute the numbers.
    `rows` is empty if the forward pass failed; then all sequences of the plan are marked to end. `answers`: see
    `GuestSession.answers`. `forward_s`: seconds of the forward pass on the engine's thread.
    """

    rows: list[list[Any]]
    answers: dict[SeqId, GuestAnswer]
    new_forks: list[NewFork]
    forward_s: float

    def family(self, seq: Sequence) -> list[Sequence]:
        """Return the sequence and its forks of this step. The family shares a row of logits."""
        return [seq, *(fork.child for fork in self.new_forks if fork.parent is seq)]


class StepExecutor:
    """Executes plans, one at a time."""

    def __init__(
        self,
        *,
        model: Model,
        storage: KVStorage,
        cache: KVCache,
        scheduler: Scheduler,
        session: GuestSession,
        sampler: Sampler[Any],
        output: EventOutput,
        live: LiveSequences,
        profile: Profile,
    ) -> None:
        self._model = model
        self._storage = storage
        self._cache = cache
        self._scheduler = scheduler
        self._session = session
        self._sampler = sampler
        self._output = output
        self._live = live
        self._profile = profile

    def execute(self, plan: StepPlan) -> StepResult:
        """Ask the guests, run the forward pass, then read the guests' answers."""
        new_forks = self._ask_guests(plan)
        self._profile.lap("ask")
        began = time.monotonic()
        rows = self._try_forward(plan, new_forks)
        forward_s = time.monotonic() - began
        answers = self._read_answers()
        self._profile.lap("answers")
        return StepResult(rows, answers, new_forks, forward_s)

    def _ask_guests(self, plan: StepPlan) -> list[NewFork]:
        """Let guests begin to compute their masks. Return the new forks."""
        asked = [chunk.seq for chunk in plan.chunks if chunk.samples and chunk.seq.controller is not None]
        new_forks: list[NewFork] = []
        self._live.talk(lambda seqs: new_forks.extend(self._session.ask(seqs)), asked)
        for fork in new_forks:
            self._live.add(fork.child)
            self._output.forked(fork.child, fork.parent, fork.begin)
        return new_forks

    def _try_forward(self, plan: StepPlan, new_forks: list[NewFork]) -> list[list[Any]]:
        try:
            return self._forward(plan)
        except Exception as error:  # noqa: BLE001 the engine loop's: a failure costs the requests of this step
            _log.exception("a forward pass failed")
            for seq in [*(chunk.seq for chunk in plan.chunks), *(fork.child for fork in new_forks)]:
                seq.end(FinishReason.FAIL, AiciError(f"the model failed: {error}"))
            return []

    def _forward(self, plan: StepPlan) -> list[list[Any]]:
        chunks = self._batch(plan)
        self._profile.lap("batch")
        rows = iter(self._sampler.rows(self._model.forward(self._storage, chunks)))
        self._profile.lap("forward")
        self._scheduler.advance(plan)
        self._profile.lap("commit")
        return [list(itertools.islice(rows, chunk.num_logits)) for chunk in chunks]

    def _batch(self, plan: StepPlan) -> list[Chunk]:
        """Return the plan in the model's form: tokens, positions and pages."""
        chunks = []
        for seq, num_tokens, samples in plan.chunks:
            start = seq.progress.num_computed
            end = start + num_tokens
            pages = self._cache.page_table(seq.seq_id)
            num_logits = max(int(samples), num_rows(seq, end))
            chunks.append(Chunk(seq.seq_id, seq.transcript.tokens[start:end], start, pages, num_logits))
        return chunks

    def _read_answers(self) -> dict[SeqId, GuestAnswer]:
        answers: dict[SeqId, GuestAnswer] = {}
        self._live.talk(lambda _: answers.update(self._session.answers()), None)
        return answers
