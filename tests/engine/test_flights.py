"""Several steps in flight: whatever the depth, clients and guests hear the same."""

import time
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import ControllerError, UnavailableError
from aici_base.ids import SeqId
from aici_engine.config import SamplingParams
from aici_engine.events import Event, FinishEvent, FinishReason, ScoreEvent
from aici_engine.executor import StateLostError
from aici_engine.request import ControllerCall
from aici_engine.step_input import StepInput
from tests.engine.loop_bench import LoopBench, ReadyRuntime, host_sampler, until_end
from tests.engine.null_executor import FaultyExecutor, NullExecutor, NullStep, by_all_tokens
from tests.engine.programs import Program, by_fork
from tests.engine.support import encode
from tests.support.processes import wait_until

DEPTHS = (1, 2, 3)
PATIENCE_S = 10.0
PROGRAMS: list[list[Any]] = [
    [("any", 9), ("force", "forced"), ("any", 3)],
    [("say", "ab"), ("back", 1, "xyz"), ("any", 2), ("back", 3, ""), ("any", 4)],
    [("any", 3), ("fork", [[("any", 4)], [("say", "b"), ("back", 1, "cd")], [("idle", 2)]]), ("any", 2)],
    [("fork", [[("wait", "x"), ("say", "w")], [("any", 6), ("set", "x", "1")], [("any", 2)]]), ("any", 5)],
    [
        ("any", 2),
        ("fork", [[("any", 3), ("fork", [[("any", 2)], [("force", "!")]])], [("wait", "late"), ("any", 1)],
                  [("any", 8), ("set", "late", "")]]),
        ("say", "."),
    ],
    [("log", "begin"), ("any", 14), ("log", "end"), ("idle", 3), ("any", 1)],
    [("say", "z"), ("fail", "on purpose")],
    [("any", 2), ("wait", "never")],
    [("any", 30)],
    [("any", 1), ("fork", [[("crash", "the parent")], [("force", "!"), ("any", 3)], [("any", 2)]]), ("any", 2)],
]  # fmt: skip


def requests() -> list[dict[str, Any]]:
    """Return plain, scored and controlled requests; some begin alike."""
    params = SamplingParams(seed=3, max_tokens=20, ignore_eos=True)
    plain: list[dict[str, Any]] = [
        {"prompt": encode("A plain prompt of some length, in several pages and chunks"), "sampling": params},
        {"prompt": encode("A plain prompt of some other length"), "sampling": params, "priority": 1},
        {"prompt": encode("A plain prompt"), "sampling": SamplingParams(seed=7, max_tokens=12), "salt": "s"},
        {"sampling": SamplingParams(temperature=0.0, max_tokens=3, logprobs=2), "score_from": 1},
        {
            "prompt": encode("Scored from the middle on"),
            "score_from": 9,
            "limit": 25,
            "sampling": SamplingParams(seed=1),
        },
    ]
    free = SamplingParams(seed=5, max_tokens=40)
    return plain + [{"sampling": free, "controller": ControllerCall("program", list(p))} for p in PROGRAMS]


def no_guest_lives(bench: LoopBench) -> bool:
    """Whether all guests were dropped: the loop drops a guest after it has told of the end."""
    return not bench.runtime.live


def outcome(events: list[Event]) -> dict[Any, Any]:
    """Return what a client hears, by the place of a fork in the tree of forks. Cached tokens depend on timing."""
    heard: dict[Any, Any] = {}
    for told in by_fork(events).values():
        assert told.end is not None
        usage = told.end.usage
        heard[told.lineage] = (
            told.end.reason, told.stream, told.end.tokens, str(told.end.error), told.end.logs,
            (usage.prompt_tokens, usage.sampled_tokens, usage.ff_tokens) if told.lineage else None,
        )  # fmt: skip
    end = events[-1]
    assert isinstance(end, FinishEvent)
    heard["usage"] = (end.usage.prompt_tokens, end.usage.sampled_tokens, end.usage.ff_tokens)
    heard["scores"] = [event.scores for event in events if isinstance(event, ScoreEvent)]
    return heard


