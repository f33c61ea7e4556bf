"""Guess the next step while the GPU chooses tokens: see `ahead_executor`."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aici_engine.cache.kvcache import KVCache
from aici_engine.candidate import Candidate
from aici_engine.control.calm_record import is_calm
from aici_engine.executor import Executor
from aici_engine.scheduler import Scheduler
from aici_engine.step_input import PENDING, Chunk, PageCopy, StepInput

if TYPE_CHECKING:
    from aici_engine.sample.device_sampler import LaunchedTokens

_LONGEST_PAUSE: Final = 64
"""Steps."""

_log = logging.getLogger(__name__)


class RunAhead:
    """Used by the engine's thread alone.

    The next step most likely computes one token of each sequence that gets a token now. Nothing is guessed if a prompt
    waits to be computed, if a request may take the place of an ending request, or if a guest may force tokens; and for
    some steps, twice as many each time, after guesses of which less than half was right.
    """

    def __init__(self, *, executor: Executor, cache: KVCache, scheduler: Scheduler) -> None:
        self._executor = executor
        self._cache = cache
        self._scheduler = scheduler
        self._seen = (0, 0)
        self._pause = 0
        self._last_pause = 0

    def begin(self, candidates: Sequence[Candidate], tokens: "LaunchedTokens") -> None:
        """Begin the pass of the next step. `candidates[i]` gets token i of `tokens`; no other row is sampled now."""
        self._learn()
        if self._pause:
            self._pause -= 1
            return
        ends = [each.seq.ending is not None or each.seq.room <= 1 for each in candidates]
        if self._has_other_work(candidates, some_end=any(ends)):
            return
        chunks, chosen = [], []
        for place, (candidate, is_last) in enumerate(zip(candidates, ends, strict=True)):
            seq = candidate.seq
            start = len(seq.tokens)
            if not is_last and self._cache.reserve(seq.seq_id, start + 1):
                chunks.append(Chunk(seq.seq_id, [PENDING], start, self._cache.page_table(seq.seq_id), 1))
                chosen.append(place)
        if chunks:
            copies = [PageCopy(*copy) for copy in self._cache.take_copies()]
            try:
                self._executor.go_ahead(StepInput(chunks, copies), tokens, chosen)
            except Exception as error:  # noqa: BLE001 the engine loop's: the step itself will be computed, or fail
                _log.warning("a pass did not begin ahead", exc_info=error)
                self._pause = _LONGEST_PAUSE

    def _has_other_work(self, candidates: Sequence[Candidate], *, some_end: bool) -> bool:
        if self._scheduler.waiting and some_end:
            return True
        if any(each.answer is not None and not is_calm(each.seq) for each in candidates):
            return True
        getting = {each.seq.seq_id for each in candidates}
        return any(seq.seq_id not in getting and not seq.suspended for seq in self._scheduler.running)

    def _learn(self) -> None:
        seen = self._executor.num_guessed, self._executor.num_right
        guessed, right = seen[0] - self._seen[0], seen[1] - self._seen[1]
        self._seen = seen
        if 2 * right < guessed:
            self._pause = self._last_pause = min(2 * self._last_pause + 1, _LONGEST_PAUSE)
        elif guessed:
            self._last_pause = 0
