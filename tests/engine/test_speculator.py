"""Drafts: what followed the last tokens before, as many tokens as pay."""

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.request import ControllerCall, Request, Sink
from aici_engine.sequences.sequence import Sequence
from aici_engine.speculation.ngram_drafter import Draft, NgramDrafter
from aici_engine.speculation.pass_times import PassTimes
from aici_engine.speculation.prediction import num_accepted
from aici_engine.speculation.speculator import Costs, NgramSpeculator, _choose
from aici_engine.speculation.token_stems import token_stems
from aici_engine.step_plan import PlannedChunk, StepPlan
from tests.engine.support import encode


def nobody(event: object) -> None: ...


def sequence(number: int, text: str, sink: Sink = nobody, *, controller: ControllerCall | None = None) -> Sequence:
    return Sequence(
        SeqId(number), prompt=encode(text), sampling=SamplingParams(), controller=controller, limit=1000, sink=sink,
        submitted_at=0.0,
    )  # fmt: skip


def drafter_of(text: str) -> NgramDrafter:
    drafter = NgramDrafter()
    drafter.read(encode(text))
    return drafter


def draft(text: str, most: int = 4) -> str:
    return bytes(drafter_of(text).draft(most).tokens).decode()


def test_the_text_after_the_last_occurrence_is_the_draft() -> None:
    assert draft("the cat sat on the mat. the ") == "mat."
    assert draft("xyz") == ""
    assert draft("a horse, a house, a hor") == "se, "


def test_a_repetition_is_continued_beyond_the_end() -> None:
    assert draft(6 * "abc", 8) == "abcabcab"
    assert draft("-----", 3) == "---"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 59))
def test_a_draft_follows_an_earlier_occurrence_in_pieces_and_at_once(tokens: list[int], cut: int) -> None:
    """The source may be a different one while an older match goes on, but a match there is in both cases."""
    text = [TokenId(token) for token in tokens]
    pieces, whole = NgramDrafter(), NgramDrafter()
    for end in range(min(cut, len(text)), len(text) + 1):
        pieces.read(text[:end])
        assert follows(text[:end], pieces.draft(3).tokens)
    whole.read(text)
    assert follows(text, whole.draft(3).tokens)
    assert bool(pieces._match_len) == bool(whole._match_len) == (text[-1] in text[:-1])


def follows(text: list[TokenId], draft: list[TokenId]) -> bool:
    """Return whether the draft is empty, or stands after an earlier occurrence of the last token."""
    longer = [*text, *draft]
    sources = [at for at in range(1, len(text)) if text[at - 1] == text[-1]]
    return not draft or any(longer[at : at + len(draft)] == draft for at in sources)


def test_unlikely_tokens_are_no_part_of_a_draft() -> None:
    assert draft("a b c d a", 4) == " "
    drafts = drafter_of("a long match, a long match").draft(15)
    assert len(drafts.tokens) == len(drafts.probabilities) == 15
    assert drafts.probabilities == sorted(drafts.probabilities, reverse=True)


def test_removed_tokens_are_forgotten() -> None:
    drafter = drafter_of("one two one two")
    drafter.read(encode("one two one th"))
    drafter.read(encode("one two one three, one"))
    assert bytes(drafter.draft(4).tokens) == b" thr"


@given(st.data())
def test_the_index_after_a_removal_is_the_index_of_the_shorter_text(data: st.DataObject) -> None:
    stems = data.draw(st.sampled_from([(), (0, 0, 2)]))
    text = [TokenId(token) for token in data.draw(st.lists(st.integers(0, 3), min_size=20, max_size=80))]
    drafter = NgramDrafter(stems=stems)
    drafter.read(text)
    for _ in range(3):
        text = text[: data.draw(st.integers(9, len(text)))]
        text += [TokenId(token) for token in data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9))]
        drafter.read(text)
        if drafter._tokens != text:  # the removed tokens came back: nothing to notice
            break
        fresh = NgramDrafter(stems=stems)
        fresh.read(text)
        assert drafter._last_seen == fresh._last_seen
        assert drafter._kinds == fresh._kinds
        assert stems or follows(text, drafter.draft(3).tokens)


