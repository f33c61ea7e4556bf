"""The engine over vLLM's rows, with a fake of vLLM: guests are asked and heard as on aici's own engine."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError, UsageError
from aici_base.ids import TokenId
from aici_engine.components import EngineComponents
from aici_engine.config import EngineConfig, SamplingParams, VllmSettings
from aici_engine.engine import Engine
from aici_engine.events import AcceptedEvent, FinishEvent, FinishReason
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_engine.vllm.components import connect
from tests.engine.programs import Program, Step, Told, by_fork, expected
from tests.engine.support import EOS, EOT, Guest, ScriptedRuntime, write_tokenizer
from tests.support.fake_rows import FakeRowEngine

PROMPT = "Hello, vLLM"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_tokenizer(folder)
    return folder


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime({"program": Program, "guest": Guest})


@pytest.fixture
def rows() -> FakeRowEngine:
    return FakeRowEngine()


def engine_over(folder: Path, rows: FakeRowEngine, runtime: ScriptedRuntime) -> Engine:
    config = EngineConfig(model_dir=folder, max_num_seqs=4, vllm=VllmSettings())
    eos = frozenset({EOS, EOT})
    return Engine(config, runtime=runtime, build=lambda config, *others: connect(config, rows, eos, *others))


@pytest.fixture
def engine(folder: Path, rows: FakeRowEngine, runtime: ScriptedRuntime) -> Iterator[Engine]:
    with engine_over(folder, rows, runtime) as engine:
        yield engine
        nothing_left(rows, runtime)
    assert rows.closed


def nothing_left(rows: FakeRowEngine, runtime: ScriptedRuntime) -> None:
    deadline = time.monotonic() + 20
    while (rows.rows or (runtime.live and not runtime.dies_at_round)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not runtime.live or runtime.dies_at_round
    assert not rows.rows


def submit(engine: Engine, *program: Step, **sampling: Any) -> RequestHandle:
    call = ControllerCall("program", list(program))
    return engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(**sampling), controller=call))


def run(engine: Engine, *program: Step, **sampling: Any) -> dict[int, Told]:
    return by_fork(list(submit(engine, *program, **sampling).events()))


def texts(forks: dict[int, Told]) -> list[str]:
    return [told.end.text for told in forks.values() if told.end]


def test_plain_requests(engine: Engine) -> None:
    prompts = [PROMPT[:length] for length in (3, 9, 11, 4, 5, 6)]
    wanted = ["".join(chr(ord("a") + (len(prompt) + k) % 26) for k in range(7)) for prompt in prompts]
    assert engine.generate(prompts, max_tokens=7) == wanted


def test_a_mask_keeps_its_row(engine: Engine, rows: FakeRowEngine) -> None:
    assert texts(run(engine, ("say", "masks alone"))) == ["masks alone"]
    assert rows.num_added == 1


@pytest.mark.parametrize(
    "program",
    [
        [("say", "!"), ("force", "forced"), ("say", "!")],
        [("say", "a"), ("force", "bc"), ("say", "d")],
        [("say", "abcdef"), ("back", 3, "xyz"), ("say", "!")],
        [("say", "abc"), ("idle", 2), ("say", "d")],
        [("fork", [[("say", "a")], [("force", "b")], [("say", "cd")]]), ("say", "!")],
        [("fork", [[("fork", [[("say", "x")], [("say", "y")]])], [("say", "z")]]), ("force", "!")],
        [("fork", [[("wait", "v"), ("say", "heard")], [("say", "says"), ("set", "v", "1")]])],
    ],
)
def test_what_no_row_can_do_becomes_a_new_row(engine: Engine, rows: FakeRowEngine, program: list[Step]) -> None:
    forks = run(engine, *program)
    assert sorted(texts(forks)) == sorted(expected(program))
    assert {told.end.reason for told in forks.values() if told.end} == {FinishReason.STOP}
    assert rows.num_added > 1


def test_guests_hear_the_same_as_on_the_own_engine(engine: Engine, runtime: ScriptedRuntime, tiny_model: Path) -> None:
    program: list[Step] = [("say", "ab"), ("force", "cd"), ("say", "e"), ("back", 2, "x"), ("say", "!")]
    run(engine, *program)
    own = ScriptedRuntime({"program": Program})
    with Engine(EngineConfig(model_dir=tiny_model), runtime=own) as native:
        run(native, *program)
    assert [guest.told for guest in runtime.all] == [guest.told for guest in own.all]


def test_rows_that_vllm_puts_off_ask_their_guests_once(folder: Path, runtime: ScriptedRuntime) -> None:
    rows = FakeRowEngine(puts_off=2)
    with engine_over(folder, rows, runtime) as engine:
        handles = [submit(engine, ("say", "one"), ("force", "-"), ("say", text)) for text in ("two", "three")]
        ends = [handle.wait() for handle in handles]
    assert [end.text for end in ends] == ["one-two", "one-three"]


def test_without_a_cache_rows_that_arrive_together_begin_together(folder: Path, rows: FakeRowEngine) -> None:
    heard_of_first = threading.Event()

    class Late(Program):
        def init_prompt(self, prompt: list[TokenId]) -> None:
            assert heard_of_first.wait(20)
            super().init_prompt(prompt)

    runtime = ScriptedRuntime({"program": Program, "late": Late})
    config = EngineConfig(model_dir=folder, max_num_seqs=4, prefix_cache=False, vllm=VllmSettings())
    # A clock that stands still: the wait ends when all guests have started.
    with Engine(
        config,
        runtime=runtime,
        build=lambda config, *others: connect(config, rows, frozenset({EOS}), *others, clock=float),
    ) as engine:
        engine.generate(PROMPT, max_tokens=1)  # the time of a step is known
        num_before = rows.num_steps
        call = ControllerCall("late", [("say", "ab")])
        late = engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(), controller=call))
        events = submit(engine, ("say", "ab")).events()
        assert isinstance(next(events), AcceptedEvent)
        heard_of_first.set()
        assert late.wait().text == "ab"
        assert [event.text for event in events if isinstance(event, FinishEvent)] == ["ab"]
        together = rows.num_steps - num_before
        alone_before = rows.num_steps
        assert submit(engine, ("say", "ab")).wait().text == "ab"
        assert together == rows.num_steps - alone_before


PROGRAMS: list[list[Step]] = [
    [("say", "ab")],
    [("force", "ab"), ("say", "c")],
    [("idle", 1), ("say", "a")],
    [("fork", [[("say", "a")], [("force", "b"), ("say", "c")]]), ("say", "!")],
    [("fork", [[("wait", "v"), ("say", "heard")], [("say", "says"), ("set", "v", "1")]])],
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_prompt_is_computed_while_its_guest_starts(folder: Path, program: list[Step], is_in_time: bool) -> None:
    """The guest starts after the step has begun; a late guest, after its first row has ended."""
    has_begun, has_ended = threading.Event(), threading.Event()

    class Watched(FakeRowEngine):
        def step(self, *args: Any) -> Any:
            has_begun.set()
            return super().step(*args)

        def remove(self, key: str) -> None:
            super().remove(key)
            has_ended.set()

    class Late(Program):
        def init_prompt(self, prompt: list[TokenId]) -> None:
            assert (has_begun if is_in_time else has_ended).wait(60)
            super().init_prompt(prompt)

    rows, runtime = Watched(), ScriptedRuntime({"program": Program, "late": Late})
    config = EngineConfig(model_dir=folder, max_num_seqs=4, vllm=VllmSettings())
    # A clock that stands still: the step waits until the guest has started.
    clock = float if is_in_time else time.monotonic

    def build(config: EngineConfig, *others: Any) -> EngineComponents:
        return connect(config, rows, frozenset({EOS}), *others, clock=clock)

    with Engine(config, runtime=runtime, build=build) as engine:
        engine.generate(PROMPT, max_tokens=1)  # the time of a step is known
        has_begun.clear()
        has_ended.clear()
        num_before = rows.num_added
        late = engine.submit(
            Request(prompt=PROMPT, sampling=SamplingParams(), controller=ControllerCall("late", program))
        )
        assert sorted(texts(by_fork(list(late.events())))) == sorted(expected(program))
        if program == PROGRAMS[0]:
            assert rows.num_added - num_before == (1 if is_in_time else 2)
        nothing_left(rows, runtime)


def test_an_abort_ends_the_row_of_a_guest_that_starts(
    engine: Engine, rows: FakeRowEngine, runtime: ScriptedRuntime
) -> None:
    runtime.hold.clear()
    handle = submit(engine, ("say", "late"))
    assert engine.generate(PROMPT, max_tokens=3) == "lmn"
    handle.abort()
    assert handle.wait().reason is FinishReason.ABORT
    assert not rows.rows
    runtime.hold.set()
    assert texts(run(engine, ("say", "next"))) == ["next"]


def test_a_guest_that_never_starts_delays_others_for_a_step_only(
    engine: Engine, rows: FakeRowEngine, runtime: ScriptedRuntime
) -> None:
    engine.generate(PROMPT, max_tokens=1)
    runtime.hold.clear()
    waiting = submit(engine, ("say", "late"))
    assert engine.generate(PROMPT, max_tokens=3) == "lmn"
    runtime.hold.set()
    assert waiting.wait().text == "late"


def test_a_dead_worker_is_found_without_a_request(folder: Path, runtime: ScriptedRuntime) -> None:
    rows, has_failed = FakeRowEngine(is_elsewhere=True), threading.Event()

    def build(config: EngineConfig, *others: Any) -> EngineComponents:
        return connect(config, rows, frozenset({EOS}), *others, probe_s=0.001)

    config = EngineConfig(model_dir=folder, max_num_seqs=4, vllm=VllmSettings())
    with Engine(config, runtime=runtime, build=build, on_fatal=has_failed.set) as engine:
        assert engine.generate(PROMPT, max_tokens=3) == "lmn"
        while rows.num_probes < 3:
            time.sleep(0.001)
        engine.check_alive()
        rows.is_dead = True
        assert has_failed.wait(20)
        with pytest.raises(AiciError, match="a worker is dead"):
            engine.check_alive()


def test_a_worker_in_this_process_is_not_asked(folder: Path, rows: FakeRowEngine, runtime: ScriptedRuntime) -> None:
    def build(config: EngineConfig, *others: Any) -> EngineComponents:
        return connect(config, rows, frozenset({EOS}), *others, probe_s=0.001)

    with Engine(EngineConfig(model_dir=folder, vllm=VllmSettings()), runtime=runtime, build=build) as engine:
        assert engine.generate(PROMPT, max_tokens=3) == "lmn"
        time.sleep(0.05)
    assert rows.num_probes == 0


def test_stop_strings_eos_and_length(engine: Engine) -> None:
    plain = Request(prompt=PROMPT, sampling=SamplingParams(stop=("op",), max_tokens=90))
    assert engine.submit(plain).wait().reason is FinishReason.STOP_STRING
    assert run(engine, ("say", "abcdef"), max_tokens=3)[0].end.reason is FinishReason.LENGTH  # type: ignore[union-attr]
    assert engine.generate(PROMPT, max_tokens=0) == ""


def test_an_abort_ends_the_row(engine: Engine, rows: FakeRowEngine) -> None:
    handle = submit(engine, ("any", 150))
    next(iter(handle.events()))
    handle.abort()
    assert handle.wait().reason is FinishReason.ABORT


def test_when_the_runtime_dies_plain_requests_go_on(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.dies_at_round = 4
    controlled = submit(engine, ("any", 90))
    plain = engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(max_tokens=60)))
    assert controlled.wait().reason is FinishReason.FAIL
    assert plain.wait().reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("options", "has_controller", "name"),
    [
        ({"explain": 1}, False, "explain"),
        ({"bad_tokens": ((1,),)}, False, "bad_tokens"),
        ({"logit_bias": {1: 200.0}}, False, "logit_bias beyond 100"),
        ({"logprobs": 1, "logit_bias": {1: 2.0}}, False, "log-probabilities"),
        ({"ignore_eos": True, "min_tokens": 2}, False, "min_tokens"),
        ({"logprobs": 1}, True, "logprobs"),
        ({"presence_penalty": 1.0}, True, "presence_penalty"),
        ({"frequency_penalty": 1.0}, True, "frequency_penalty"),
    ],
)
def test_what_vllm_has_not_is_refused_by_name(
    engine: Engine, options: dict[str, Any], has_controller: bool, name: str
) -> None:
    call = ControllerCall("program", [("say", "a")]) if has_controller else None
    with pytest.raises(UsageError, match=name):
        engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(**options), controller=call))


@pytest.mark.parametrize(
    "settings_", [{"dtype": "int8"}, {"num_pages": 3}, {"device": "cpu"}, {"memory_fraction": 0.5}, {"stages": ("a",)}]
)
def test_settings_without_an_effect_are_refused(folder: Path, settings_: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"has no effect with vLLM|not of vLLM"):
        EngineConfig(model_dir=folder, vllm=VllmSettings(), **settings_)


def _programs() -> st.SearchStrategy[list[Step]]:
    words = st.text("abc", min_size=1, max_size=4)
    step = st.one_of(
        words.map(lambda text: ("say", text)),
        words.map(lambda text: ("force", text)),
        words.map(lambda text: ("log", text)),
        st.integers(1, 2).map(lambda n: ("idle", n)),
    )
    line = st.lists(step, min_size=1, max_size=4)
    forks = st.lists(line, min_size=2, max_size=3).map(lambda branches: ("fork", branches))
    return st.tuples(line, st.lists(forks, max_size=2), line).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@settings(max_examples=30, deadline=None)
@given(programs=st.lists(_programs(), min_size=1, max_size=3), chunk=st.integers(1, 20), puts_off=st.integers(0, 3))
def test_random_programs_say_what_they_must(
    folder: Path, programs: list[list[Step]], chunk: int, puts_off: int
) -> None:
    rows, runtime = (
        FakeRowEngine(chunk=chunk, puts_off=puts_off and puts_off + 1),
        ScriptedRuntime({"program": Program}),
    )
    with engine_over(folder, rows, runtime) as engine:
        handles = [submit(engine, *program) for program in programs]
        for handle, program in zip(handles, programs, strict=True):
            assert sorted(texts(by_fork(list(handle.events())))) == sorted(expected(program))
        nothing_left(rows, runtime)
