"""Drafts by a draft model: as many tokens as pay, and whatever is drafted, the same texts."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.page_contents import PageContents
from aici_engine.config import SamplingParams
from aici_engine.request import ControllerCall
from aici_engine.sequences.sequence import Sequence as EngineSequence
from aici_engine.speculation.acceptance_rates import AcceptanceRates
from aici_engine.speculation.model_speculator import DraftModel, DraftText, Guess, ModelSpeculator
from aici_engine.speculation.speculator import Costs, NoSpeculator
from aici_engine.step_plan import Drafts, PlannedChunk, StepPlan
from tests.engine.null_executor import by_all_tokens, by_last_token
from tests.engine.support import EOS, VOCAB_SIZE, encode
from tests.engine.test_draft_walk import NEVER_CALM, PROGRAMS, Bench, executor
from tests.engine.test_flights import requests
from tests.engine.test_speculator import nobody

PAGE_SIZE = 4
PASS_S = 0.010
TOKEN_S = 0.0002
"""A pass of the model takes PASS_S, and TOKEN_S for each token."""
Next = Callable[[Sequence[TokenId]], tuple[int, float]]
"""The guess after some tokens, and its probability."""


class NullDraftModel(DraftModel):
    """Keeps the tokens of each page, and finds the text in the pages when it computes. `passes`: the texts so far."""

    def __init__(self, guess: Next, *, page_size: int = PAGE_SIZE, context: int = 4096) -> None:
        self.context = context
        self.vocab_size = VOCAB_SIZE
        self.eos_tokens = frozenset({EOS})
        self.passes: list[list[DraftText]] = []
        self._guess = guess
        self._page_size = page_size
        self._contents = PageContents(page_size=page_size)
        self._storage: dict[tuple[PageId, int], TokenId] = {}

    def num_known(self, tokens: Sequence[TokenId], pages: Sequence[PageId]) -> int:
        return self._contents.num_known(tokens, pages)

    def compute(self, texts: Sequence[DraftText]) -> list[Guess]:
        self.passes.append([text._replace(pages=list(text.pages)) for text in texts])
        size, guesses = self._page_size, []
        for text in texts:
            assert text.start < len(text.tokens) <= self.context
            for at in range(text.start, len(text.tokens)):
                self._storage[text.pages[at // size], at % size] = text.tokens[at]
        for text in texts:
            found = [self._storage[text.pages[at // size], at % size] for at in range(len(text.tokens))]
            assert found == list(text.tokens), "a page holds another text"
            self._contents.write(text.tokens, text.pages, start=text.start)
            if text.guesses:
                token, probability = self._guess(found)
                guesses.append(Guess(TokenId(token), probability))
        return guesses


class TimedSpeculator(ModelSpeculator):
    """Passes take the times of the tests. `draft_s`: of a pass of the draft model."""

    def __init__(self, *args: Any, draft_s: float = 0.2 * PASS_S, **options: Any) -> None:
        super().__init__(*args, **options)
        self.draft_s = draft_s

    def record_time(self, plan: StepPlan, time_s: float) -> None:
        super().record_time(plan, PASS_S + TOKEN_S * plan.num_tokens)

    def record_walk(self, num_rows: int, time_s: float, *, with_guests: bool) -> None: ...

    def _draft_s(self, num_tokens: int, costs: Costs) -> float:
        return self.draft_s + TOKEN_S * num_tokens


def follower(asked: Sequence[dict[str, Any]], row: Any, seed: int, wrong: float) -> Next:
    """Return guesses that go on as the texts without drafts do, wrong ones here and there."""
    chance = random.Random(seed)
    texts = [
        [*request.get("prompt", encode("Hello")), *(token.token_id for token in heard[()][2])]
        for request, heard in zip(asked, Bench(executor(row=row)).outcomes(asked), strict=True)
    ]
    nexts = {tuple(text[:at]): text[at] for text in texts for at in range(1, len(text))}

    def guess(tokens: Sequence[TokenId]) -> tuple[int, float]:
        token = nexts.get(tuple(tokens))
        return (chance.randrange(VOCAB_SIZE), 0.5) if token is None or chance.random() < wrong else (token, 0.95)

    return guess


@pytest.mark.parametrize("row", [by_all_tokens, by_last_token])
@pytest.mark.parametrize("wrong", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("ngrams", [False, True])
def test_any_guesses_give_the_same_texts_and_tell_guests_the_same(row: Any, wrong: float, *, ngrams: bool) -> None:
    plain = Bench(executor(row=row))
    expected = plain.outcomes(requests())
    model = NullDraftModel(follower(requests(), row, 1, wrong))
    bench = Bench(executor(row=row), lambda cache: TimedSpeculator(model, cache, ngrams=ngrams))
    assert bench.outcomes(requests()) == expected
    assert bench.posts() == plain.posts()
    assert model.passes
    assert wrong == 1.0 or bench.loop.num_accepted > 50
    assert not bench.loop._scheduler._speculator._readers  # type: ignore[attr-defined]


@given(seed=st.integers(0, 1000), wrong=st.floats(0, 0.5), calm=st.sampled_from([1, 3, NEVER_CALM]))
@settings(deadline=None, max_examples=15)
def test_a_guest_hears_the_same_calls_in_the_same_order(seed: int, wrong: float, calm: int) -> None:
    chance = random.Random(seed)
    steps = [("any", 5), ("say", "abc"), ("force", "forced"), ("back", 2, "xy"), ("idle", 2), PROGRAMS[2][1]]
    program = chance.choices(steps, k=chance.randint(1, 6))
    asked = [{"sampling": SamplingParams(seed=seed, max_tokens=40), "controller": ControllerCall("program", program)}]
    plain = Bench(executor(), calm_rounds=calm)
    expected = plain.outcomes(asked)
    model = NullDraftModel(follower(asked, by_all_tokens, seed, wrong))
    bench = Bench(executor(), lambda cache: TimedSpeculator(model, cache), calm_rounds=calm)
    assert bench.outcomes(asked) == expected
    assert bench.traces() == plain.traces()


@given(seed=st.integers(0, 1000), wrong=st.floats(0, 0.5))
@settings(deadline=None, max_examples=15)
def test_with_few_pages_no_page_is_kept_or_mistaken(seed: int, wrong: float) -> None:
    """Sequences lose their pages to others. The draft model finds its texts in the pages, and gives all pages back."""
    asked = [request | {"limit": 75} for request in requests()[:3]]
    expected = Bench(executor()).outcomes(asked)
    model = NullDraftModel(follower(asked, by_all_tokens, seed, wrong))
    many: list[str] = []

    class Watched(TimedSpeculator):
        def drafts(self, plan: StepPlan) -> Any:
            for seq in bench.loop._scheduler.running:
                held, most = len(bench.cache.page_table(seq.seq_id)), bench.cache.num_pages_for(len(seq.tokens))
                if held > most:
                    many.append(f"{held} pages for {len(seq.tokens)} tokens")
            return super().drafts(plan)

    bench = Bench(executor(num_pages=24), lambda cache: Watched(model, cache))
    assert bench.outcomes(asked) == expected
    assert many == []
    assert model.passes


def test_a_draft_model_that_fails_is_not_used_any_more() -> None:
    asked = [request | {"limit": 75} for request in requests()[:3]]
    expected = Bench(executor()).outcomes(asked)

    class Failing(NullDraftModel):
        def compute(self, texts: Sequence[DraftText]) -> list[Guess]:
            guesses = super().compute(texts)
            if len(self.passes) == 3:
                raise MemoryError("no memory for a pass")
            return guesses

    model = Failing(follower(asked, by_all_tokens, 1, 0.0))
    bench = Bench(executor(), lambda cache: TimedSpeculator(model, cache))
    assert bench.outcomes(asked) == expected
    assert bench.loop.fatal is None
    assert len(model.passes) == 3


class EmptyDrafts(NoSpeculator):
    """Takes pages for drafts, and drafts nothing. `most`: the pages held before, beyond those for the tokens."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self.most = 0

    def drafts(self, plan: StepPlan) -> Drafts:
        for seq, num_tokens, _ in plan.chunks:
            end = seq.progress.num_computed + num_tokens
            held = len(self._cache.page_table(seq.seq_id)) - self._cache.num_pages_for(end)
            self.most = max(self.most, held)
            assert self._cache.reserve(seq.seq_id, end + 3 * PAGE_SIZE)
        return {chunk.seq.seq_id: [] for chunk in plan.chunks}


