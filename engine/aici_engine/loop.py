"""Do what the scheduler decided, step after step, on the engine's own thread.

Everything that happens to a sequence happens here; other threads only put commands into the inbox. A sequence that must
end gets a verdict from whoever noticed, and `_bury` ends it: no pages, no guest, and with the last of a request's
sequences its one finish event.
"""

import contextlib
import itertools
import logging
import queue
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from aici_base.errors import AiciError, RuntimeDiedError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.storage import KVStorage
from aici_engine.cache.view import KVCacheView
from aici_engine.control.runtime import ControllerRuntime
from aici_engine.control.session import GuestAnswer, GuestSession, NewFork
from aici_engine.events import FinishReason, TokenScore
from aici_engine.model.batch import Chunk
from aici_engine.model.interface import Model
from aici_engine.output import Output
from aici_engine.profile import Profile
from aici_engine.sample.logprobs import num_rows
from aici_engine.sample.sampler import RowToSample, Sampler
from aici_engine.scheduler import Scheduler, StepPlan
from aici_engine.sequence import Phase, Sequence

_T = TypeVar("_T")

FUEL_PER_CONTEXT = 10
"""A request that costs more contexts than this is out of fuel: a controller that backtracks for ever must end."""

_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05

_log = logging.getLogger(__name__)