def predicting(prompt: str, prediction: str, output: str = "") -> NgramDrafter:
    drafter = NgramDrafter(encode(prediction), prompt_len=len(prompt))
    drafter.read(encode(prompt + output))
    return drafter


def test_a_prediction_is_the_draft_from_the_first_token_on() -> None:
    assert bytes(predicting("say abc: ", "Hello there").draft(5).tokens) == b"Hello"
    assert bytes(predicting("say abc: ", "Hello there", "Hello").draft(6).tokens) == b" there"


def test_a_sequence_with_a_prediction_drafts_its_beginning() -> None:
    speculator = NgramSpeculator()
    seq = Sequence(
        SeqId(1), prompt=encode("Say: "), sampling=SamplingParams(), controller=None, limit=1000, sink=nobody,
        submitted_at=0.0, prediction=encode("Hello there"),
    )  # fmt: skip
    speculator.record_time(plan_of(seq), 0.005)
    assert b"Hello there".startswith(bytes(speculator.drafts(plan_of(seq))[SeqId(1)]))


def test_a_prediction_has_tokens_of_the_model(tiny_model: Path) -> None:
    with Engine(EngineConfig(model_dir=tiny_model, page_size=8, num_pages=8)) as engine:
        with pytest.raises(UsageError, match="the prediction has the token 10000000") as caught:
            engine.submit(Request(prompt="a", prediction=[TokenId(10_000_000)]))
        assert caught.value.param == "prediction"
        assert engine.submit(Request(prompt="a", prediction=encode("b"), sampling=SamplingParams(max_tokens=2))).wait()


def test_after_an_edit_the_prediction_goes_on() -> None:
    drafter = predicting("", "def add(first, second):", "def plus(first")
    assert bytes(drafter.draft(9).tokens) == b", second)"


def test_a_wrong_prediction_is_no_longer_followed() -> None:
    drafter = predicting("one two one", "zzz", " t")
    assert bytes(drafter.draft(6).tokens) == b"wo one"


def test_tokens_that_a_guest_takes_back_are_not_sought_in_the_prediction() -> None:
    drafter = predicting("Say: ", "a long prediction", "a long p")
    for output in ("a long", "a l", "a lo", "x", ""):
        drafter.read(encode("Say: " + output + "!"))
        drafter.read(encode("Say: " + output))
        fresh = predicting("Say: ", "a long prediction", output)
        assert drafter._last_seen == fresh._last_seen
        assert drafter._tokens == fresh._tokens


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("", "abc", 0),
        ("abc", "", 0),
        ("abc", "abc", 3),
        ("abc", "abcabc", 3),
        ("abcdef", "abXcdef", 4),
        ("abcdef", "abef", 2),
        ("abcdef", "cdef", 2),
        ("xyzabcdef", "abcdef", 4),
        ("abc", "xyz", 0),
    ],
)
def test_the_answer_is_compared_with_the_prediction_in_order(prediction: str, answer: str, expected: int) -> None:
    assert num_accepted(encode(prediction), encode(answer)) == expected


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_each_token_of_a_prediction_is_accepted_once_at_most(prediction: list[int], answer: list[int]) -> None:
    assert num_accepted(prediction, answer) <= min(len(prediction), len(answer))
    assert num_accepted(prediction, prediction) == len(prediction)


def test_only_a_long_removal_makes_a_new_index() -> None:
    chance = random.Random(5)
    text = [TokenId(chance.randrange(50_000)) for _ in range(3000)]
    drafter = NgramDrafter()
    drafter.read(text)
    index = drafter._last_seen
    for _ in range(40):
        text = [*text[:-5], *text[7:11]]
        drafter.read(text)
        assert drafter._last_seen is index
        assert drafter.draft(2).tokens == text[11:13]
    drafter.read([*text[:-300], *text[7:11]])
    assert drafter._last_seen is not index
    assert drafter.draft(2).tokens == text[11:13]


