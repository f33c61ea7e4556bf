"""Several tokens a pass: whatever is drafted, clients and guests hear the same, and no page is kept too long."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.request import ControllerCall
from aici_engine.sequences.sequence import Sequence as EngineSequence
from aici_engine.speculation.speculator import Drafts, NgramSpeculator, Speculator, may_draft
from aici_engine.step_plan import StepPlan
from aici_runtime.wire import Pre, Splice
from tests.engine.loop_bench import LoopBench, ReadyRuntime, host_sampler
from tests.engine.null_executor import FaultyExecutor, NullExecutor, by_all_tokens, by_last_token
from tests.engine.programs import Program
from tests.engine.support import EOS, VOCAB_SIZE, encode
from tests.engine.test_flights import PROGRAMS, outcome, requests

NEVER_CALM = 1000


@dataclass
class Traced(Program):
    """`trace`: the calls so far, and their results."""

    trace: list[Any] = field(default_factory=list)

    def pre(self) -> Any:
        self.trace.append(("pre", answer := super().pre()))
        return answer

    def mid(self) -> Any:
        self.trace.append(("mid", repr(answer := super().mid())))
        return answer

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        self.trace.append(("post", tokens, backtrack))
        return super().post(tokens, backtrack)


class FixedSpeculator(Speculator):
    """Drafts what `draft` says of every sequence that may draft. `num_drafts`: how many were asked for."""

    def __init__(self, draft: Callable[[EngineSequence], list[int]]) -> None:
        self._draft = draft
        self.num_drafts = 0
        self.known: set[SeqId] = set()

    def drafts(self, plan: StepPlan) -> Drafts:
        seqs = [chunk.seq for chunk in plan.chunks if chunk.samples and may_draft(chunk.seq)]
        drafts = {seq.seq_id: [TokenId(token) for token in self._draft(seq)[: seq.room - 1]] for seq in seqs}
        self.num_drafts += sum(map(bool, drafts.values()))
        self.known |= drafts.keys()
        return drafts

    def record_time(self, plan: StepPlan, time_s: float) -> None: ...

    def forget(self, seq_id: SeqId) -> None:
        self.known.discard(seq_id)


class Bench(LoopBench):
    def __init__(self, executor: NullExecutor, speculator: Any = None, **options: Any) -> None:
        more: dict[str, Any] = {"calm_rounds": 3, "speculator": speculator} | options
        super().__init__(executor, ReadyRuntime({"program": Traced}), host_sampler(), **more)

    def outcomes(self, asked: Sequence[dict[str, Any]]) -> list[dict[Any, Any]]:
        # A sequence appends to its prompt.
        own = [request | {"prompt": list(request.get("prompt", encode("Hello")))} for request in asked]
        return [outcome(events) for events in self.run(own)]

    def traces(self) -> list[Any]:
        return [getattr(guest, "trace", None) for guest in self.runtime.all]

    def posts(self) -> list[str]:
        return sorted(repr((guest.argument, guest.told)) for guest in self.runtime.all)


def executor(num_pages: int = 400, **options: Any) -> NullExecutor:
    return NullExecutor(num_pages=num_pages, **({"row": by_all_tokens} | options))


def oracle(asked: Sequence[dict[str, Any]], **options: Any) -> Callable[[EngineSequence], list[int]]:
    """Return a function that knows the rest of a sequence's text, as it is without drafts."""
    outcomes = Bench(executor(**options)).outcomes(asked)
    texts = {
        number: [*request.get("prompt", encode("Hello")), *(token.token_id for token in heard[()][2])]
        for number, (request, heard) in enumerate(zip(asked, outcomes, strict=True), 1)
    }
    return lambda seq: texts[seq.group.request_id][len(seq.tokens) :]


def noisy(
    rest: Callable[[EngineSequence], list[int]], seed: int, wrong: float
) -> Callable[[EngineSequence], list[int]]:
    """Return drafts of random length, with wrong tokens here and there."""
    chance = random.Random(seed)

    def draft(seq: EngineSequence) -> list[int]:
        tokens = rest(seq)[: chance.randrange(9)]
        return [chance.randrange(VOCAB_SIZE) if chance.random() < wrong else token for token in tokens]

    return draft


@pytest.mark.parametrize("row", [by_all_tokens, by_last_token])
@pytest.mark.parametrize("wrong", [0.0, 0.2, 1.0])
def test_any_draft_gives_the_same_texts_and_tells_guests_the_same(row: Any, wrong: float) -> None:
    plain = Bench(executor(row=row))
    expected = plain.outcomes(requests())
    speculator = FixedSpeculator(noisy(oracle(requests(), row=row), 1, wrong))
    bench = Bench(executor(row=row), speculator)
    assert bench.outcomes(requests()) == expected
    assert bench.posts() == plain.posts()
    assert speculator.num_drafts > 50
    assert not speculator.known
    assert bench.loop.num_accepted > 100 if wrong == 0.0 else bench.loop.num_accepted < bench.loop.num_drafted