def test_an_empty_draft_gives_its_pages_back() -> None:
    asked = [{"sampling": SamplingParams(seed=3, ignore_eos=True), "limit": 45}]
    bench = Bench(executor(), EmptyDrafts)
    assert bench.outcomes(asked) == Bench(executor()).outcomes(asked)
    speculator = bench.loop._scheduler._speculator
    assert isinstance(speculator, EmptyDrafts)
    assert speculator.most == 0


def sequence(number: int, text: str, cache: KVCache, **more: Any) -> EngineSequence:
    seq = EngineSequence(
        SeqId(number), prompt=encode(text), sampling=SamplingParams(), controller=None,
        sink=nobody, submitted_at=0.0, **({"limit": 1000} | more),
    )  # fmt: skip
    cache.add(seq.seq_id)
    return seq


def plan_of(cache: KVCache, *seqs: EngineSequence) -> StepPlan:
    for seq in seqs:
        assert cache.reserve(seq.seq_id, len(seq.tokens))
    return StepPlan([PlannedChunk(seq, 1, samples=True) for seq in seqs])


def step(speculator: ModelSpeculator, cache: KVCache, *seqs: EngineSequence, token: int | None = None) -> Any:
    """Return the drafts of a step. Each sequence gains `token`, or a token that is never guessed."""
    plan = plan_of(cache, *seqs)
    plan.drafts = {seq_id: draft for seq_id, draft in speculator.drafts(plan).items() if draft}
    speculator.record_time(plan, 0.0)
    for seq in seqs:
        cache.advance(seq.seq_id, seq.tokens, len(seq.tokens))
        seq.tokens.append(TokenId(256 if token is None else token))
        cache.truncate(seq.seq_id, len(seq.tokens) - 1)
    return plan.drafts


