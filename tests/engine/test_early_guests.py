"""Prompts that are computed while their guests start: whenever a guest starts, clients and guests hear the same."""

import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError, RuntimeDiedError
from aici_engine.config import SamplingParams
from aici_engine.events import AcceptedEvent, Event, FinishEvent, FinishReason
from aici_engine.local_executor import ComputedStep
from aici_engine.request import ControllerCall, Share
from aici_engine.step_input import StepInput
from tests.engine.loop_bench import LoopBench, ReadyRuntime, host_sampler, until_end
from tests.engine.null_executor import NullExecutor, NullStep, by_all_tokens
from tests.engine.programs import Program, Step
from tests.engine.support import encode
from tests.engine.test_flights import PROGRAMS, outcome, reference, requests


class LateRuntime(ReadyRuntime):
    """Starts guest k in pass `due[k]` after it was asked for, at the latest after `longest_s`. A guest named "never"
    fails then."""

    def __init__(self, due: list[int], *, longest_s: float = 0.01) -> None:
        super().__init__({"program": Program})
        self._due = due
        self._longest_s = longest_s
        self._starting: list[tuple[int, Future[None], dict[str, Any]]] = []
        self._lock = threading.Lock()
        self._timers: list[threading.Timer] = []
        self.num_passes = 0

    def instantiate(self, **asked: Any) -> "Future[None]":
        future: Future[None] = Future()
        due = self._due.pop(0) if self._due else 0
        with self._lock:
            self._starting.append((self.num_passes + due, future, asked))
        self._timers.append(threading.Timer(self._longest_s, self.start, [1 << 30]))
        self._timers[-1].start()
        return future

    def note_pass(self) -> None:
        self.num_passes += 1
        self.start(self.num_passes)

    def start(self, num_passes: int) -> None:
        with self._lock:
            ready = [each for each in self._starting if each[0] <= num_passes]
            self._starting = [each for each in self._starting if each not in ready]
        for _, future, asked in ready:
            if asked["module_id"] == "never":
                future.set_exception(AiciError("it does not start"))
            else:
                super().instantiate(**asked)
                future.set_result(None)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()


class Passes(NullExecutor):
    """Tells the runtime of each pass, before the logits are there."""

    runtime: LateRuntime | None = None

    def compute(self, pending: NullStep) -> Any:
        if self.runtime is not None:
            self.runtime.note_pass()
        return super().compute(pending)


class PassesInC(Passes):
    """Computes a pass in `begin`. The pass goes on until guests that have started are bound, for at most `longest_s`.

    `num_joined`: the guests bound during passes.
    """

    computes_in_c = True
    longest_s = 0.002

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.num_joined = 0

    def begin(self, step: StepInput) -> Any:
        pending = super().begin(step)
        assert self.runtime is not None
        before = len(self.runtime.live)
        logits = self.compute(pending)
        until = time.monotonic() + self.longest_s
        while self.runtime._started and time.monotonic() < until:
            time.sleep(0.0002)
        self.num_joined += len(self.runtime.live) - before
        return ComputedStep(logits, None)


anywhere = pytest.mark.parametrize("passes", [Passes, PassesInC])


def late_bench(
    due: list[int],
    *,
    num_pages: int = 400,
    longest_s: float = 0.01,
    passes: type[Passes] = Passes,
    **options: Any,
) -> LoopBench:
    executor = passes(num_pages=num_pages, row=by_all_tokens)
    executor.runtime = runtime = LateRuntime(due, longest_s=longest_s)
    return LoopBench(executor, runtime, host_sampler(), **({"calm_rounds": 3} | options))


class DyingRuntime(LateRuntime):
    """Dies in its first pass, with the guests that start."""

    def start(self, num_passes: int) -> None:
        with self._lock:
            starting, self._starting = self._starting, []
        for _, future, _ in starting:
            future.set_exception(RuntimeDiedError("the runtime has died"))


def with_dying_runtime(bench: LoopBench, due: list[int]) -> DyingRuntime:
    """Let the loop use a runtime that dies, and wait for the next one then."""
    assert isinstance(bench.executor, Passes)
    bench.executor.runtime = bench.runtime = dying = DyingRuntime(due)
    bench.loop._session.use(dying)
    bench.loop.expect_runtime(True)
    return dying


def run(bench: LoopBench, asked: list[dict[str, Any]]) -> list[list[Event]]:
    try:
        return bench.run(asked)
    finally:
        assert isinstance(bench.runtime, LateRuntime)
        bench.runtime.close()


def told(bench: LoopBench) -> list[str]:
    return sorted(repr((guest.argument, guest.told)) for guest in bench.runtime.all)


@given(
    st.lists(st.integers(0, 6), max_size=len(PROGRAMS)),
    st.sampled_from([{}, {"max_num_seqs": 2}, {"num_pages": 26}, {"max_batch_tokens": 5, "max_num_seqs": 4}]),
)
@anywhere
@settings(max_examples=20)
def test_clients_and_guests_hear_the_same(passes: type[Passes], due: list[int], options: dict[str, Any]) -> None:
    outcomes, guests = reference(requests())  # a sequence changes its request's list of tokens
    bench = late_bench(due, passes=passes, **options)
    assert [outcome(events) for events in run(bench, requests())] == outcomes
    assert told(bench) == guests


def one(program: list[Step], name: str = "program") -> dict[str, Any]:
    return {"controller": ControllerCall(name, program), "sampling": SamplingParams(seed=5, max_tokens=40)}


