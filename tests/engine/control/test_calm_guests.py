"""Calm guests, for which no round waits: results and calls are the same whether a guest is taken for calm or not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aici_base.errors import RuntimeDiedError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.control.session import GuestSession
from aici_engine.engine import Engine
from aici_engine.events import ControlEvent, Event, FinishEvent, FinishReason, ForkedEvent
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.wire import Pre, Splice
from tests.engine.programs import Program, Step, by_fork
from tests.engine.support import EOS, GO_ON, Guest, ScriptedRuntime, encode, wait_for_token, write_tiny_model
from tests.support.processes import wait_until

_NEVER = 10**9
_MAX_FORKS = 3
"""Forks in a random program, into 3 sequences each. More sequences could use up the fuel of the request, and the
sequences without fuel would depend on scheduling."""


class Fickle(Guest):
    """Notes every call. `argument`: the answers to pre by the number of the call; the guest goes on at other calls."""

    def __init__(self, argument: Any) -> None:
        super().__init__(dict(argument))
        self.calls: list[str] = []

    def pre(self) -> Any:
        self.calls.append("pre")
        self.says = f"pre {len(self.calls)} "
        return self.argument.get(self.calls.count("pre"), GO_ON)

    def mid(self) -> Any:
        self.calls.append("mid")
        self.says = f"mid {len(self.calls)} "
        return range(32, 127)

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        self.calls.append(f"post {tokens}")
        self.says = f"post {len(self.calls)} "
        return super().post(tokens, backtrack) or self.calls.count("pre") > 20


@contextmanager
def wary_and_trusting(model_dir: Path) -> Iterator[list[tuple[Engine, ScriptedRuntime]]]:
    """Open two engines: in the first no guest is calm, in the second a guest is calm after 1 round. Few pages force
    preemptions."""
    hosts = [ScriptedRuntime({"program": Program, "fickle": Fickle}) for _ in range(2)]
    for runtime in hosts:
        # Which fork is refused at the bound depends on scheduling.
        runtime.max_forks = 3**_MAX_FORKS
    config = {"model_dir": model_dir, "num_pages": 40, "page_size": 4, "max_num_seqs": 4, "max_batch_tokens": 16}
    with (
        Engine(EngineConfig(calm_rounds=_NEVER, **config), runtime=hosts[0]) as wary,
        Engine(EngineConfig(calm_rounds=1, **config), runtime=hosts[1]) as trusting,
    ):
        yield [(wary, hosts[0]), (trusting, hosts[1])]


@pytest.fixture(scope="module")
def engines(tiny_model: Path) -> Iterator[list[tuple[Engine, ScriptedRuntime]]]:
    with wary_and_trusting(tiny_model) as pair:
        yield pair


def submit(engine: Engine, name: str, argument: Any, seed: int = 1, stop: tuple[str, ...] = ()) -> RequestHandle:
    sampling = SamplingParams(temperature=1.0, seed=seed, max_tokens=60, stop=stop)
    return engine.submit(Request(prompt="Hello", sampling=sampling, controller=ControllerCall(name, argument)))


def seen(events: Sequence[Event]) -> list[Any]:
    """Return the events by fork, in order, without times and numbers of forks.

    The numbers of forks depend on scheduling if forks fork; the lineages do not.
    """
    forks = by_fork(events)
    told = []
    for number, fork in sorted(forks.items(), key=lambda item: item[1].lineage):
        end, last = fork.end, events[-1]
        assert end is not None
        assert isinstance(last, FinishEvent)
        # The usage of the root, or of all forks if the root ends last. The last fork to end depends on scheduling.
        used = end.usage if number else last.usage
        usage = (used.sampled_tokens, used.ff_tokens, used.cost)
        ended = (end.text, end.tokens, end.reason, str(end.error), end.logs, end.storage, usage)
        first = [(fork.lineage, event.text, event.tokens) for event in fork.events if isinstance(event, ForkedEvent)]
        others = (event for event in fork.events if not isinstance(event, (FinishEvent, ForkedEvent)))
        told.append([ended, *first, *others])
    return told


def compare(
    engines: list[tuple[Engine, ScriptedRuntime]], calls: Sequence[tuple[str, Any]], stop: tuple[str, ...] = ()
) -> list[list[Guest]]:
    """Run the calls in all engines, and compare. Return the guests by engine."""
    told, guests = [], []
    for engine, runtime in engines:
        runtime.all.clear()
        handles = [submit(engine, *call, seed=number, stop=stop) for number, call in enumerate(calls)]
        told.append([seen(list(handle.events())) for handle in handles])
        guests.append(sorted(runtime.all, key=lambda guest: (guest.seed, str(guest.told))))
        engine._components.cache.check_integrity()
    assert told[0] == told[1]
    return guests


_FORK = ("fork", [[("any", 3)], [("say", "b")], [("set", "x", ""), ("any", 2)]])
_text = st.text("abc", min_size=1, max_size=4)
_step = st.one_of(
    st.tuples(st.just("any"), st.integers(1, 6)),
    st.tuples(st.just("say"), _text),
    st.tuples(st.just("force"), _text),
    st.tuples(st.just("idle"), st.integers(1, 2)),
    st.tuples(st.just("back"), st.integers(1, 4), _text),
    st.tuples(st.just("log"), _text),
    st.tuples(st.just("fail"), st.just("it broke")),
    st.tuples(st.just("set"), st.just("x"), st.just("")),
    st.tuples(st.just("wait"), st.just("x")),
    st.just(_FORK),
)


def _has_few_forks(program: list[Step]) -> bool:
    return program.count(_FORK) <= _MAX_FORKS


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(_step, max_size=6).filter(_has_few_forks), min_size=1, max_size=4),
    st.sampled_from([(), (" ", "b"), tuple("aeiou")]),
)
# Calm guests change the steps of the first request, hence the order in which forks of the second request fork.
@example([[("force", "a"), ("any", 1), ("any", 1), ("any", 4)], [_FORK] * 3], ())
def test_random_programs(
    engines: list[tuple[Engine, ScriptedRuntime]], programs: list[list[Step]], stop: tuple[str, ...]
) -> None:
    # A wait in a request without forks is a deadlock, an end like any other.
    calls = [("program", [("any", 3), *program]) for program in programs]
    wary, trusting = compare(engines, calls, stop)
    assert [guest.told for guest in wary] == [guest.told for guest in trusting]


def test_guests_that_were_asked_early_while_requests_come_and_go(
    engines: list[tuple[Engine, ScriptedRuntime]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New guests need a round between two steps, and few pages keep sequences out of a step."""
    num_kept = []
    keep = GuestSession.keep
    monkeypatch.setattr(
        GuestSession, "keep", lambda self, answers: (num_kept.append(len(answers)), keep(self, answers))[1]
    )
    told, heard = [], []
    for engine, runtime in engines:
        runtime.all.clear()
        handles = []
        for number in range(8):
            handles.append(submit(engine, "program", [("any", 12 + 6 * (number % 4))], seed=number))
            wait_for_token(handles[-1])
        told.append([seen(list(handle.events())) for handle in handles])
        heard.append(sorted((guest.seed, str(guest.told)) for guest in runtime.all))
        engine._components.cache.check_integrity()
    assert told[0] == told[1]
    assert heard[0] == heard[1]
    assert sum(num_kept) >= 8, "answers came before a step in which their sequences were"