def speculating(guess: Next, **options: Any) -> tuple[TimedSpeculator, NullDraftModel, KVCache]:
    """Return a speculator that has seen a pass."""
    model = NullDraftModel(guess, context=options.pop("context", 4096))
    cache = KVCache(num_pages=400, page_size=PAGE_SIZE)
    speculator = TimedSpeculator(model, cache, **options)
    speculator.record_time(plan_of(cache, sequence(999, "a", cache)), 0.0)
    return speculator, model, cache


def always_a(_tokens: Sequence[TokenId]) -> tuple[int, float]:
    return ord("a"), 0.9


def test_sure_guesses_are_drafted_and_unsure_ones_are_not() -> None:
    speculator, _, cache = speculating(always_a)
    sure = sequence(1, "b", cache)
    for _ in range(40):
        step(speculator, cache, sure, token=ord("a"))
    assert len(step(speculator, cache, sure, token=ord("a"))[sure.seq_id]) > 5
    speculator, model, cache = speculating(lambda _: (ord("a"), 0.01))
    assert step(speculator, cache, sequence(1, "b", cache)) == {}
    assert len(model.passes) == 1


def test_wrong_guesses_end_the_drafts_and_are_tried_again_now_and_then() -> None:
    speculator, model, cache = speculating(always_a)
    seq = sequence(1, "b", cache)
    for _ in range(60):
        step(speculator, cache, seq)
    num_passes = len(model.passes)
    assert 0 < num_passes < 60
    for _ in range(200):
        assert step(speculator, cache, seq) == {}
    assert num_passes < len(model.passes) < num_passes + 10
    other = sequence(2, "b", cache)
    assert step(speculator, cache, other) == {}, "a new sequence is expected to be like the others"


def test_guesses_that_come_true_again_are_noticed_by_retries() -> None:
    speculator, model, cache = speculating(always_a)
    for _ in range(60):
        step(speculator, cache, sequence(len(model.passes) + 1000, "b", cache))
    num_drafts = 0
    for number in range(60):
        seq = sequence(number + 1, "b", cache)
        for _ in range(20):
            num_drafts += bool(step(speculator, cache, seq, token=ord("a")))
    assert num_drafts > 0