@pytest.mark.parametrize(("due", "num_steps"), [(0, 2), (1, 2), (40, 3)])
def test_a_guest_in_time_costs_no_step_and_a_late_guest_one(due: int, num_steps: int) -> None:
    """ "Due in pass 0" starts beside the first pass too: the loop does not wait for the start."""
    bench = late_bench([due], longest_s=0.25)  # longer than a pass takes on a busy machine
    [events] = run(bench, [one([("say", "ab")])])
    assert isinstance(events[0], AcceptedEvent)
    assert isinstance(end := events[-1], FinishEvent)
    assert end.text == "ab"
    assert isinstance(bench.executor, Passes)
    assert len(bench.executor.steps) == num_steps


def test_guests_join_while_the_pass_computes() -> None:
    """The pass of two prompts goes on until both guests are bound."""
    bench = late_bench([0, 0], longest_s=60.0, passes=PassesInC)
    assert isinstance(bench.executor, PassesInC)
    bench.executor.longest_s = 10.0
    asked = [one([("say", "ab")]), one([("say", "cd")]) | {"prompt": encode("another prompt")}]
    ends = [events[-1] for events in run(bench, asked)]
    assert [end.text for end in ends if isinstance(end, FinishEvent)] == ["ab", "cd"]
    assert bench.executor.num_joined == 2
    assert len(bench.executor.steps) == 2


@anywhere
def test_a_guest_that_fails_to_start_takes_its_prompt_along(passes: type[Passes]) -> None:
    bench = late_bench([1], passes=passes)
    ends = [events[-1] for events in run(bench, [one([("say", "ab")], "never"), one([("say", "ab")])])]
    assert [end.reason for end in ends if isinstance(end, FinishEvent)] == [FinishReason.FAIL, FinishReason.STOP]


def test_a_guest_that_starts_keeps_no_place() -> None:
    """The only place is free once the prompt is computed."""
    bench = late_bench([1 << 29], longest_s=60.0, max_num_seqs=1)
    slow, quick = [bench.submit(each) for each in (one([("say", "ab")]), {"sampling": SamplingParams(max_tokens=3)})]
    assert isinstance(bench.runtime, LateRuntime)
    with bench:
        assert isinstance(until_end(quick)[-1], FinishEvent)
        assert slow.empty()
        bench.runtime.start(1 << 30)
        until_end(slow)
    bench.runtime.close()


@anywhere
def test_computed_prompts_outlive_the_runtime(passes: type[Passes]) -> None:
    """Guests that start when their runtime dies start on the next one."""

    bench = late_bench([], passes=passes)
    assert isinstance(bench.executor, Passes)
    dying = with_dying_runtime(bench, due=[1, 3])
    told = [bench.submit(one([("say", text)])) for text in ("ab", "cd")]
    with bench:
        deadline = time.monotonic() + 10
        while dying._starting or not dying.num_passes:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        dying.close()
        bench.executor.runtime = bench.runtime = new = LateRuntime([0, 4])
        bench.loop.use_runtime(new)
        ends = [until_end(events)[-1] for events in told]
        assert [end.text for end in ends if isinstance(end, FinishEvent)] == ["ab", "cd"]
    new.close()


def test_without_a_runtime_a_computed_prompt_takes_no_steps() -> None:
    """The runtime dies between two chunks of the prompt: the only place is free for others after the last chunk."""

    bench = late_bench([], max_num_seqs=1, max_batch_tokens=5)
    assert isinstance(bench.executor, Passes)
    dead = with_dying_runtime(bench, due=[1])
    bench.submit({**one([("say", "ab")]), "prompt": encode("a prompt of several chunks")})
    plain = bench.submit({"sampling": SamplingParams(ignore_eos=True), "limit": 8})
    with bench:
        assert isinstance(until_end(plain)[-1], FinishEvent)
    assert len(bench.executor.steps) < 12
    dead.close()


def test_prompts_of_an_owner_beyond_the_budget_are_slowed_while_guests_start() -> None:
    share = Share(owner="spender", guest_cpu_s=0.001)
    bench = late_bench([5] * 6, longest_s=60.0)
    bench.loop._session.guest_time.add({share: 1000.0})
    spent = [
        bench.submit({**one([("say", "a")]), "prompt": encode(20 * f"{number}"), "share": share}) for number in range(6)
    ]
    plain = bench.submit({"sampling": SamplingParams(seed=3, ignore_eos=True)})
    with bench:
        for events in (*spent, plain):
            until_end(events)
    assert isinstance(bench.runtime, LateRuntime)
    bench.runtime.close()
    assert isinstance(bench.executor, Passes)
    owned = [any(chunk.seq_id <= len(spent) for chunk in step.chunks) for step in bench.executor.steps]
    assert sum(owned[:24]) <= 24 // 8 + 1, "an owner beyond the budget takes part in one step of eight"


@anywhere
def test_a_guest_that_wants_more_at_once_takes_no_token_from_the_prompt(passes: type[Passes]) -> None:
    programs: list[list[Step]] = [
        [("force", "x"), ("any", 2)],
        [("fork", [[("say", "a")], [("say", "b")]])],
        [("idle", 1), ("say", "c")],
        [("back", 2, "lo"), ("any", 2)],
        [("fail", "at once")],
    ]
    asked = [one(program) for program in programs]
    outcomes, guests = reference(asked)
    bench = late_bench([1] * len(asked), passes=passes)
    assert [outcome(events) for events in run(bench, asked)] == outcomes
    assert told(bench) == guests