def test_calm_guests_hear_of_right_tokens_by_the_usual_message(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        {"sampling": SamplingParams(seed=1, max_tokens=40), "controller": ControllerCall("program", [("any", 40)])}
    ]
    bench = Bench(executor(), FixedSpeculator(oracle(asked)))
    runtime, sent = bench.runtime, []
    monkeypatch.setattr(
        runtime, "send_calm", lambda *said: (sent.append("usual"), type(runtime).send_calm(runtime, *said))
    )
    send_turn = runtime.send_turn

    def note(**said: Any) -> None:
        sent.append("told and asked" if said["post_ops"] and said["ops"] else "other")
        send_turn(**said)

    monkeypatch.setattr(runtime, "send_turn", note)
    bench.outcomes(asked)
    assert bench.loop.num_accepted > 20
    # `send_calm` of the scripted runtime sends a turn.
    assert sent.count("usual") == sent.count("told and asked") > 20


def test_the_calm_guest_of_a_single_sequence_is_asked_as_soon_as_a_token_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ControllerCall("program", [("any", 40)])
    asked = [{"sampling": SamplingParams(seed=1, max_tokens=40), "controller": call}]
    bench = Bench(executor(), FixedSpeculator(oracle(asked)))
    order: list[str] = []

    def note(what: str, where: Any, name: str) -> None:
        call = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *args: (order.append(what), call(*args))[1])

    note("chosen", bench.loop._committer._sampler, "sample_batch")
    note("asked", bench.runtime, "send_calm")
    note("appended", bench.loop._committer, "_append_all")
    bench.outcomes(asked)
    assert bench.loop.num_accepted > 20
    assert [order[i : i + 3] for i in range(len(order) - 2)].count(["chosen", "asked", "appended"]) > 20


@given(seed=st.integers(0, 1000), wrong=st.floats(0, 0.5), calm=st.sampled_from([1, 3, NEVER_CALM]))
@settings(deadline=None, max_examples=15)
def test_a_guest_hears_the_same_calls_in_the_same_order(seed: int, wrong: float, calm: int) -> None:
    chance = random.Random(seed)
    steps = [
        ("any", 5),
        ("say", "abc"),
        ("force", "forced"),
        ("back", 2, "xy"),
        ("idle", 2),
        ("log", "l"),
        PROGRAMS[2][1],
    ]
    program = chance.choices(steps, k=chance.randint(1, 6))
    asked = [{"sampling": SamplingParams(seed=seed, max_tokens=40), "controller": ControllerCall("program", program)}]
    plain = Bench(executor(), calm_rounds=calm)
    expected = plain.outcomes(asked)
    bench = Bench(executor(), FixedSpeculator(noisy(oracle(asked), seed, wrong)), calm_rounds=calm)
    assert bench.outcomes(asked) == expected
    assert bench.traces() == plain.traces()


@pytest.mark.parametrize("calm", [1, 3, NEVER_CALM])
def test_a_guest_that_forces_other_tokens_than_drafted_is_not_asked_twice(calm: int) -> None:
    program = [("any", 2), ("force", "forced"), ("any", 3)]
    asked = [{"sampling": SamplingParams(seed=3, max_tokens=40), "controller": ControllerCall("program", program)}]
    text = oracle(asked)
    plain = Bench(executor(), calm_rounds=calm)
    expected = plain.outcomes(asked)
    bench = Bench(
        executor(),
        FixedSpeculator(lambda seq: [*text(seq)[:2], 299, 299] if len(seq.tokens) == 5 else []),
        calm_rounds=calm,
    )
    assert bench.outcomes(asked) == expected
    assert bench.traces() == plain.traces()
    assert bench.loop.num_accepted == 2


KEPT = TokenId(10)


@dataclass
class TakesEosBack(Traced):
    """Forces an EOS, which the model sees as `KEPT`, takes it back, and forces `KEPT` and many more tokens."""

    def pre(self) -> Any:
        self.trace.append(("pre", None))
        return Pre(suspend=False, num_forks=1 if len(self.trace) < 8 else 0, ff_tokens=())

    def mid(self) -> Any:
        match len(self.trace):
            case 1:
                return [encode("a")[0]]
            case 2:
                return [EOS]
            case 3:
                return Splice(2, (KEPT, *[TokenId(120)] * 30))
        return range(32, 127)

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        return False


def test_tokens_that_a_guest_took_back_and_forced_again_are_not_taken_for_computed() -> None:
    asked = [{"prompt": encode("Hello"), "sampling": SamplingParams(seed=3, max_tokens=60)}]
    asked[0]["controller"] = ControllerCall("program", [])
    draft = [*encode("a"), KEPT, *[TokenId(120)] * 20]
    seen = []
    for speculator in (None, FixedSpeculator(lambda seq: draft if len(seq.tokens) == len(encode("Hello")) else [])):
        bench = LoopBench(
            executor(),
            ReadyRuntime({"program": TakesEosBack}),
            host_sampler(),
            calm_rounds=NEVER_CALM,
            speculator=speculator,
            kept_eos=KEPT,
        )
        seen.append([outcome(events) for events in bench.run([dict(each, prompt=[*each["prompt"]]) for each in asked])])
        assert bench.loop.fatal is None
    assert without_times(seen[0]) == without_times(seen[1])