class Bench(LoopBench):
    def __init__(self, executor: NullExecutor, **options: Any) -> None:
        self._runtimes = [ReadyRuntime({"program": Program})]
        super().__init__(executor, self._runtimes[0], host_sampler(), **({"calm_rounds": 3} | options))

    def outcomes(self, asked: list[dict[str, Any]]) -> list[dict[Any, Any]]:
        return [outcome(events) for events in self.run(asked)]

    def replace_runtime(self) -> None:
        self.runtime = ReadyRuntime({"program": Program})
        self._runtimes.append(self.runtime)
        self.loop.use_runtime(self.runtime)

    def kill_runtime(self) -> None:
        """The runtime dies in its next turn."""
        self.runtime.dies_at_round = self.runtime.rounds + 1

    def guests(self) -> list[Any]:
        """Return what every guest was told."""
        guests = [guest for runtime in self._runtimes for guest in runtime.all]
        return sorted(repr((guest.argument, guest.told)) for guest in guests)


def executor(depth: int, num_pages: int = 400, **options: Any) -> NullExecutor:
    return NullExecutor(depth=depth, num_pages=num_pages, row=by_all_tokens, **options)


def reference(asked: list[dict[str, Any]]) -> tuple[list[dict[Any, Any]], list[Any]]:
    """Return the outcomes, and what guests are told, with one flight at a time and pages for all."""
    bench = Bench(executor(1))
    return bench.outcomes(asked), bench.guests()


def test_every_depth_gives_the_same_texts_and_tells_guests_the_same() -> None:
    expected = reference(requests())
    for depth in (2, 3):
        bench = Bench(executor(depth))
        assert (bench.outcomes(requests()), bench.guests()) == expected
        assert isinstance(bench.executor, NullExecutor)
        assert bench.executor.most_in_flight == depth


def test_with_few_pages_too() -> None:
    expected = reference(requests())
    for depth in DEPTHS:
        bench = Bench(executor(depth, num_pages=26), max_num_seqs=6)
        assert (bench.outcomes(requests()), bench.guests()) == expected
        assert bench.loop.num_preemptions


@pytest.mark.parametrize(("depth", "calm_rounds"), [(1, 8), (2, 8), (2, 1), (3, 8)])
def test_a_loss_at_any_moment_changes_nothing(depth: int, calm_rounds: int) -> None:
    """The root's pre forces tokens, and mid changes the guests: a second call for the same token would be noticed."""
    forks = [("fork", [[("crash", "the parent")], [("force", "!"), ("any", 1)], [("idle", 1), ("back", 2, "?")]])]
    program = [("any", 1), *forks, ("force", "."), ("any", 1)]

    def asked() -> list[dict[str, Any]]:
        params = SamplingParams(seed=5)
        plain = {"sampling": params, "score_from": 2, "limit": 14}
        return [plain, *({"sampling": params, "controller": ControllerCall("program", program)} for _ in range(2))]

    expected = reference(asked())
    call, num_calls = 0, 1
    while call <= num_calls:
        faulty = FaultyExecutor({call: "lost"}, polls=1, depth=depth, num_pages=99, row=by_all_tokens)
        bench = Bench(faulty, calm_rounds=calm_rounds)
        assert (bench.outcomes(asked()), bench.guests()) == expected
        call, num_calls = call + 1, faulty.num_calls


@pytest.mark.parametrize("deed", ["replace_runtime", "kill_runtime"])
def test_a_runtime_that_goes_at_any_moment_costs_only_its_requests(deed: str) -> None:
    program = [("any", 1), ("fork", [[("any", 1)], [("any", 2)], [("any", 3)]]), ("any", 1)]

    def asked() -> list[dict[str, Any]]:
        params = SamplingParams(seed=5)
        return [
            {"sampling": params, "limit": 14},
            {"sampling": params, "controller": ControllerCall("program", program)},
        ]

    [plain, _], _ = reference(asked())

    def run(call: int) -> int:
        """Return the number of calls."""
        faulty = FaultyExecutor({call: lambda: getattr(bench, deed)()}, depth=2, row=by_all_tokens)
        bench = Bench(faulty)
        assert bench.outcomes(asked())[0] == plain
        return faulty.num_calls

    call = 0
    while call <= run(call):
        call += 1