def test_a_draft_model_that_is_as_slow_as_the_model_is_not_used() -> None:
    speculator, model, cache = speculating(always_a, draft_s=PASS_S)
    seq = sequence(1, "b", cache)
    for _ in range(20):
        assert step(speculator, cache, seq, token=ord("a")) == {}
    assert not model.passes


def test_a_long_text_is_read_in_parts_before_the_first_guess() -> None:
    speculator, model, cache = speculating(always_a, draft_s=0.0)
    seq = sequence(1, "b" * 150, cache)
    drafts = [step(speculator, cache, seq, token=ord("a")) for _ in range(3)]
    assert [bool(each) for each in drafts] == [False, False, True]
    assert [len(texts[0].tokens) - texts[0].start for texts in model.passes[:3]] == [64, 64, 24]


def test_a_text_that_takes_longer_to_read_than_the_guesses_save_is_not_read() -> None:
    speculator, model, cache = speculating(always_a)
    assert step(speculator, cache, sequence(1, "b" * 400, cache, limit=410)) == {}
    assert not model.passes


def test_a_beginning_is_computed_once_for_all_sequences() -> None:
    speculator, model, cache = speculating(always_a)
    first = sequence(1, "b" * 40, cache)
    step(speculator, cache, first)
    assert len(model.passes[0][0].tokens) - model.passes[0][0].start == 40
    second = sequence(2, "b" * 40, cache)
    cache.extend(second.seq_id, second.tokens, 39)
    num_passes = len(model.passes)
    step(speculator, cache, second)
    assert model.passes[num_passes][0].start == 36


def test_beyond_its_context_the_draft_model_guesses_nothing() -> None:
    speculator, _, cache = speculating(always_a, context=12)
    seq = sequence(1, "b" * 8, cache)
    lengths = [len(step(speculator, cache, seq, token=ord("a")).get(seq.seq_id, [])) for _ in range(6)]
    assert lengths[0] in range(1, 5)
    assert lengths[4:] == [0, 0]


def test_a_text_with_tokens_that_the_draft_model_lacks_has_no_guesses() -> None:
    speculator, model, cache = speculating(always_a)
    model.vocab_size = ord("b")
    assert step(speculator, cache, sequence(1, "ab", cache)) == {}
    assert not model.passes


def test_of_two_drafts_the_longer_is_taken() -> None:
    speculator, model, cache = speculating(always_a, ngrams=True)
    seq = sequence(1, 20 * "xyz", cache)
    speculator._rates = AcceptanceRates()
    other = speculator._rates.new_sequence()
    for at in range(40):
        speculator._rates.record(0.5, other, hit=at % 2 == 1)
    assert step(speculator, cache, seq)[seq.seq_id][:6] == encode("xyzxyz")
    assert not model.passes
    without = sequence(2, "abcdefgh", cache)
    assert step(speculator, cache, without)[without.seq_id][0] == ord("a")


def test_nothing_is_guessed_after_an_eos() -> None:
    speculator, _, cache = speculating(lambda _: (int(EOS), 0.99))
    assert step(speculator, cache, sequence(1, "b", cache)) == {1: [EOS]}


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.booleans()), max_size=60))
def test_rates_are_probabilities(judged: list[tuple[float, bool, bool]]) -> None:
    rates = AcceptanceRates()
    sequences = [rates.new_sequence(), rates.new_sequence()]
    for probability, which, hit in judged:
        rates.record(probability, sequences[which], hit=hit)
    assert all(0 <= each.value <= 1 for each in sequences)
    assert all(0 <= rates.probability(at / 20, each) <= 1 for at in range(21) for each in sequences)


def test_guesses_are_trusted_as_far_as_they_came_true_and_sequences_apart() -> None:
    """Unsure guesses that are always right are trusted; in a sequence where half are wrong, less."""
    rates = AcceptanceRates()
    right, other = rates.new_sequence(), rates.new_sequence()
    assert rates.probability(0.1, right) < 0.1
    for at in range(60):
        rates.record(0.1, right, hit=True)
        rates.record(0.9, right, hit=True)
        rates.record(0.9, other, hit=at % 2 == 0)
    assert rates.probability(0.1, right) > 0.9
    assert rates.probability(0.1, other) < 0.7