def test_right_drafts_save_passes() -> None:
    asked = [{"sampling": SamplingParams(seed=3, ignore_eos=True), "limit": 45}]
    text = oracle(asked)
    passes = executor()
    Bench(passes, FixedSpeculator(lambda seq: text(seq)[:4])).outcomes(asked)
    assert len(passes.steps) == 8, "40 tokens, 5 a pass, the prompt with the first pass"


def test_forced_tokens_within_a_draft_need_no_pass() -> None:
    program = [("any", 2), ("force", "forced"), ("any", 8)]
    asked = [{"sampling": SamplingParams(seed=3, max_tokens=40), "controller": ControllerCall("program", program)}]
    text = oracle(asked)
    passes = executor()
    bench = Bench(passes, FixedSpeculator(text))
    bench.outcomes(asked)
    assert len(passes.steps) == 1
    assert [len(chunk.tokens) for step in passes.steps for chunk in step.chunks] == [5 + 16]


@given(seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=15)
def test_refused_tokens_leave_no_pages_and_nothing_to_find(seed: int) -> None:
    """With few pages, drafts never preempt; after every step, each sequence holds the pages of its computed tokens."""
    asked = [request | {"limit": 75} for request in requests()[:3]]
    expected = Bench(executor()).outcomes(asked)
    wrong: list[str] = []
    few = executor(num_pages=24)

    def draft(seq: EngineSequence) -> list[int]:
        cache = bench.cache
        for other in bench.loop._scheduler.running:
            held, computed = len(cache.page_table(other.seq_id)), other.progress.num_computed
            if cache.num_cached(other.seq_id) != computed or held > cache.num_pages_for(computed + other.num_pending):
                wrong.append(f"{held} pages for {computed} tokens")
        return [random.Random(seed + len(seq.tokens)).randrange(VOCAB_SIZE) for _ in range(8)]

    bench = Bench(few, FixedSpeculator(draft))
    assert bench.outcomes(asked) == expected
    assert wrong == []
    written = {token for node in bench.cache._pool._prefixes for token in node.key}
    texts = {token for request in asked for token in request.get("prompt", encode("Hello"))}
    texts |= {token.token_id for heard in expected for token in heard[()][2]} | {None, "s"}
    assert written <= texts, "a page with refused tokens can be found"


@pytest.mark.parametrize(("call", "fault"), [(4, "begin"), (5, "logits")])
def test_a_failed_pass_with_drafts_costs_its_own_requests(call: int, fault: str) -> None:
    asked = [{"sampling": SamplingParams(seed=3, max_tokens=12, ignore_eos=True)}]
    text = oracle(asked)
    faulty = FaultyExecutor({call: fault}, num_pages=400, row=by_all_tokens)
    bench = Bench(faulty, FixedSpeculator(lambda seq: text(seq)[:2]))
    assert "FAIL" in str(bench.outcomes(asked)[0][()][0].name)


@given(seed=st.integers(0, 1000), wrong=st.floats(0, 0.3))
@settings(deadline=None, max_examples=25)
def test_every_sampling_parameter_goes_its_way(seed: int, wrong: float) -> None:
    chance = random.Random(seed)
    options: dict[str, Any] = {
        "temperature": chance.choice([0.0, 0.7, 1.5]),
        "seed": chance.choice([None, 3]) if seed % 2 else 4,
        "stop": chance.choice([(), ("a",), tuple("abcdefgh")]),
        "logprobs": chance.choice([None, 0, 3]),
        "frequency_penalty": chance.choice([0.0, 1.5]),
        "repetition_penalty": chance.choice([1.0, 1.3]),
        "min_tokens": chance.choice([0, 20]),
        "bad_tokens": chance.choice([(), ((5,), (6, 7))]),
        "stop_token_ids": chance.choice([(), (9, 10, 11)]),
        "explain": chance.choice([None, 2]),
        "top_k": chance.choice([0, 5]),
    }
    if options["seed"] is None:
        options["temperature"] = 0.0
    asked = [{"sampling": SamplingParams(**options), "limit": 60} for _ in range(3)]
    row = chance.choice([by_all_tokens, by_last_token])
    expected = Bench(executor(row=row)).outcomes(asked)
    bench = Bench(executor(row=row), FixedSpeculator(noisy(oracle(asked, row=row), seed, wrong)))
    assert without_times(bench.outcomes(asked)) == without_times(expected)


def without_times(outcomes: list[dict[Any, Any]]) -> list[Any]:
    return [
        [
            *heard[()][:2],
            [token._replace(explanation=token.explanation and token.explanation.likeliest) for token in heard[()][2]],
        ]
        for heard in outcomes
    ]


def test_the_shipped_speculator_gives_the_same_texts() -> None:
    repeated = encode("abcabcabcabcabcabc")
    asked = [*requests(), *({**request, "prompt": repeated} for request in requests() if "controller" in request)]
    plain = Bench(executor(row=by_last_token))
    expected = plain.outcomes(asked)
    bench = Bench(executor(row=by_last_token), NgramSpeculator())
    assert bench.outcomes(asked) == expected
    assert bench.posts() == plain.posts()