@pytest.mark.parametrize("how", ["abort", "stop"])
def test_the_last_guest_is_freed_although_its_next_mask_was_asked_for(tiny_model: Path, how: str) -> None:
    """The runtime refuses a message before the answer to the last one was read."""
    runtime = ScriptedRuntime({"program": Program})
    config = EngineConfig(model_dir=tiny_model, num_pages=64, calm_rounds=1)
    for _ in range(5):
        with Engine(config, runtime=runtime) as engine:
            handle = submit(engine, "program", [("any", 1000)])
            for _ in range(8):
                wait_for_token(handle)
            if how == "abort":
                handle.abort()
                handle.wait()
                # Nothing else happens in the engine that would free the guest.
                assert wait_until(lambda: not runtime.live, 10)
    assert not runtime.live
    with Engine(config, runtime=runtime) as engine:
        assert submit(engine, "program", [("any", 20)]).wait().error is None


def test_calm_guests_compute_while_the_step_is_told(tiny_model: Path) -> None:
    order: list[str] = []

    class Watched(ScriptedRuntime):
        def send_turn(self, **fields: Any) -> None:
            order.append("turn")
            super().send_turn(**fields)

    config = EngineConfig(model_dir=tiny_model, num_pages=64, calm_rounds=1)
    with Engine(config, runtime=Watched({"program": Program}), on_step=lambda: order.append("step")) as engine:
        submit(engine, "program", [("any", 20)]).wait()
    # The mask of the last token, the steps of the last two tokens, and the end of the guest.
    assert order[-4:] == ["turn", "step", "step", "turn"]


FORCE = Pre(suspend=False, num_forks=1, ff_tokens=tuple(encode("xyz")))
SUSPEND = Pre(suspend=True, num_forks=1, ff_tokens=())
LATE = Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
STOP = Pre(suspend=False, num_forks=0, ff_tokens=())
FORK = Pre(suspend=False, num_forks=3, ff_tokens=())


@pytest.mark.parametrize(
    ("answers", "calls_are_same"),
    [
        ({5: FORCE, 6: FORCE, 12: FORCE}, True),
        ({5: SUSPEND, 6: SUSPEND, 7: SUSPEND}, True),
        ({5: FORK}, True),
        ({9: STOP}, True),
        ({5: "Error (pre): it broke"}, True),
        # The number of calls while a guest is late depends on timing.
        ({5: LATE, 6: LATE}, False),
    ],
)
def test_a_guest_hears_the_same_calls(
    engines: list[tuple[Engine, ScriptedRuntime]], answers: dict[int, Any], calls_are_same: bool
) -> None:
    misses = engines[1][1].misses
    wary, trusting = compare(engines, [("fickle", answers)])
    assert engines[1][1].misses > misses, "it was believed, and did something else"
    assert engines[0][1].guesses == 0
    if calls_are_same:
        assert [guest.calls for guest in wary] == [guest.calls for guest in trusting]  # type: ignore[attr-defined]


