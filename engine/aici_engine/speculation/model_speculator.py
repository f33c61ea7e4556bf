"""Drafts by a draft model: a smaller model, or the same weights in a smaller format, guesses the next tokens.

The draft model runs before the forward pass, a token a pass for all sequences that draft. It draws with the random
numbers that the model will use, so that the two choose the same tokens where they agree. Its time counts: a step drafts
if its streams are expected to be faster (`speculator`), passes of the draft model included. The time of a pass of the
draft model is measured (`pass_times`), and so is how often its guesses are right (`acceptance_rates`). A further token
is guessed as long as its gain is expected to be worth the time.

Before its first guess, the draft model computes the text so far. That pays if the text goes on for long, which nobody
knows: a text is taken to go on for as many tokens as it has generated, and `_FIRST_LENGTH` more. A step computes few of
these tokens, so that other sequences do not wait.

Where guesses do not pay, one is made now and then: retries may take a small part of the time.
"""

import itertools
import logging
import random
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from math import exp, log1p
from typing import Final, NamedTuple, Protocol

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.sampling_params import SamplingParams
from aici_engine.sequences.sequence import Sequence
from aici_engine.speculation.acceptance_rates import AcceptanceRates, Rate
from aici_engine.speculation.ngram_drafter import Draft
from aici_engine.speculation.pass_times import PassTimes
from aici_engine.speculation.speculator import MOST_A_SEQUENCE, Costs, NgramSpeculator, may_draft
from aici_engine.step_plan import Drafts, StepPlan

_log = logging.getLogger(__name__)

_GREEDY: Final = SamplingParams(temperature=0.0)
_MOST_MISSING: Final = 64
"""So many tokens of texts are computed before the first guess of a step."""
_FIRST_LENGTH: Final = 64
_FIRST_SHARE: Final = 0.3
"""Before a pass of the draft model is measured, it is taken for this part of a pass of the model."""
_MOST_SLOWER: Final = 2.0
"""A pass counts at most so many times the expected time: the first passes read the weights from the disk."""
_RETRY_SHARE: Final = 0.02
"""Retries may take this part of the time without guesses."""


class DraftText(NamedTuple):
    """The draft model computes `tokens` from position `start` on. `pages`: the page table, complete for the tokens.
    `guesses`: the next token is asked for. `sampling`, `draw`: how the model will choose the token, and its random
    number: where the two models agree, both choose the same token."""

    tokens: Seq[TokenId]
    pages: Seq[PageId]
    start: int
    guesses: bool
    sampling: SamplingParams = _GREEDY
    draw: int = 0


class Guess(NamedTuple):
    """`probability`: by the draft model itself, 0 to 1."""

    token: TokenId
    probability: float


class DraftModel(Protocol):
    """`context`: the largest number of positions. `vocab_size`: greater tokens are unknown. `eos_tokens`: nothing is
    guessed after them."""

    context: int
    vocab_size: int
    eos_tokens: frozenset[TokenId]

    def num_known(self, tokens: Seq[TokenId], pages: Seq[PageId]) -> int:
        """Return how many of the first tokens are computed in these pages."""

    def compute(self, texts: Seq[DraftText]) -> list[Guess]:
        """Compute all texts in one pass. Return the draft model's next tokens for the texts that guess."""


@dataclass(slots=True)
class _Reader:
    """What is known of a sequence. `guesses`: the last guesses, from position `start` on, not judged yet."""

    rate: Rate
    guesses: list[Guess] = field(default_factory=list)
    start: int = 0


class _Choice(NamedTuple):
    """The sequences that should guess. `rate`: the expected tokens a second that a further guess must exceed.
    `saved_s`: expected for each token of a step."""

    seqs: list[Sequence]
    num_tokens: int
    rate: float
    saved_s: float


@dataclass(slots=True)
class _Growing:
    """A draft to which tokens are added. `tokens`: the text, and the guesses. `draws`: the sequence's next random
    numbers."""

    seq: Sequence
    tokens: list[TokenId]
    reader: _Reader
    draft: Draft
    most: int
    draws: Iterator[int]


