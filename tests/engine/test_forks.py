"""Requests with several sequences: their texts, their shared pages and their ends."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError, RuntimeDiedError
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.control.guest_wishes import MAX_FORKS_IN_ALL
from aici_engine.engine import Engine
from aici_engine.events import BacktrackEvent, ControlEvent, Event, FinishEvent, FinishReason, ForkEvent, Origin
from aici_engine.request import ControllerCall, Request, RequestHandle
from tests.engine.programs import Program, Step, Told, by_fork, expected
from tests.engine.support import Guest, ScriptedRuntime, write_tiny_model

PROMPT = "Hello, fork"


@pytest.fixture
def runtime() -> ScriptedRuntime:
    runtime = ScriptedRuntime({"program": Program, "guest": Guest})
    runtime.max_forks = 40
    return runtime


@pytest.fixture
def engine(tiny_model: Path, runtime: ScriptedRuntime) -> Iterator[Engine]:
    config = EngineConfig(model_dir=tiny_model, num_pages=300, page_size=4, max_num_seqs=8, max_batch_tokens=32)
    with Engine(config, runtime=runtime) as engine:
        yield engine
        nothing_left(engine, runtime)


def nothing_left(engine: Engine, runtime: ScriptedRuntime) -> None:
    deadline = time.monotonic() + 2
    while runtime.live and not runtime.dies_at_round and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not runtime.live or runtime.dies_at_round
    assert engine.get_stats()["cache_usage"] == 0.0
    engine._components.cache.check_integrity()


def submit(engine: Engine, *program: Step, **sampling: Any) -> RequestHandle:
    call = ControllerCall("program", list(program))
    sampling = {"temperature": 0.0} | sampling
    return engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(**sampling), controller=call))


def run(engine: Engine, *program: Step, **sampling: Any) -> dict[int, Told]:
    return by_fork(list(submit(engine, *program, **sampling).events()))


def texts(forks: dict[int, Told]) -> list[str]:
    return [told.end.text for told in forks.values() if told.end]


def reasons(forks: dict[int, Told]) -> list[FinishReason]:
    return [told.end.reason for told in forks.values() if told.end]


def errors(forks: dict[int, Told]) -> list[str]:
    return [str(told.end.error or "") for told in forks.values() if told.end]


def test_each_fork_has_its_text(engine: Engine) -> None:
    forks = run(engine, ("say", "one "), ("fork", [[("say", "a")], [("say", "b")], [("say", "cd")]]), ("say", "!"))
    assert texts(forks) == ["one a!", "one b!", "one cd!"]
    assert [told.stream for told in forks.values()] == texts(forks)
    assert [told.parent for told in forks.values()] == [None, 0, 0]
    assert set(reasons(forks)) == {FinishReason.STOP}


def test_forks_are_numbered_as_they_come(engine: Engine) -> None:
    inner = ("fork", [[("say", "x")], [("say", "y")]])
    forks = run(engine, ("fork", [[("say", "abc")], [("say", "d"), inner], [("say", "e")]]), ("say", "!"))
    assert texts(forks) == ["abc!", "dx!", "e!", "dy!"]
    assert [told.parent for told in forks.values()] == [None, 0, 0, 1]


def test_one_forward_pass_is_for_all_of_them(engine: Engine, runtime: ScriptedRuntime) -> None:
    say = [[("say", letter)] for letter in "abcdefgh"]
    rounds = runtime.rounds
    forks = run(engine, ("fork", say))
    assert texts(forks) == list("abcdefgh")
    # The first round binds, forks and samples; the second stops.
    assert runtime.rounds - rounds <= 3


def test_the_request_costs_what_its_forks_did(engine: Engine) -> None:
    *_, end = submit(engine, ("say", "one"), ("fork", [[("say", "a")], [("force", "bcd"), ("say", "e")]])).events()
    assert isinstance(end, FinishEvent)
    assert (end.usage.prompt_tokens, end.usage.sampled_tokens, end.usage.ff_tokens) == (len(PROMPT), 5, 3)
    assert end.usage.cost == 13


def test_a_root_that_ends_first_says_so_at_once_and_again_at_the_end(engine: Engine) -> None:
    events = list(submit(engine, ("fork", [[("say", "a")], [("say", "long enough")]])).events())
    at = next(i for i, event in enumerate(events) if isinstance(event, ForkEvent) and event.fork == 0)
    [*_, first_end] = [e.event for e in events if isinstance(e, ForkEvent) and e.fork == 0]
    last = events[-1]
    assert at < len(events) - 3
    assert isinstance(first_end, FinishEvent)
    assert isinstance(last, FinishEvent)
    assert (first_end.text, first_end.usage.sampled_tokens) == (last.text, 1) == ("a", 1)
    assert last.usage.sampled_tokens == 1 + len("long enough")
    assert last.timings.total_s >= first_end.timings.total_s


@pytest.mark.parametrize(
    "program",
    [
        # The splice removes shared tokens from before the fork, or tokens of the prompt, or only tokens after the fork.
        [("say", "shared"), ("fork", [[("back", 4, "XY")], [("say", "b")], [("back", 8, "")]]), ("any", 9)],
        [("fork", [[("any", 3)], [("force", "forced")], [("say", "s"), ("back", 1, "t")]]), ("any", 9)],
        [("force", "f" * 40), ("fork", [[("idle", 2)], [], [("idle", 7)]]), ("any", 9)],
    ],
)
def test_a_fork_says_what_a_request_of_its_own_would(engine: Engine, program: Sequence[Step]) -> None:
    at = next(i for i, step in enumerate(program) if step[0] == "fork")
    forks = run(engine, *program)
    alone = [run(engine, *program[:at], *branch, *program[at + 1 :]) for branch in program[at][1]]
    assert texts(forks) == [texts(one)[0] for one in alone]
    assert [told.end.tokens for told in forks.values() if told.end] == [
        one[0].end.tokens for one in alone if one[0].end
    ]


def test_thirty_two_forks_say_what_thirty_two_requests_with_their_seeds_do(engine: Engine) -> None:
    cache = engine._components.cache
    most = [0]
    fork = ("fork", [[("any", 12)]] * 32)
    handle = submit(engine, ("force", "p" * 60), fork, temperature=1.0, seed=7)
    events = []
    for event in handle.events():
        events.append(event)
        most[0] = max(most[0], cache.num_pages - cache.num_free_pages)
    forks = by_fork(events)
    ends = [submit(engine, ("force", "p" * 60), ("any", 12), temperature=1.0, seed=7 + k).wait() for k in range(32)]
    assert texts(forks) == [end.text for end in ends]
    assert len(set(texts(forks))) > 25
    separate = 32 * cache.num_pages_for(len(PROMPT) + 60 + 12)
    assert 0 < 3 * most[0] < separate


def test_texts_of_nested_forks_do_not_depend_on_scheduling(tiny_model: Path, runtime: ScriptedRuntime) -> None:
    """The numbers of the forks do."""
    fork = ("fork", [[("any", 9)], [("say", "b"), ("any", 8)], [("any", 8)]])
    told, parents = [], []
    for max_num_seqs in (3, 30):
        config = EngineConfig(model_dir=tiny_model, num_pages=300, page_size=4, max_num_seqs=max_num_seqs)
        with Engine(config, runtime=runtime) as engine:
            forks = run(engine, fork, fork, fork, temperature=1.0, seed=7)
        told.append({fork.lineage: fork.end and (fork.end.text, fork.end.tokens) for fork in forks.values()})
        parents.append([fork.parent for fork in forks.values()])
    assert told[0] == told[1]
    assert len({text for text, _ in told[0].values()}) == 27
    assert parents[0] != parents[1]


def test_fork_k_of_the_root_draws_as_seed_plus_k_after_a_fork_of_a_fork(engine: Engine) -> None:
    """The second fork of the root is number 3: fork 1 has forked before."""
    twice = ("fork", [[("any", 12)]] * 2)
    forks = run(engine, ("fork", [[("say", "abc"), twice], [twice]]), temperature=1.0, seed=7)
    assert [fork.lineage for fork in forks.values()] == [(), (1,), (1, 1), (2,)]
    ends = [submit(engine, ("force", begin), ("any", 12), temperature=1.0, seed=seed).wait() for begin, seed in
            (("", 8), ("abc", 9))]  # fmt: skip
    assert [texts(forks)[number] for number in (1, 3)] == [end.text for end in ends]
    assert len(set(texts(forks))) == 4


def test_forks_without_a_seed_differ(engine: Engine) -> None:
    forks = run(engine, ("fork", [[("any", 12)]] * 8), temperature=1.0)
    assert len(set(texts(forks))) == 8


def test_forks_wait_for_each_other(engine: Engine) -> None:
    forks = run(
        engine,
        ("fork", [[("say", "a"), ("set", "x", "1"), ("wait", "y")], [("wait", "x"), ("say", "b"), ("set", "y", "2")]]),
        ("say", "!"),
    )
    assert texts(forks) == ["a!", "b!"]


def test_forks_that_wait_take_no_slots(engine: Engine) -> None:
    """Eight sequences may run, and eight suspended sequences wait for the ninth."""
    waits = [[("wait", "x"), ("say", letter)] for letter in "abcdefgh"]
    assert texts(run(engine, ("fork", [*waits, [("say", "z"), ("set", "x", "")]]))) == [*"abcdefgh", "z"]


def test_all_forks_suspended_is_a_deadlock(engine: Engine) -> None:
    beside = submit(engine, ("any", 100))
    forks = run(engine, ("fork", [[("say", "a"), ("wait", "x")], [("wait", "y")], [("say", "done")]]))
    assert reasons(forks) == [FinishReason.DEADLOCK] * 2 + [FinishReason.STOP]
    assert texts(forks) == ["a", "", "done"]
    assert beside.wait().error is None


def test_one_that_works_keeps_the_others_from_being_deadlocked(engine: Engine) -> None:
    forks = run(engine, ("fork", [[("wait", "x"), ("say", "a")], [("any", 60), ("set", "x", "")]]))
    assert reasons(forks) == [FinishReason.STOP] * 2


def test_a_fork_that_fails_fails_alone(engine: Engine) -> None:
    forks = run(engine, ("fork", [[("fail", "root")], [("say", "b")], [("say", "c"), ("fail", "Error: so it is")]]))
    assert reasons(forks) == [FinishReason.FAIL, FinishReason.STOP, FinishReason.FAIL]
    assert errors(forks) == ["root", "", "Error: so it is"]
    assert texts(forks) == ["", "b", "c"]


def test_forks_beyond_the_limit_fail_alone_and_say_why(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.max_forks = 3
    forks = run(engine, ("fork", [[("say", letter)] for letter in "abcde"]), ("say", "!"))
    assert texts(forks) == ["a!", "b!", "c!", "", ""]
    assert errors(forks)[3:] == ["Worker: too many forks (max=3)"] * 2


def test_forks_for_ever_end_the_request(engine: Engine) -> None:
    """All forks are short-lived, so the limit of live forks does not apply."""
    forever = ("fork", ([], [("say", "x")], [("say", "x")], [("say", "x")]))
    forks = run(engine, *[forever] * 400)
    assert MAX_FORKS_IN_ALL - 40 <= len(forks) <= MAX_FORKS_IN_ALL
    assert reasons(forks)[0] is FinishReason.FAIL
    assert errors(forks)[0] == f"the controller forked into more than {MAX_FORKS_IN_ALL} sequences in all"


def test_an_abort_ends_all_forks(engine: Engine) -> None:
    forks: dict[int, Told] = {}
    for early in (True, False):
        handle = submit(engine, ("fork", [[("say", "a")], [("any", 200)], [("wait", "x")]]))
        seen: list[Event] = []
        for event in handle.events():
            seen.append(event)
            if isinstance(event, ForkEvent) and (early or isinstance(event.event, FinishEvent)):
                handle.abort()
        forks = by_fork(seen)
        assert reasons(forks)[1:] == [FinishReason.ABORT] * 2
    assert reasons(forks)[0] is FinishReason.STOP


def test_a_listener_that_fails_loses_the_request_with_all_forks(engine: Engine) -> None:
    ended = threading.Event()

    def sink(event: Event) -> None:
        if isinstance(event, ForkEvent):
            ended.set()
            raise RuntimeError("boom")

    program = [("fork", [[("any", 200)]] * 4)]
    engine.submit(Request(prompt=PROMPT, controller=ControllerCall("program", program)), sink=sink)
    assert ended.wait(5)
    assert texts(run(engine, ("say", "on it goes"))) == ["on it goes"]


def test_fuel_is_the_requests(tmp_path: Path, runtime: ScriptedRuntime) -> None:
    """Ten contexts are 640, enough for a single fork, but not for eight. A guest without changes pays too."""
    with Engine(EngineConfig(model_dir=write_tiny_model(tmp_path, context=64)), runtime=runtime) as engine:
        churn = [("any", 8), ("back", 8, "")] * 10
        forks = run(engine, ("fork", [churn] * 8))
        assert set(reasons(forks)) == {FinishReason.OUT_OF_FUEL}
        assert reasons(run(engine, *churn)) == [FinishReason.STOP]
        [told] = run(engine, ("idle", 10**9)).values()
        assert told.end is not None
        assert (told.end.reason, told.end.text) == (FinishReason.OUT_OF_FUEL, "")


def test_forced_text_that_has_no_room_was_cut_by_the_length(engine: Engine) -> None:
    [told] = run(engine, ("force", "Hello"), max_tokens=3).values()
    assert told.end is not None
    assert (told.end.text, told.end.reason) == ("Hel", FinishReason.LENGTH)
    [told] = run(engine, ("force", "Hello"), max_tokens=5).values()
    assert told.end is not None
    assert (told.end.text, told.end.reason) == ("Hello", FinishReason.STOP)


def test_max_tokens_bounds_each_fork(engine: Engine) -> None:
    forks = run(engine, ("say", "abc"), ("fork", [[("say", "defgh")], [("say", "i")]]), max_tokens=5)
    assert texts(forks) == ["abcde", "abci"]
    assert reasons(forks) == [FinishReason.LENGTH, FinishReason.STOP]


def test_a_stop_string_may_begin_before_the_fork(engine: Engine) -> None:
    branches = [[("say", "d tail")], [("say", "x")], []]
    forks = run(engine, ("say", "abc"), ("fork", branches), ("any", 1), stop=("bcd",))
    assert [told.stream for told in forks.values()] == texts(forks)
    assert (texts(forks)[0], reasons(forks)[0]) == ("a", FinishReason.STOP_STRING)
    assert texts(forks)[1].startswith("abcx")


def test_a_character_may_be_cut_in_two_by_the_fork(engine: Engine) -> None:
    branches = [[("say", b"\xa9")], [("say", b"\xa4")], [("say", "e")], []]
    forks = run(engine, ("say", b"n\xc3"), ("fork", branches))
    assert texts(forks) == ["n\u00e9", "n\u00e4", "n\ufffde", "n\ufffd"]
    assert [told.stream for told in forks.values()] == texts(forks)


def test_what_was_taken_back_before_the_fork_is_not_in_its_stream(engine: Engine) -> None:
    forks = run(engine, ("say", "abc"), ("back", 2, ""), ("fork", [[("say", "x")], [("say", "y"), ("back", 1, "z")]]))
    assert [told.stream for told in forks.values()] == ["abc \u21a9 x", "ay \u21a9 z"]


def test_what_forks_log_and_write_is_theirs(engine: Engine) -> None:
    forks = run(engine, ("log", "both"), ("say", "a"), ("fork", [[("log", "one")], [("log", "two")]]), ("say", "b"))
    assert [told.end.logs for told in forks.values() if told.end] == ["bothone", "two"]
    for told in forks.values():
        assert told.end is not None
        assert told.end.logs == "".join(e.logs for e in told.events if isinstance(e, ControlEvent))


def test_when_the_runtime_dies_every_fork_fails(engine: Engine, runtime: ScriptedRuntime) -> None:
    handle = submit(engine, ("fork", [[("any", 200)], [("say", "b")], [("wait", "x")]]))
    events: list[Event] = []
    for event in handle.events():
        events.append(event)
        runtime.dies_at_round = runtime.dies_at_round or runtime.rounds + 8
    forks = by_fork(events)
    assert isinstance(forks[0].end and forks[0].end.error, RuntimeDiedError)
    assert handle.wait().reason is FinishReason.FAIL


def test_a_fork_that_the_runtime_refuses_to_hear_of_makes_no_sequences(
    engine: Engine, runtime: ScriptedRuntime
) -> None:
    class Deaf(ScriptedRuntime):
        def send_turn(self, *, ops: Any, **others: Any) -> None:
            if any(op.clone_id for op in ops):
                raise AiciError("no such mid")
            super().send_turn(ops=ops, **others)

    deaf = Deaf({"program": Program})
    engine.use_runtime(deaf)
    forks = run(engine, ("say", "a"), ("fork", [[("say", "b")]] * 3))
    assert errors(forks) == ["no such mid"]
    assert texts(run(engine, ("say", "on it goes"))) == ["on it goes"]


@pytest.mark.parametrize(("num_pages", "prefix_cache"), [(70, True), (24, False), (12, True)])
def test_forks_with_few_pages_say_the_same(
    tiny_model: Path, runtime: ScriptedRuntime, num_pages: int, prefix_cache: bool
) -> None:
    config = EngineConfig(
        model_dir=tiny_model, num_pages=num_pages, page_size=4, max_num_seqs=4, max_batch_tokens=16,
        prefix_cache=prefix_cache,
    )  # fmt: skip
    wait = [("wait", "x"), ("say", "woken "), ("any", 3)]
    program = [
        ("say", "begin "),
        ("fork", [wait, wait, [("any", 9)], [("say", "a" * 14)], [("any", 5), ("set", "x", ""), ("say", "ok")], wait]),
        ("back", 2, "Z"),
        ("any", 2),
    ]
    with Engine(config, runtime=runtime) as engine:
        handles = [submit(engine, *program) for _ in range(3)]
        told = [by_fork(list(handle.events())) for handle in handles]
        preempted = engine.get_stats()["num_preemptions"]
        nothing_left(engine, runtime)
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=500), runtime=runtime) as engine:
        reference = run(engine, *program)
    assert all(texts(forks) == texts(reference) for forks in told)
    assert set(reasons(reference)) == {FinishReason.STOP}
    assert (preempted > 0) == (num_pages < 70)


def test_a_splice_that_changes_nothing_is_no_event(engine: Engine) -> None:
    events = list(submit(engine, ("idle", 3), ("say", "ab"), ("idle", 3), ("say", "c")).events())
    end = events[-1]
    assert isinstance(end, FinishEvent)
    assert (end.text, end.usage.sampled_tokens, end.usage.ff_tokens) == ("abc", 3, 0)
    assert not any(isinstance(event, BacktrackEvent) for event in events)


def test_a_splice_keeps_what_it_puts_back(engine: Engine, runtime: ScriptedRuntime) -> None:
    events = list(submit(engine, ("say", "abcd"), ("back", 3, "bXY")).events())
    end = events[-1]
    assert isinstance(end, FinishEvent)
    assert end.text == "abXY"
    assert BacktrackEvent(2) in events
    assert [token.origin for token in end.tokens] == [Origin.SAMPLED] * 2 + [Origin.FORCED] * 2
    # The guest is told of its splice.
    assert runtime.all[-1].told[-1] == ([ord(c) for c in "bXY"], 4)


def test_what_is_put_back_of_the_prompt_stays_the_prompts(engine: Engine) -> None:
    [told] = run(engine, ("say", "!"), ("back", 5, "foXX")).values()
    assert told.end is not None
    assert told.end.text == "XX"


_TEXT = st.text("abc", min_size=1, max_size=6)
_SPOKEN = st.one_of(
    st.tuples(st.just("say"), _TEXT).map(lambda step: [step]),
    st.tuples(st.just("force"), _TEXT).map(lambda step: [step]),
    st.just([("idle", 2)]),
    st.builds(lambda text, n, new: [("say", text), ("back", min(n, len(text)), new)], _TEXT, st.integers(1, 6), _TEXT),
)
_PIECES = st.lists(_SPOKEN, max_size=2).map(lambda pieces: [step for piece in pieces for step in piece])


@st.composite
def _programs(draw: st.DrawFn, depth: int = 2) -> list[Step]:
    """The last branch of a fork sets the variable that other branches may wait for."""
    program = draw(_PIECES)
    if depth and draw(st.booleans()):
        name = f"v{draw(st.integers(0, 10**9))}"
        branches = [draw(_programs(depth - 1)) for _ in range(draw(st.integers(2, 3)))]
        waits = [[("wait", name)] if draw(st.booleans()) else [] for _ in branches[:-1]]
        program.append(("fork", [[*w, *b] for w, b in zip(waits, branches[:-1], strict=True)]))
        program[-1][1].append([*branches[-1], ("set", name, "")])
    return program + draw(_PIECES)


@pytest.fixture(scope="module")
def narrow(tiny_model: Path) -> Iterator[tuple[Engine, ScriptedRuntime, list[str]]]:
    """Three running sequences, and pages for one long sequence. The list collects errors of the cache after steps."""
    wrong: list[str] = []

    def check() -> None:
        try:
            engine._components.cache.check_integrity()
        except AssertionError as error:
            wrong.append(str(error))

    runtime = ScriptedRuntime({"program": Program})
    runtime.max_forks = 40
    config = EngineConfig(model_dir=tiny_model, num_pages=24, page_size=4, max_num_seqs=3, max_batch_tokens=12)
    with Engine(config, runtime=runtime, on_step=check) as engine:
        yield engine, runtime, wrong


@settings(max_examples=60, deadline=None)
@given(programs=st.lists(_programs(), min_size=1, max_size=3))
def test_random_programs_say_what_they_must(
    narrow: tuple[Engine, ScriptedRuntime, list[str]], programs: list[list[Step]]
) -> None:
    engine, runtime, wrong = narrow
    handles = [submit(engine, *program) for program in programs]
    for handle, program in zip(handles, programs, strict=True):
        forks = by_fork(list(handle.events()))
        assert sorted(texts(forks)) == sorted(expected(program))
        assert set(reasons(forks)) == {FinishReason.STOP}
    nothing_left(engine, runtime)
    assert not wrong