def test_probabilities_follow_the_text() -> None:
    """Copies are trusted after a few right tokens, and no more after a few wrong ones, without any pass."""
    source = "".join(random.Random(1).choices("abcdefghij", k=400))
    drafter = drafter_of(source)
    text = source
    for char in source[:40]:
        text += char
        drafter.read(encode(text))
    assert drafter.draft(4).probabilities[3] > 0.9
    for at in range(60):
        text += source[at * 5 : at * 5 + 4] + "Z"
        drafter.read(encode(text))
    drafter.read(encode(text + source[200:203]))
    assert sum(drafter.draft(4).probabilities[3:]) < 0.6


def test_a_draft_is_less_sure_where_a_form_is_filled_in() -> None:
    """The place is known from the text, before any prediction of the place was judged."""
    form = "name=Ann;name=Bob;name=C"
    at_place, within = drafter_of(form + ";name="), drafter_of(form + ";na")
    assert at_place._match_len >= within._match_len  # by the length of the match alone, the place would be likelier
    assert at_place.draft(1, 0).probabilities[0] < 0.5 < within.draft(1, 0).probabilities[0]
    for name in ("Dora", "Eve", "Fred"):
        form += f";name={name}"
        at_place.read(encode(form))
    at_place.read(encode(form + ";n"))
    assert bytes(at_place.draft(9, 0.5).tokens) == b"ame="


def test_a_word_is_found_with_and_without_a_space_before_it() -> None:
    tokens = [b"Jonas", b" Jonas", b" Lindqvist", b"x", b"", b"Lin"]
    text = [3, 1, 2, 4, 3, 3, 0]
    without, with_stems = NgramDrafter(), NgramDrafter(stems=token_stems(tokens))
    for drafter in (without, with_stems):
        drafter.read(text)
    assert without.draft(1, 0.1).tokens == []
    assert with_stems.draft(1, 0.1).tokens == [2]
    with_stems.read([*text, 9, 9])  # a token beyond the table
    assert with_stems._match_len == 1


def test_an_index_of_a_long_text_is_bounded() -> None:
    drafter = NgramDrafter()
    chance = random.Random(7)
    text = [TokenId(chance.randrange(50_000)) for _ in range(30_000)]
    drafter.read(text[:20_000])
    for end in range(20_001, 30_001, 7):
        drafter.read(text[:end])
    assert len(drafter._last_seen) < 3 * 2 * 8192 + 100
    drafter.read([*text, *text[-500:-490]])
    assert drafter.draft(3).tokens == text[-490:-487]


def test_the_time_of_an_unknown_pass_lies_between_its_neighbours() -> None:
    times = PassTimes()
    assert times.expected_s(1) is None
    times.record(1, 1.0)
    assert times.expected_s(3) == pytest.approx(1.2)
    times.record(5, 1.8)
    assert times.expected_s(3) == pytest.approx(0.97 * 1.4)
    assert times.expected_s(7) == pytest.approx(2.2)
    assert (times.expected_s(1), times.age(1), times.age(5)) == (1.0, 1, 0)


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(0.1, 10)), min_size=1))
def test_a_larger_pass_is_never_expected_to_be_faster(passes: list[tuple[int, float]]) -> None:
    times = PassTimes()
    for size, time_s in passes:
        times.record(size, time_s)
    first = min(size for size, _ in passes)
    expected = [times.expected_s(size) or 0.0 for size in range(first, 30)]
    assert all(below <= above * (1 + 1e-9) for below, above in itertools.pairwise(expected))


def test_one_size_that_seems_cheap_is_averaged_with_its_neighbours() -> None:
    times = PassTimes()
    for size, time_s in ((16, 1.6), (17, 1.8), (18, 1.5), (19, 2.0)):
        times.record(size, time_s)
    assert [times.expected_s(size) for size in (16, 17, 18, 19)] == pytest.approx([1.6, 1.65, 1.65, 2.0])


def test_in_a_large_batch_each_token_is_taken_to_cost_nearly_its_share() -> None:
    times = PassTimes()
    times.record(16, 1.6)
    assert times.expected_s(20) == pytest.approx(1.6 + 4 * 0.08)