class ModelSpeculator(NgramSpeculator):
    """Drafts by `model`, in the pages of `cache`. With `ngrams`, a sequence takes the draft of prompt lookup instead if
    it is the longer one, by expected tokens. `stems`: see `NgramDrafter`."""

    def __init__(self, model: DraftModel, cache: KVCache, *, ngrams: bool = False, stems: Seq[int] = ()) -> None:
        super().__init__(stems)
        self._model = model
        self._cache = cache
        self._ngrams = ngrams
        self._readers: dict[SeqId, _Reader] = {}
        self._rates = AcceptanceRates()
        self._draft_times = PassTimes()
        self._has_failed = False
        self._grown: list[SeqId] = []
        """The sequences with pages for guesses in this step."""
        self._credit_s = self._retry_s = 0.0
        """The time allowed for retries, and the least time of the next retry."""

    def drafts(self, plan: StepPlan) -> Drafts:
        self._grown = []
        costs = None if self._has_failed else self._costs(plan)
        if costs is None:
            return {}
        seqs = [chunk.seq for chunk in plan.chunks if may_draft(chunk.seq)]
        try:
            drafts = self._choose_drafts(plan, seqs, costs).drafts
        except Exception as error:  # noqa: BLE001 the engine loop's: every text goes on without guesses
            _log.error("the draft model failed, and is not used any more", exc_info=error)
            self._has_failed, drafts = True, {}
        return {**{seq_id: [] for seq_id in self._grown}, **drafts}

    def record_time(self, plan: StepPlan, time_s: float) -> None:
        super().record_time(plan, time_s)
        if not plan.drafts:
            self._credit_s += _RETRY_SHARE * time_s

    def forget(self, seq_id: SeqId) -> None:
        super().forget(seq_id)
        self._readers.pop(seq_id, None)

    def _find(self, seqs: list[Sequence], costs: Costs, *, num_seqs: int) -> dict[SeqId, Draft]:
        found = super()._find(seqs, costs, num_seqs=num_seqs) if self._ngrams else {}
        able = [seq for seq in seqs if self._most(seq) > 0]
        for seq in able:
            self._judge(seq)
        choice = self._choose(able, costs, num_seqs=num_seqs)
        if choice is None:
            self._retry(able, costs)
            return found
        chosen = [
            seq
            for seq in choice.seqs
            if seq.seq_id not in found
            or sum(found[seq.seq_id].probabilities) < _expected(self._reader(seq).rate.value, choice.num_tokens)
        ]
        return found | self._draft_all(chosen, costs, rate=choice.rate, saved_s=choice.saved_s)

    def _reader(self, seq: Sequence) -> _Reader:
        return self._readers.get(seq.seq_id) or self._readers.setdefault(
            seq.seq_id, _Reader(self._rates.new_sequence())
        )

    def _most(self, seq: Sequence) -> int:
        """Return how many tokens may be guessed: none beyond the context of the draft model."""
        return min(MOST_A_SEQUENCE, seq.room - 1, self._model.context - len(seq.tokens))

    def _judge(self, seq: Sequence) -> None:
        """Compare the last guesses with the text."""
        reader = self._reader(seq)
        for guess, token in zip(reader.guesses, seq.tokens[reader.start :], strict=False):
            hit = guess.token == token
            self._rates.record(guess.probability, reader.rate, hit=hit)
            if not hit:
                break
        reader.guesses = []

    def _choose(self, seqs: list[Sequence], costs: Costs, *, num_seqs: int) -> _Choice | None:
        """Return which sequences should guess; None if no guess is expected to pay."""
        likeliest = sorted(seqs, key=lambda seq: self._reader(seq).rate.value, reverse=True)
        best, best_speed = None, costs.least_speed
        expected, gains, walks_s = ([0.0] * (MOST_A_SEQUENCE + 1) for _ in range(3))
        for count, seq in enumerate(likeliest, 1):
            right, walk_s = self._reader(seq).rate.value, self._walk_s(seq)
            for length in range(1, MOST_A_SEQUENCE + 1):
                more = _expected(right, min(length, self._most(seq)))
                expected[length] += more
                gains[length] += log1p(more)
                walks_s[length] += more * walk_s
            # After a draft that was right, the last guess and the token after it are computed first.
            first_s, draft_s = self._draft_s(2 * count, costs), self._draft_s(count, costs)
            for length in range(1, min(MOST_A_SEQUENCE, (len(costs.passes_s) - 1) // count) + 1):
                time_s = costs.passes_s[count * length] + first_s + (length - 1) * draft_s + walks_s[length]
                speed = exp(gains[length] / num_seqs) / time_s
                if speed > best_speed:
                    rate = num_seqs * (1 + expected[length] / count) / time_s
                    saved_s = costs.passes_s[0] / num_seqs - time_s / (num_seqs + expected[length])
                    best, best_speed = _Choice(likeliest[:count], length, rate, saved_s), speed
        return best

    def _draft_s(self, num_tokens: int, costs: Costs) -> float:
        """Return about how long a pass of the draft model takes."""
        return self._draft_times.expected_s(num_tokens) or _FIRST_SHARE * (
            self._times.expected_s(num_tokens) or costs.passes_s[0]
        )

    def _draft_all(self, seqs: list[Sequence], costs: Costs, *, rate: float, saved_s: float) -> dict[SeqId, Draft]:
        """Let the draft model read and guess. `saved_s`: by each token of a drafting sequence."""
        texts, growing, room = [], [], _MOST_MISSING
        for seq in seqs:
            text = self._unread(seq, room)
            num_missing = len(seq.tokens) - text.start
            num_more = min(seq.room, _FIRST_LENGTH + seq.transcript.num_generated)
            is_worth = num_missing <= MOST_A_SEQUENCE or self._draft_s(num_missing, costs) < num_more * saved_s
            if not is_worth or len(text.tokens) <= text.start:
                continue
            room -= len(text.tokens) - text.start
            texts.append(text)
            if text.guesses:
                draws = _draws_of(seq)
                texts[-1] = text._replace(draw=next(draws))
                growing.append(
                    _Growing(seq, list(seq.tokens), self._reader(seq), Draft([], []), self._most(seq), draws)
                )
        if not texts:
            return {}
        self._grow(growing, self._compute(texts, costs))
        num_guessed, all_growing = len(growing), growing
        while growing := self._worth_more(growing, num_guessed, costs, rate):
            self._grow(growing, self._compute([self._last_of(each) for each in growing], costs))
            num_guessed += len(growing)
        return {each.seq.seq_id: each.draft for each in all_growing}

    def _unread(self, seq: Sequence, room: int) -> DraftText:
        """Return the tokens of the sequence that the draft model has not computed, at most `room`."""
        pages = self._cache.page_table(seq.seq_id)
        start = min(self._model.num_known(seq.tokens, pages), len(seq.tokens) - 1)
        end = min(len(seq.tokens), start + room)
        if max(seq.tokens[start:end], default=0) >= self._model.vocab_size:
            end = start
        return DraftText(seq.tokens[:end], pages, start, end == len(seq.tokens), seq.sampling)

    def _last_of(self, growing: _Growing) -> DraftText:
        pages = self._cache.page_table(growing.seq.seq_id)
        return DraftText(
            growing.tokens, pages, len(growing.tokens) - 1, True, growing.seq.sampling, next(growing.draws)
        )

    def _worth_more(self, growing: list[_Growing], num_guessed: int, costs: Costs, rate: float) -> list[_Growing]:
        """Return the drafts for which further guesses are expected to pay, with pages for the guesses so far."""
        going = [
            each
            for each in growing
            if len(each.draft.tokens) < each.most
            and each.draft.tokens[-1] not in self._model.eos_tokens
            and each.draft.probabilities[-1] * each.reader.rate.value >= costs.least_probability
        ]
        if not going or not self._pays(going, num_guessed, costs, rate):
            return []
        going = [each for each in going if self._cache.reserve(each.seq.seq_id, len(each.tokens))]
        self._grown += [each.seq.seq_id for each in going]
        return going

    def _pays(self, going: list[_Growing], num_guessed: int, costs: Costs, rate: float) -> bool:
        """Return whether one more guess of each draft, or a few more, are worth their time."""
        draft_s = self._draft_s(len(going), costs)
        for length in range(1, (len(costs.passes_s) - 1 - num_guessed) // len(going) + 1):
            pass_s = costs.passes_s[num_guessed + length * len(going)] - costs.passes_s[num_guessed]
            gain = sum(each.draft.probabilities[-1] * _expected(each.reader.rate.value, length) for each in going)
            if gain >= rate * (length * draft_s + pass_s):
                return True
        return False

    def _grow(self, growing: list[_Growing], guesses: list[Guess]) -> None:
        for each, guess in zip(growing, guesses, strict=True):
            reader, draft = each.reader, each.draft
            if not draft.tokens:
                reader.start = len(each.tokens)
            reader.guesses.append(guess)
            before = draft.probabilities[-1] if draft.tokens else 1.0
            draft.tokens.append(guess.token)
            draft.probabilities.append(before * self._rates.probability(guess.probability, reader.rate))
            each.tokens.append(guess.token)

    def _compute(self, texts: list[DraftText], costs: Costs) -> list[Guess]:
        num_tokens = sum(len(text.tokens) - text.start for text in texts)
        began = time.monotonic()
        guesses = self._model.compute(texts)
        time_s = min(time.monotonic() - began, _MOST_SLOWER * self._draft_s(num_tokens, costs))
        self._draft_times.record(num_tokens, time_s)
        return guesses

    def _retry(self, seqs: list[Sequence], costs: Costs) -> None:
        """Guess a token, if there is time for a retry. The text will judge the guess."""
        if not seqs or self._credit_s < max(self._retry_s, self._draft_s(1, costs)):
            return
        texts = [(self._unread(seq, _MOST_MISSING), seq) for seq in seqs]
        texts = [each for each in texts if len(each[0].tokens) > each[0].start]
        if not texts:
            return
        text, seq = min(texts, key=lambda each: len(each[1].tokens) - each[0].start)
        self._retry_s = self._draft_s(len(text.tokens) - text.start, costs)
        if self._credit_s < self._retry_s:
            return
        self._credit_s = self._retry_s = 0.0
        reader = self._reader(seq)
        text = text._replace(draw=next(_draws_of(seq)))
        reader.start, reader.guesses = len(seq.tokens), self._compute([text], costs)


def _draws_of(seq: Sequence) -> Iterator[int]:
    """Yield the random numbers with which the next tokens of a sequence will be drawn."""
    if seq.sampling.greedy:
        yield from itertools.repeat(0)
    generator = random.Random()
    generator.setstate(seq.sampler.random.getstate())
    while True:
        yield generator.getrandbits(64)


def _expected(rate: float, length: int) -> float:
    """Return how many of `length` guesses are right, up to the first wrong one."""
    return float(length) if rate >= 1 else rate * (1 - rate**length) / (1 - rate)