@pytest.mark.parametrize("depth", DEPTHS)
def test_nobody_reads_pages_of_a_failed_step(depth: int) -> None:
    """The requests begin alike, and share the pages of the first."""
    params = SamplingParams(seed=3, max_tokens=6, ignore_eos=True)

    def asked() -> list[dict[str, Any]]:
        return [{"prompt": encode("The same beginning, and " + end), "sampling": params} for end in ("a", "b", "c" * 9)]

    expected, _ = reference(asked())
    num_failed = 0
    for call in range(20):
        faulty = FaultyExecutor({call: "logits"}, depth=depth, num_pages=400, row=by_all_tokens)
        for heard, wanted in zip(Bench(faulty, max_batch_tokens=12).outcomes(asked()), expected, strict=True):
            failed = heard[()][0] is FinishReason.FAIL
            assert failed or heard == wanted
            num_failed += failed
    assert num_failed >= 5


@settings(max_examples=25, deadline=None)
@given(data=st.data(), depth=st.integers(1, 3))
def test_faults_cost_only_the_requests_of_a_failed_step(data: st.DataObject, depth: int) -> None:
    """Losses change nothing. A failed or aborted request ends once; all others are as without faults."""
    picked = data.draw(st.lists(st.sampled_from(range(len(requests()))), min_size=1, unique=True))
    kinds = st.sampled_from(["begin", "logits", "lost", "lost", "idle", "abort", "abort", "replace", "die"])
    faults: dict[int, Any] = data.draw(st.dictionaries(st.integers(0, 120), kinds, max_size=8))
    for at, kind in faults.items():
        if kind == "abort":
            seq_id = SeqId(data.draw(st.integers(1, len(picked))))
            faults[at] = lambda seq_id=seq_id: bench.loop.abort(seq_id)
        elif kind == "replace":
            faults[at] = lambda: bench.replace_runtime()
        elif kind == "die":
            faults[at] = lambda: bench.kill_runtime()
    num_pages = data.draw(st.sampled_from([26, 40, 400]))
    faulty = FaultyExecutor(
        faults, polls=data.draw(st.integers(0, 3)), depth=depth, num_pages=num_pages, row=by_all_tokens
    )
    bench = Bench(
        faulty,
        max_num_seqs=data.draw(st.integers(1, 8)),
        max_batch_tokens=data.draw(st.integers(9, 40)),
        calm_rounds=data.draw(st.integers(1, 8)),
    )
    # A run appends to the prompts.
    expected, guests = reference([requests()[i] for i in picked])
    outcomes = bench.outcomes([requests()[i] for i in picked])
    spoilt = {"begin", "logits"} & set(map(str, faults.values()))
    costly = {FinishReason.FAIL} if spoilt else set[FinishReason]()
    if any(callable(fault) for fault in faults.values()):
        costly |= {FinishReason.ABORT, FinishReason.FAIL}
    for outcome, wanted in zip(outcomes, expected, strict=True):
        # A fork that waits for a failed fork is in a deadlock.
        assert outcome == wanted or costly & {each[0] for place, each in outcome.items() if isinstance(place, tuple)}
    if outcomes == expected:
        assert bench.guests() == guests


def test_a_request_is_in_one_flight_and_flights_are_even() -> None:
    """Of 12 decoding requests, a flight at depth 3 has 4; a prompt's chunks are in flight together."""
    none = executor(3)
    params = SamplingParams(seed=3, max_tokens=30, ignore_eos=True)
    Bench(none, max_num_seqs=16).run([{"prompt": encode("abc"[: 1 + i % 3]), "sampling": params} for i in range(12)])
    full = [step for step in none.steps if all(len(chunk.tokens) == 1 for chunk in step.chunks)]
    assert {len(step.chunks) for step in full[6:36]} == {4}
    assert not {chunk.seq_id for chunk in full[9].chunks} & {chunk.seq_id for chunk in full[10].chunks}
    alone = executor(3)
    Bench(alone).run([{"prompt": encode("x" * 90), "sampling": SamplingParams(seed=3, max_tokens=1)}])
    assert alone.most_in_flight == 3