def test_a_single_slow_pass_counts_little() -> None:
    times = PassTimes()
    times.record(1, 1.0)
    times.record(1, 100.0)
    assert times.expected_s(1) == 1.05
    times.record(2, 100.0)
    assert times.expected_s(2) == pytest.approx(1.5 * 1.1 * 1.05)


def plan_of(*seqs: Sequence, num_tokens: int = 1) -> StepPlan:
    return StepPlan([PlannedChunk(seq, num_tokens, samples=True) for seq in seqs])


def test_nothing_is_drafted_before_a_pass_without_drafts_is_measured() -> None:
    speculator = NgramSpeculator()
    seq = sequence(1, "abcabcabcabc")
    assert speculator.drafts(plan_of(seq)) == {}
    speculator.record_time(plan_of(seq), 0.005)
    assert len(speculator.drafts(plan_of(seq))[seq.seq_id]) > 3


def test_where_each_token_costs_as_much_as_the_first_nothing_is_drafted() -> None:
    speculator = NgramSpeculator()
    seqs = [sequence(number, "abcabcabcabc") for number in range(1, 17)]
    for size in (16, 17, 20, 40):
        speculator._times.record(size, 0.001 * size)
    assert speculator.drafts(plan_of(*seqs)) == {}
    assert not speculator._drafters, "not even right drafts pay, so no text is read"


def test_a_guest_that_answers_slowly_is_not_asked_after_the_pass() -> None:
    """A token more costs a tenth of a pass, but the guest's answer as much as a pass: its mask is no longer free."""
    speculator = NgramSpeculator()
    free, guided = sequence(1, 8 * "abc"), sequence(2, 8 * "abc", controller=ControllerCall("m", ""))
    for size in range(1, 40):
        speculator._times.record(size, 0.01 + 0.001 * size)
    assert speculator.drafts(plan_of(free, guided)).keys() == {1, 2}
    speculator.record_walk(2, 0.024, with_guests=True)
    assert speculator.drafts(plan_of(free, guided)).keys() == {1, 2}, "one slow walk is no measurement"
    for _ in range(50):
        speculator.record_walk(2, 0.024, with_guests=True)
    assert speculator.drafts(plan_of(free, guided)).keys() == {1}
    for _ in range(2000):
        speculator.record_time(plan_of(free, guided), 0.012)
    assert speculator.drafts(plan_of(free, guided)).keys() == {1, 2}, "the old measurement is tried again"


def test_only_as_many_tokens_are_drafted_as_pay() -> None:
    """Four tokens cost as much as one, and each further token as much as a pass."""
    speculator = NgramSpeculator()
    for size, time_s in ((1, 0.01), (4, 0.01), (5, 0.02), (6, 0.03), (16, 0.13)):
        speculator._times.record(size, time_s)
    seq = sequence(1, "abcabcabcabcabcabc")
    assert speculator.drafts(plan_of(seq)) == {seq.seq_id: encode("abc")}


def test_one_stream_that_repeats_its_prompt_does_not_slow_many_that_do_not() -> None:
    """Eight drafted tokens make a pass a third longer, and the step has half as many tokens again."""
    speculator = NgramSpeculator()
    for size in range(16, 48):
        speculator._times.record(size, 0.01 * (1 + (size - 16) / 24))
    repeating, others = [sequence(number, 9 * "abc") for number in range(16)], [sequence(99, "xyz")]
    others += [sequence(100 + number, f"text {number}") for number in range(14)]
    assert speculator.drafts(plan_of(repeating[0], *others)) == {}
    assert speculator.drafts(plan_of(*repeating)).keys() == set(range(16))


class Counting(NgramSpeculator):
    """Counts the searches for drafts."""

    num_searches = 0

    def _find(self, seqs: list[Sequence], costs: Costs, *, num_seqs: int) -> dict[SeqId, Draft]:
        self.num_searches += 1
        return super()._find(seqs, costs, num_seqs=num_seqs)