class Loop:
    """`eos_for_guests`: the EOS that guests know, whichever was sampled. `kept_eos`: what the model sees instead."""

    def __init__(
        self,
        *,
        model: Model,
        storage: KVStorage,
        cache: KVCache,
        scheduler: Scheduler,
        session: GuestSession,
        sampler: Sampler[Any],
        output: Output,
        eos_tokens: frozenset[TokenId],
        eos_for_guests: TokenId,
        kept_eos: TokenId | None,
    ) -> None:
        self._model = model
        self._storage = storage
        self._cache = cache
        self._scheduler = scheduler
        self._session = session
        self._sampler = sampler
        self._output = output
        self._eos_tokens = eos_tokens
        self._eos_for_guests = eos_for_guests
        self._kept_eos = kept_eos
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._alive: dict[SeqId, Sequence] = {}
        self._runtime_error: RuntimeDiedError | None = None
        self._stopping = False
        self._wait_s = 0.0
        self.profile = Profile()
        self.tokens_generated = 0
        self.fatal: AiciError | None = None

    # From any thread.

    @property
    def num_alive(self) -> int:
        return len(self._alive)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_preemptions(self) -> int:
        return self._scheduler.num_preemptions

    @property
    def num_reused(self) -> int:
        return self._scheduler.num_reused

    def submit(self, seq: Sequence) -> None:
        self._inbox.put(lambda: self._begin(seq))

    def abort(self, request_id: SeqId) -> None:
        """The request whose root has this id, with all its forks."""
        self._inbox.put(lambda: self._abort(request_id))

    def use_runtime(self, runtime: ControllerRuntime) -> None:
        """Controlled requests of before fail with RuntimeDiedError, later ones are the new runtime's."""
        self._inbox.put(lambda: self._change_runtime(runtime))

    def stop(self) -> None:
        """End every request with `abort`, then `run` returns."""
        self._inbox.put(self._stop)

    # On the engine's thread.

    def run(self) -> None:
        """Until `stop`. An error that is not one sequence's own ends them all, and every later one as it comes."""
        try:
            while not self._stopping:
                self._read_inbox()
                self._step()
                self._output.flush()
                self.profile.lap("output")
                self.profile.end()
        except Exception as error:  # noqa: BLE001 one of the four places where failures are caught
            _log.exception("the engine loop failed")
            self.fatal = AiciError(f"the engine failed: {error!r}")
            # Whatever was being said to the runtime was cut off: nothing more can be.
            self._session.lost()
        while self.fatal is not None and not self._stopping:
            self._end_all(FinishReason.FAIL)
            self._inbox.get()()
        self._end_all(FinishReason.ABORT)
        self._guests(self._session.round, [])

    def _end_all(self, reason: FinishReason) -> None:
        for seq in self._alive.values():
            seq.end(reason, self.fatal if reason is FinishReason.FAIL else None)
        self._bury()
        self._output.flush()

    def _read_inbox(self) -> None:
        """Blocks while there is nothing to compute: for ever, or a growing while if guests are all suspended."""
        if not self._scheduler.running and not self._scheduler.waiting:
            self._wait_s = 0.0
            # Guests whose sequences have ended do not wait for the next request to be told.
            self._guests(self._session.round, [])
            self._bury()
            self._output.flush()
            if self._inbox.empty():
                self._inbox.get()()
        elif self._wait_s > 0.0:
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=self._wait_s)()
        self.profile.begin()
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        lap = self.profile.lap
        self._bury()
        lap("inbox")
        self._scheduler.admit()
        for seq in self._scheduler.running:
            if seq.started_at is None:
                seq.started_at = time.monotonic()
        lap("admit")
        self._guests(self._session.round, self._scheduler.running)
        self._bury()
        lap("round")
        # What guests forced or ended need not wait for the forward pass.
        self._output.flush()
        lap("output")
        decision = self._scheduler.decide()
        lap("decide")
        if not decision.work:
            self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s or _FIRST_WAIT_S)
            return
        self._wait_s = 0.0
        asked = [work.seq for work in decision.work if work.samples and work.seq.controller is not None]
        new_forks: list[NewFork] = []
        self._guests(lambda seqs: new_forks.extend(self._session.ask(seqs)), asked)
        for new_fork in new_forks:
            self._alive[new_fork.child.seq_id] = new_fork.child
            self._output.forked(new_fork.child, new_fork.parent, new_fork.begin)
        lap("ask")
        logits: list[list[Any]] = []
        began = time.monotonic()
        try:
            logits = self._forward(decision)
        except Exception as error:  # noqa: BLE001 the engine loop's: it costs the requests of this batch
            _log.exception("a forward pass failed")
            for seq in [*(work.seq for work in decision.work), *(new_fork.child for new_fork in new_forks)]:
                seq.end(FinishReason.FAIL, AiciError(f"the model failed: {error}"))
        time_s = time.monotonic() - began
        answers: dict[SeqId, GuestAnswer] = {}
        self._guests(lambda _: answers.update(self._session.answers()), None)
        lap("answers")
        turns = []
        for work, rows in zip(decision.work, logits, strict=False):
            family = self._family(work.seq, new_forks) if new_forks else [work.seq]
            for seq in family:
                if seq.verdict is None and rows:
                    if seq.score_from is not None:
                        self._score(seq, rows)
                    answer = answers.get(seq.seq_id)
                    bits = None if answer is None else answer.bits
                    if work.samples:
                        turns.append((RowToSample(seq, rows[-1], bits, shared=seq is not family[-1]), answer))
        lap("commit")
        began = time.monotonic()
        wanted = [
            each
            for each, answer in turns
            if each.seq.room > 0 and (each.seq.controller is None if answer is None else answer.splice is None)
        ]
        tokens = self._sampler.sample_batch(wanted)
        sampled = {each.seq.seq_id: token for each, token in zip(wanted, tokens, strict=True)}
        if logits:
            self._scheduler.took(decision, time_s + time.monotonic() - began)
        lap("sample")
        for each, answer in turns:
            if each.seq.verdict is None:
                self._commit(each.seq, answer, sampled.get(each.seq.seq_id))
        self._bury()
        lap("commit")

    def _family(self, seq: Sequence, new_forks: list[NewFork]) -> list[Sequence]:
        """It and its newest forks, which share all of its pages now: one forward pass was for all of them."""
        forks = [new_fork.child for new_fork in new_forks if new_fork.parent is seq]
        for fork in forks:
            self._scheduler.fork(seq, fork)
        return [seq, *forks]

    def _forward(self, decision: StepPlan) -> list[list[Any]]:
        """The rows that each one's chunk asked for, as the sampler has them. On a GPU they are still being computed."""
        chunks = []
        for item in decision.work:
            seq, start = item.seq, item.seq.num_computed
            end = start + item.num_tokens
            view = KVCacheView(self._storage, self._cache.page_table(seq.seq_id), end)
            num_logits = max(int(item.samples), num_rows(seq, end))
            chunks.append(Chunk(view, seq.tokens[start:end], start, num_logits))
        self.profile.lap("batch")
        rows = iter(self._sampler.rows(self._model.forward(self._storage, chunks)))
        self.profile.lap("forward")
        for item in decision.work:
            item.seq.num_computed += item.num_tokens
            self._cache.advance(item.seq.seq_id, item.seq.tokens, item.seq.num_computed)
        self.profile.lap("commit")
        return [list(itertools.islice(rows, chunk.num_logits)) for chunk in chunks]

    def _score(self, seq: Sequence, rows: list[Any]) -> None:
        try:
            self._sampler.score(seq, rows)
        except AiciError as error:
            seq.end(FinishReason.FAIL, error)
        else:
            self._output.scored(seq)

    def _commit(self, seq: Sequence, answer: GuestAnswer | None, sampled: TokenScore | AiciError | None) -> None:
        """One step's gain of one sequence. What goes wrong here is its own affair."""
        before = seq.num_sampled + seq.num_forced
        num_computed = seq.num_computed
        try:
            if isinstance(sampled, AiciError):
                raise sampled
            if sampled is not None:
                self._take(seq, sampled, None if answer is None else answer.bits)
            elif answer is not None and answer.splice is not None and seq.room > 0:
                self._session.splice(seq, answer.splice)
            elif answer is not None or seq.controller is None:
                # Only the scores were wanted. Else its guest wanted something else in this step.
                seq.end(FinishReason.LENGTH)
        except AiciError as error:
            seq.end(FinishReason.FAIL, error)
            return
        self.tokens_generated += seq.num_sampled + seq.num_forced - before
        if seq.num_pending == 0:
            # No tokens were appended, or some removed: the last one is computed again, for its logits.
            seq.num_computed -= 1
        if seq.num_computed < num_computed:
            self._scheduler.truncated(seq)
        if seq.controller is None and seq.room <= 0:
            seq.end(FinishReason.LENGTH)
        if seq.group.fuel > FUEL_PER_CONTEXT * self._model.context:
            seq.group.end(FinishReason.OUT_OF_FUEL)

    def _take(self, seq: Sequence, score: TokenScore, bits: npt.NDArray[np.uint8] | None) -> None:
        is_eos = score.token_id in self._eos_tokens
        # Where nothing else may come, it is the controller that ends the text, not the model.
        seq.last_was_eos = is_eos and (bits is None or int(np.bitwise_count(bits).sum()) > 1)
        if seq.controller is None:
            if is_eos:
                self._output.sampled_eos(seq, score)
                if not seq.sampling.ignore_eos:
                    seq.end(FinishReason.EOS)
            else:
                self._output.sampled(seq, score)
        elif is_eos:
            # The controller decides what EOS means; if it goes on, the model had better not see it.
            self._output.sampled_eos(seq, score, kept_as=self._kept_eos)
            self._session.sampled(seq, self._eos_for_guests)
        else:
            self._output.sampled(seq, score)
            self._session.sampled(seq, score.token_id)

    # Commands.

    def _begin(self, seq: Sequence) -> None:
        self._alive[seq.seq_id] = seq
        if seq.room <= 0 and seq.score_from is None:
            seq.end(FinishReason.LENGTH)
        elif seq.controller is None:
            self._accept(seq)
        elif self._runtime_error is not None:
            seq.end(FinishReason.FAIL, self._runtime_error)
        else:
            self._session.start(seq, lambda error: self._started(seq, error))

    def _started(self, seq: Sequence, error: BaseException | None) -> None:
        """On the thread of the runtime's client."""
        self._inbox.put(lambda: self._ready(seq, error))

    def _ready(self, seq: Sequence, error: BaseException | None) -> None:
        if seq.phase is Phase.ENDED:
            if error is None:
                self._guests(self._session.drop, seq)
            return
        if error is None:
            self._accept(seq)
        else:
            seq.end(FinishReason.FAIL, error if isinstance(error, AiciError) else AiciError(f"instantiate: {error!r}"))

    def _accept(self, seq: Sequence) -> None:
        self._output.accepted(seq)
        self._scheduler.add(seq)

    def _abort(self, request_id: SeqId) -> None:
        for seq in self._alive.values():
            if seq.group.request_id == request_id:
                seq.end(FinishReason.ABORT)

    def _change_runtime(self, runtime: ControllerRuntime) -> None:
        if self._runtime_error is None:
            self._lose_runtime(RuntimeDiedError("the controller runtime was replaced"))
        self._bury()
        self._session.use(runtime)
        self._runtime_error = None

    def _lose_runtime(self, error: RuntimeDiedError) -> None:
        self._runtime_error = error
        self._session.lost()
        self._fail_controlled(error)

    def _fail_controlled(self, error: AiciError) -> None:
        for seq in self._alive.values():
            if seq.controller is not None:
                seq.end(FinishReason.FAIL, error)

    def _stop(self) -> None:
        self._stopping = True

    def _guests(self, talk: Callable[[_T], None], argument: _T) -> None:
        """Whatever is said to the runtime is said here. If it is dead, or refuses a whole message, every controlled
        sequence has its verdict afterwards; the others have no part in it."""
        if self._runtime_error is not None:
            return
        try:
            talk(argument)
        except RuntimeDiedError as error:
            self._lose_runtime(error)
        except AiciError as error:
            self._fail_controlled(error)

    def _bury(self) -> None:
        """End all that have a verdict, forks before the sequences that they are forks of."""
        for seq in [seq for seq in reversed(self._alive.values()) if seq.verdict is not None]:
            assert seq.verdict is not None
            del self._alive[seq.seq_id]
            self._scheduler.remove(seq)
            try:
                self._guests(self._session.drop, seq)
            finally:
                # It is in nobody's books any more: who waits for it must be told, whatever happened.
                self._output.finish(seq, *seq.verdict)