def test_a_cache_that_does_not_come_back_fails_requests_in_time_and_new_ones_at_once() -> None:
    for depth in DEPTHS:
        faulty = FaultyExecutor({7: "lost"}, polls=10**9, depth=depth, num_pages=400, row=by_all_tokens)
        bench = Bench(faulty, replay_timeout_s=0.2)
        told = [bench.submit(request) for request in requests()]
        began = time.monotonic()
        with bench:
            for events in told:
                end = until_end(events)[-1]
                assert isinstance(end, FinishEvent)
                assert end.reason in (FinishReason.FAIL, FinishReason.STOP)
                assert end.error is None or type(end.error) in (UnavailableError, ControllerError)
            assert time.monotonic() - began > 0.1
            assert wait_until(partial(no_guest_lives, bench), PATIENCE_S)
            [end] = until_end(bench.submit(requests()[0]))
            assert isinstance(end, FinishEvent)
            assert str(end.error) == "the model is not available: stage 1 is gone"
            faulty.polls_left = 0
            while bench.loop._recovery.error is not None:
                time.sleep(0.01)
            end = until_end(bench.submit(requests()[0]))[-1]
            assert isinstance(end, FinishEvent)
            assert end.reason is FinishReason.LENGTH


def test_requests_that_wait_for_a_cache_are_aborted_at_once() -> None:
    faulty = FaultyExecutor({7: "lost"}, polls=10**9, depth=2, num_pages=400, row=by_all_tokens)
    bench = Bench(faulty)
    told = [bench.submit(request) for request in requests()]
    with bench:
        while not bench.loop._recovery.is_waiting:
            time.sleep(0.01)
        for number, events in enumerate(told, 1):
            bench.loop.abort(SeqId(number))
            until_end(events)


def test_a_request_that_kills_the_executor_each_time_fails_alone() -> None:
    class Deadly(FaultyExecutor):
        def begin(self, step: StepInput) -> NullStep:
            if any(chunk.seq_id == 2 for chunk in step.chunks):
                self.lose()
            return super().begin(step)

    deadly = Deadly({}, polls=1, depth=2, num_pages=400, row=by_all_tokens)
    bench = Bench(deadly, replay_timeout_s=0.3)
    params = SamplingParams(seed=3, max_tokens=8, ignore_eos=True)
    first, second = (bench.submit({"prompt": encode(text), "sampling": params}) for text in ("x" * 60, "y"))
    with bench:
        end = until_end(second)[-1]
        assert isinstance(end, FinishEvent)
        assert type(end.error) is UnavailableError
        until_end(first)
        while bench.loop._recovery.is_waiting:
            time.sleep(0.01)
        end = until_end(bench.submit({"sampling": params}))[-1]
        assert isinstance(end, FinishEvent)
        assert end.error is None


def test_the_time_limit_of_a_loss_is_over_when_all_sequences_are_suspended() -> None:
    executor = NullExecutor(depth=2, num_pages=40)
    bench = Bench(executor, replay_timeout_s=0.2)
    recovery = bench.loop._recovery
    recovery.begin(StateLostError("stage 1 is gone"))
    recovery.wait()
    assert recovery._lost_at is not None
    bench.loop._step()
    assert recovery._lost_at is None
    with bench:
        pass


def test_a_loss_while_nothing_runs_is_mended_before_the_next_request() -> None:
    faulty = FaultyExecutor({}, polls=3, depth=2, num_pages=400, row=by_all_tokens)
    with Bench(faulty) as bench:
        before = until_end(bench.submit(requests()[0]))
        faulty.lose_idle()
        while faulty.is_lost:
            time.sleep(0.01)
        after = until_end(bench.submit(requests()[0]))
    assert outcome(after) == outcome(before)
    end = after[-1]
    assert isinstance(end, FinishEvent)
    assert end.usage.cached_tokens == 0