def test_a_text_that_repeats_nothing_is_searched_seldom_until_it_repeats() -> None:
    speculator, tokens = Counting(), iter(random.Random(3).sample(range(50_000), 400))
    seq = sequence(1, "abc")

    def step(token: int) -> bool:
        seq.transcript.tokens.append(TokenId(token))
        plan = plan_of(seq)
        plan.drafts = speculator.drafts(plan)
        speculator.record_time(plan, 0.005)
        return bool(plan.drafts)

    assert not any(step(next(tokens)) for _ in range(200))
    assert 30 < speculator.num_searches < 60
    before = speculator.num_searches
    num_drafted = sum(step(token) for token in list(seq.tokens[:100]))
    assert num_drafted > 80, "found within eight tokens, and then at each token"
    assert speculator.num_searches - before >= num_drafted


drafts_found = st.dictionaries(
    st.integers(1, 3),
    st.lists(st.floats(0.05, 0.99), min_size=1, max_size=4).map(
        lambda rates: Draft(list(range(len(rates))), list(itertools.accumulate(rates, float.__mul__)))
    ),
    min_size=1,
)


@given(drafts_found, st.lists(st.floats(0.0, 0.6), min_size=12, max_size=12))
def test_the_chosen_drafts_are_the_best_of_all(found: dict[SeqId, Draft], steps: list[float]) -> None:
    passes_s = list(itertools.accumulate(steps, initial=1.0))

    def speed(lengths: dict[SeqId, int]) -> float:
        """The geometric mean over four streams of expected tokens a second, after the definition."""
        expected = [1 + sum(found[seq_id].probabilities[:length]) for seq_id, length in lengths.items()]
        return math.prod(expected) ** (1 / 4) / passes_s[sum(lengths.values())]

    ranges = [range(len(draft.tokens) + 1) for draft in found.values()]
    best = max(speed(dict(zip(found, lengths, strict=True))) for lengths in itertools.product(*ranges))
    chosen = _choose(found, dict.fromkeys(found, 0.0), Costs(passes_s, 1.05, 0.0), num_seqs=4)
    assert bool(chosen.drafts) == (best > 1.05)
    if chosen.drafts:
        assert speed({seq_id: len(draft) for seq_id, draft in chosen.drafts.items()}) == pytest.approx(best)
        assert chosen.saved_s.keys() == chosen.drafts.keys()
        assert min(chosen.saved_s.values()) > 0


def test_a_pass_without_drafts_is_measured_now_and_then() -> None:
    speculator = NgramSpeculator()
    seq = sequence(1, "abcabcabcabc")
    speculator.record_time(plan_of(seq), 0.005)
    num_drafted = 0
    for _ in range(200):
        plan = plan_of(seq)
        plan.drafts = speculator.drafts(plan)
        num_drafted += bool(plan.drafts)
        speculator.record_time(plan, 0.005)
    assert 190 <= num_drafted < 200


def test_no_sequence_is_remembered_after_its_end() -> None:
    speculator = NgramSpeculator()
    seq = sequence(1, "abcabc")
    speculator.record_time(plan_of(seq), 0.005)
    speculator.drafts(plan_of(seq))
    assert speculator._drafters
    assert speculator._paces
    speculator.forget(seq.seq_id)
    speculator.forget(seq.seq_id)
    assert not speculator._drafters
    assert not speculator._paces


def test_drafts_that_the_model_cannot_have_are_refused_if_asked_for(tiny_model: Path) -> None:
    """The kernels need pages in multiples of 16 tokens, so torch runs the model."""
    asked = EngineConfig(model_dir=tiny_model, page_size=8, num_pages=8, speculate="ngram")
    with pytest.raises(UsageError, match="drafts need the kernels") as caught:
        Engine(asked)
    assert caught.value.param == "speculate"
    assert "auto" in str(caught.value.hint)
    with Engine(replace(asked, speculate="auto")) as engine:
        end = engine.submit(Request(prompt=6 * "abc", sampling=SamplingParams(max_tokens=4, ignore_eos=True))).wait()
        assert engine.get_stats()["drafted_tokens"] == 0
    assert len(end.tokens) == 4