@pytest.mark.parametrize("round_trip", [[("any", 8), ("back", 8, "")], [("any", 7), ("back", 7, "x")]])
def test_no_guest_hears_of_the_token_that_is_out_of_fuel(tmp_path: Path, round_trip: list[Step]) -> None:
    """Ten contexts of 64 tokens are the fuel for 320 sampled tokens, or for fewer if others are forced."""
    call = ("program", round_trip * 100)
    with wary_and_trusting(write_tiny_model(tmp_path, context=64)) as engines:
        assert {submit(engine, *call).wait().reason for engine, _ in engines} == {FinishReason.OUT_OF_FUEL}
        [wary], [trusting] = compare(engines, [call])
    assert wary.told == trusting.told


def test_who_forces_often_is_soon_asked_first(engines: list[tuple[Engine, ScriptedRuntime]]) -> None:
    """The guest is calm after 1 round, then after 2 rounds, then never again: 4 rounds would be needed."""
    engine, runtime = engines[1]
    runtime.guesses = runtime.misses = 0
    submit(engine, "fickle", dict.fromkeys(range(3, 20, 3), FORCE)).wait()
    assert runtime.misses == 2


@pytest.mark.parametrize(("num_calm", "is_asked_first"), [(8, True), (15, False)])
def test_one_guest_among_many_is_not_asked_first(tiny_model: Path, num_calm: int, is_asked_first: bool) -> None:
    """The one forces tokens again and again. The others go on, and are soon calm."""

    class Forces(Fickle):
        def pre(self) -> Any:
            is_told = bool(self.calls) and self.calls[-1].startswith("post")
            num_told = sum(call.startswith("post") for call in self.calls)
            super().pre()
            return FORCE if is_told and num_told % 3 == 1 else GO_ON

    told = []
    for calm_rounds in (_NEVER, 6):
        host = ScriptedRuntime({"fickle": Fickle, "forces": Forces})
        config = EngineConfig(model_dir=tiny_model, max_num_seqs=16, calm_rounds=calm_rounds, num_pages=400)
        with Engine(config, runtime=host) as engine:
            handles = [submit(engine, "fickle", {}, seed=number) for number in range(num_calm)]
            handles.append(submit(engine, "forces", {}))
            told.append([handle.wait().text for handle in handles])
    assert told[0] == told[1]
    assert "xyz" in told[0][-1]
    assert (host.misses <= num_calm) == is_asked_first  # each of the others ends by a wish


def test_who_is_told_of_the_end_is_asked_first(engines: list[tuple[Engine, ScriptedRuntime]]) -> None:
    """A guest told of an EOS most likely stops, so no forward pass is wasted."""

    class Ends(Fickle):
        def mid(self) -> Any:
            return [EOS] if len(self.calls) > 12 else super().mid()

        def post(self, tokens: list[TokenId], backtrack: int) -> bool:
            return super().post(tokens, backtrack) or tokens == [EOS]

    engine, runtime = engines[1]
    runtime.guests["ends"] = Ends
    runtime.guesses = runtime.misses = 0
    assert submit(engine, "ends", {}).wait().reason is FinishReason.STOP
    assert runtime.guesses > 1
    assert runtime.misses == 0


def test_the_runtime_dies_under_a_guess(tiny_model: Path) -> None:
    runtime = ScriptedRuntime({"fickle": Fickle, "guest": Guest})
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64, calm_rounds=1), runtime=runtime) as engine:
        plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
        handle = submit(engine, "guest", None)
        wait_for_token(handle)
        runtime.dies_at_round = runtime.rounds + 5
        assert isinstance(handle.wait().error, RuntimeDiedError)
        assert plain.wait().error is None
        assert runtime.guesses


def test_a_splice_from_a_calm_guest(engines: list[tuple[Engine, ScriptedRuntime]]) -> None:
    class Splices(Fickle):
        def mid(self) -> Any:
            super().mid()
            return Splice(3, tuple(encode("Q"))) if len(self.calls) % 10 == 0 else range(32, 127)

    for _, runtime in engines:
        runtime.guests["splices"] = Splices
    wary, trusting = compare(engines, [("splices", {})] * 3)
    assert [guest.calls for guest in wary] == [guest.calls for guest in trusting]  # type: ignore[attr-defined]


def test_logs_come_in_order(engines: list[tuple[Engine, ScriptedRuntime]]) -> None:
    *events, _ = submit(engines[1][0], "fickle", {7: FORCE, 15: STOP}).events()
    logs = "".join(event.logs for event in events if isinstance(event, ControlEvent)).split()
    numbers = [int(number) for number in logs[1::2]]
    assert numbers == list(range(1, len(numbers) + 1))
