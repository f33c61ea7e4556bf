"""The conversation with guests, scripted. The tiny model's own choices do not matter: masks and splices decide."""

import math
import queue
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import AiciError, RuntimeDiedError, UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import (
    AcceptedEvent,
    BacktrackEvent,
    ControlEvent,
    FinishEvent,
    FinishReason,
    Origin,
    TokenEvent,
)
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS
from aici_runtime.wire import Pre, Splice
from tests.engine.support import (
    EOS,
    EOT,
    GO_ON,
    VOCAB_SIZE,
    Guest,
    ScriptedRuntime,
    encode,
    wait_for_token,
    write_tiny_model,
)


class Spell(Guest):
    """Allows only the argument's bytes, then EOS, and stops after EOS."""

    at = 0

    def mid(self) -> Any:
        data = self.argument.encode()
        return [data[self.at]] if self.at < len(data) else [EOS]

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        super().post(tokens, backtrack)
        self.at += len(tokens)
        return tokens == [EOS]


class Force(Guest):
    """Forces the argument from `pre`, then allows a single token and stops."""

    said = False

    def pre(self) -> Pre:
        if self.said:
            return GO_ON
        self.said = True
        return Pre(suspend=False, num_forks=1, ff_tokens=tuple(encode(self.argument)))

    def mid(self) -> Any:
        return encode("!")

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        super().post(tokens, backtrack)
        return True


class Script(Guest):
    """`argument`: the answers of `mid`, in turn. Then stops, from `pre`."""

    def __init__(self, argument: Any) -> None:
        super().__init__(argument)
        self.answers = list(argument)

    def pre(self) -> Pre:
        return GO_ON if self.answers else Pre(suspend=False, num_forks=0, ff_tokens=())

    def mid(self) -> Any:
        return self.answers.pop(0)


class Suspend(Script):
    """`argument`: how often to suspend before saying `x` and stopping."""

    def __init__(self, argument: int) -> None:
        super().__init__([encode("x")])
        self.left = argument

    def pre(self) -> Pre:
        self.left -= 1
        return super().pre() if self.left < 0 else Pre(suspend=True, num_forks=1, ff_tokens=())


class Late(Spell):
    """Is late for its first mask, and then `argument` times."""

    def __init__(self, argument: int) -> None:
        super().__init__("ab")
        self.left = argument
        self.is_late = False

    def mid(self) -> Any:
        if not self.is_late and self.left:
            self.is_late = True
            return Splice(1, (), late=True)
        return super().mid()

    def pre(self) -> Pre:
        if self.is_late and self.left:
            self.left -= 1
            return Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
        self.is_late = False
        return super().pre()


class Forever(Guest):
    """Removes every token to be sampled, without a replacement."""

    def mid(self) -> Any:
        return Splice(1, ())


class FailPre(Guest):
    def pre(self) -> str:
        return "Error (pre): it broke"


class StopItself(Guest):
    def mid(self) -> str:
        return "Error (mid): so long\n*** aici_host_stop()"


GUESTS = {c.__name__.lower(): c for c in (Guest, Spell, Force, Script, Suspend, Late, Forever, FailPre, StopItself)}


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime(dict(GUESTS))


@pytest.fixture
def engine(tiny_model: Path, runtime: ScriptedRuntime) -> Iterator[Engine]:
    config = EngineConfig(model_dir=tiny_model, num_pages=64, page_size=4, max_num_seqs=8, max_batch_tokens=32)
    with Engine(config, runtime=runtime) as engine:
        yield engine
        deadline = time.monotonic() + 2
        broken = runtime.dies_at_round or runtime.breaks_at_round
        while runtime.live and not broken and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not runtime.live or broken
        assert not runtime._started
        assert engine.get_stats()["cache_usage"] == 0.0
        engine._components.cache.check_integrity()


def submit(engine: Engine, name: str, argument: Any = None, **sampling: Any) -> RequestHandle:
    sampling = {"temperature": 0.0} | sampling
    return engine.submit(
        Request(prompt="Hello", sampling=SamplingParams(**sampling), controller=ControllerCall(name, argument))
    )


def test_the_mask_decides(engine: Engine, runtime: ScriptedRuntime) -> None:
    end = submit(engine, "spell", "forty-two, said the é", temperature=1.0).wait()
    assert (end.text, end.reason, end.error) == ("forty-two, said the é", FinishReason.STOP, None)
    assert end.usage.sampled_tokens == len("forty-two, said the é".encode()) + 1
    [guest] = runtime.all
    assert guest.told[0] == ([ord("f")], 0)
    assert guest.told[-1] == ([EOS], 0)


def test_a_request_is_accepted_before_its_turn_comes(engine: Engine) -> None:
    """Eight waiting guests do not keep the ninth guest from starting."""
    waiting = [submit(engine, "forever") for _ in range(8)]
    for handle in waiting:
        assert isinstance(next(handle.events()), AcceptedEvent)
    late = submit(engine, "spell", "x")
    assert isinstance(next(late.events()), AcceptedEvent)
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(max_tokens=2)))
    assert isinstance(next(plain.events()), AcceptedEvent)
    for handle in waiting:
        handle.abort()
    assert late.wait().text == "x"
    assert plain.wait().error is None


def test_a_request_whose_guest_does_not_start_is_not_accepted(engine: Engine) -> None:
    [end] = submit(engine, "nobody").events()
    assert isinstance(end, FinishEvent)
    assert end.error is not None


def test_the_mark_of_a_guest_that_stopped_itself_is_not_told(engine: Engine) -> None:
    error = submit(engine, "stopitself").wait().error
    assert error is not None
    assert error.message == "Error (mid): so long"


def test_sixteen_guests_and_plain_requests_side_by_side(engine: Engine) -> None:
    plain = engine.generate("Hello", temperature=0.0, max_tokens=30)
    words = [f"guest number {i} says {'so ' * i}" for i in range(16)]
    handles = [submit(engine, "spell", word) for word in words]
    others = [engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0, max_tokens=30)))
              for _ in range(4)]  # fmt: skip
    assert [handle.wait().text for handle in handles] == words
    assert {handle.wait().text for handle in others} == {plain}


def test_forced_tokens_are_appended_in_one_forward(engine: Engine, runtime: ScriptedRuntime) -> None:
    end = submit(engine, "force", "fixed text").wait()
    assert (end.text, end.reason) == ("fixed text!", FinishReason.STOP)
    assert [token.origin for token in end.tokens] == [Origin.FORCED] * 10 + [Origin.SAMPLED]
    assert (end.usage.ff_tokens, end.usage.sampled_tokens, end.usage.cost) == (10, 1, 12)
    # The first round binds, forces and samples; the second stops.
    assert runtime.rounds <= 3


def test_a_splice_replaces_sampling(engine: Engine, runtime: ScriptedRuntime) -> None:
    script = [encode("a"), Splice(0, tuple(encode("bcd"))), encode("e")]
    end = submit(engine, "script", script).wait()
    assert (end.text, end.reason) == ("abcde", FinishReason.STOP)
    assert runtime.all[0].told == [(encode("a"), 0), (encode("bcd"), 0), (encode("e"), 0)]


def test_backtracking_removes_tokens_and_marks_the_stream(engine: Engine, runtime: ScriptedRuntime) -> None:
    script = [encode("a"), encode("b"), encode("c"), Splice(3, tuple(encode("XY"))), encode("z")]
    *events, end = submit(engine, "script", script).events()
    assert isinstance(end, FinishEvent)
    assert end.text == "aXYz"
    assert "".join(e.text for e in events if isinstance(e, TokenEvent)) == "abc ↩ XYz"
    assert BacktrackEvent(2) in events
    assert runtime.all[0].told[3] == (encode("XY"), 3)
    assert bytes(token.token_id for token in end.tokens) == b"aXYz"


@pytest.mark.parametrize(("backtrack", "ff"), [(3, "XY"), (3, ""), (1, "Q"), (1, ""), (4, "a"), (6, ""), (9, "Z")])
def test_after_a_splice_the_model_sees_what_is_left(engine: Engine, backtrack: int, ff: str) -> None:
    # After the splice every token is allowed: the greedy text must equal the text after the same tokens as a prompt.
    anything = range(255)
    script: list[Any] = [encode("a"), encode("b"), encode("c"), Splice(backtrack, tuple(encode(ff)))]
    end = submit(engine, "script", [*script, *[anything] * 6]).wait()
    left = ("Helloabc"[: len("Helloabc") - (backtrack - 1)]) + ff
    fresh = engine.submit(
        Request(
            prompt=left,
            sampling=SamplingParams(temperature=0.0),
            controller=ControllerCall("script", [anything] * 6),
        )
    ).wait()
    assert [t.token_id for t in end.tokens][-6:] == [t.token_id for t in fresh.tokens]


@pytest.mark.parametrize(("backtrack", "ff"), [(9, ""), (100, ""), (10, "Z"), (11, "bcZ")])
def test_removing_everything_fails_alone(engine: Engine, backtrack: int, ff: str) -> None:
    splice = Splice(backtrack, tuple(encode(ff)))
    end = submit(engine, "script", [encode("a"), encode("b"), encode("c"), splice]).wait()
    assert end.reason is FinishReason.FAIL
    assert "removed" in str(end.error)


def test_suspended_guests_resume(engine: Engine) -> None:
    end = submit(engine, "suspend", 6).wait()
    assert (end.text, end.reason) == ("x", FinishReason.STOP)


def test_a_guest_that_never_resumes_is_deadlocked_and_burns_no_cpu(engine: Engine) -> None:
    before, start = time.process_time(), time.monotonic()
    end = submit(engine, "suspend", 10**6).wait()
    assert end.reason is FinishReason.DEADLOCK
    assert time.process_time() - before < 0.5 * max(0.2, time.monotonic() - start)


@pytest.mark.parametrize(("seed", "told"), [(None, 0), (7, 7), (-1, 2**64 - 1)])
def test_a_guest_has_the_seed_of_its_request(
    engine: Engine, runtime: ScriptedRuntime, seed: int | None, told: int
) -> None:
    submit(engine, "spell", "a", seed=seed).wait()
    assert runtime.all[0].seed == told


def test_who_is_late_is_not_deadlocked(engine: Engine, runtime: ScriptedRuntime) -> None:
    end = submit(engine, "late", 100).wait()
    assert (end.text, end.reason) == ("ab", FinishReason.STOP)
    assert runtime.all[0].told == [(encode("a"), 0), (encode("b"), 0), ([EOS], 0)]


def test_who_is_late_when_it_is_full_says_first_whether_it_has_ended(engine: Engine, runtime: ScriptedRuntime) -> None:
    class Closing(Late):
        def pre(self) -> Pre:
            self.is_late = bool(self.told)
            said = super().pre()
            return said if said.late or not self.told else Pre(suspend=False, num_forks=0, ff_tokens=())

        def mid(self) -> Any:
            return encode("a")

    runtime.guests["closing"] = Closing
    ends = [submit(engine, "closing", num_late, max_tokens=1).wait() for num_late in (0, 3)]
    assert [(end.text, end.reason) for end in ends] == [("a", FinishReason.STOP)] * 2


def test_others_go_on_while_one_is_suspended(engine: Engine) -> None:
    suspended = submit(engine, "suspend", 8)
    assert submit(engine, "spell", "abc").wait().text == "abc"
    assert suspended.wait().text == "x"


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("failpre", None, r"Error \(pre\): it broke"),
        ("script", [encode("a"), "Error (mid): trap"], r"Error \(mid\): trap"),
        ("script", [[]], "allows no token"),
        ("script", [Splice(0, (TokenId(VOCAB_SIZE),))], "forced token 300"),
        ("missing", None, "no controller missing"),
    ],
)
def test_a_guest_that_fails_fails_alone(engine: Engine, name: str, argument: Any, message: str) -> None:
    beside = submit(engine, "spell", "all is well")
    end = submit(engine, name, argument).wait()
    assert end.reason is FinishReason.FAIL
    assert end.error is not None
    assert re.search(message, str(end.error))
    assert beside.wait().text == "all is well"


def test_when_the_runtime_dies_controlled_requests_fail_and_others_do_not(
    engine: Engine, runtime: ScriptedRuntime
) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    controlled = [submit(engine, "guest"), submit(engine, "suspend", 3)]
    runtime.dies_at_round = runtime.rounds + 5
    for handle in controlled:
        end = handle.wait()
        assert (end.reason, str(end.error)) == (FinishReason.FAIL, "the runtime died")
    assert plain.wait().reason in (FinishReason.LENGTH, FinishReason.EOS)
    assert submit(engine, "guest").wait().reason is FinishReason.FAIL


def test_a_message_that_the_runtime_refuses_fails_controlled_requests_only(
    engine: Engine, runtime: ScriptedRuntime
) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    controlled = submit(engine, "guest")
    runtime.refuses_at_round = 4
    end = controlled.wait()
    assert (end.reason, str(end.error)) == (FinishReason.FAIL, "no such round")
    assert plain.wait().error is None
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_a_bug_ends_every_request_and_the_engine_says_so(engine: Engine, runtime: ScriptedRuntime) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    runtime.breaks_at_round = 4
    ends = [submit(engine, "guest").wait(), plain.wait()]
    assert [end.reason for end in ends] == [FinishReason.FAIL] * 2
    with pytest.raises(AiciError, match="the engine failed: KeyError"):
        engine.generate("a")


def test_a_bug_in_dropping_a_guest_ends_its_request_too(tiny_model: Path) -> None:
    class Broken(ScriptedRuntime):
        def discard(self, req_id: str) -> None:
            if not self.hold.is_set():
                self.hold.set()
                raise KeyError("a bug")
            super().discard(req_id)

    runtime = Broken(dict(GUESTS))
    runtime.hold.clear()
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64), runtime=runtime) as engine:
        ends: queue.SimpleQueue[FinishEvent] = queue.SimpleQueue()
        request = Request(prompt="Hello", controller=ControllerCall("guest"))
        engine.submit(request, sink=ends.put).abort()  # type: ignore[arg-type]
        assert ends.get(timeout=5).reason is FinishReason.ABORT


@pytest.mark.parametrize("argument", ["\ud800", object(), {1: 2}, 2**70])
def test_an_argument_that_json_cannot_say_fails_alone(engine: Engine, runtime: ScriptedRuntime, argument: Any) -> None:
    def as_the_wire_does(argument: Any) -> Guest:
        raise AssertionError("it never got here")

    runtime.guests["strict"] = as_the_wire_does
    end = submit(engine, "strict", argument).wait()
    assert end.reason is FinishReason.FAIL
    assert "cannot be written as JSON" in str(end.error)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_a_crowd_of_guests_starts_in_turn(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.max_guests = 8 + 16
    handles = [submit(engine, "spell", f"number {i}") for i in range(100)]
    for handle in handles[30:60]:
        handle.abort()
    missing = submit(engine, "missing")
    ends = [handle.wait() for handle in handles]
    assert {end.reason for end in ends[30:60]} <= {FinishReason.ABORT, FinishReason.EOS}
    assert [end.text for end in ends[:30] + ends[60:]] == [f"number {i}" for i in [*range(30), *range(60, 100)]]
    assert missing.wait().reason is FinishReason.FAIL


def test_more_sequences_may_run_than_the_runtime_has_room_for(tiny_model: Path) -> None:
    runtime = ScriptedRuntime(dict(GUESTS))
    runtime.max_guests = NUM_WORKER_SLOTS // 2
    runtime.hold.clear()
    config = EngineConfig(model_dir=tiny_model, num_pages=700, max_num_seqs=300, max_batch_tokens=4000)
    with Engine(config, runtime=runtime) as engine:
        handles = [submit(engine, "guest", max_tokens=3) for _ in range(300)]
        runtime.hold.set()
        assert {handle.wait().reason for handle in handles} == {FinishReason.LENGTH}


def test_guests_start_by_priority(tiny_model: Path) -> None:
    class Noting(ScriptedRuntime):
        def instantiate(self, **asked: Any) -> Any:
            started.append(asked["module_arg"])
            return super().instantiate(**asked)

    started: list[Any] = []
    runtime = Noting(dict(GUESTS))
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64, max_num_seqs=8), runtime=runtime) as engine:
        runtime.hold.clear()
        handles = [
            engine.submit(Request(prompt="Go", controller=ControllerCall("spell", argument), priority=priority))
            for argument, priority in [*(("early", 0) for _ in range(8 + 16)), ("usual", 0), ("late", 1), ("soon", -1)]
        ]
        runtime.hold.set()
        assert [handle.wait().text for handle in handles[-3:]] == ["usual", "late", "soon"]
    assert started[8 + 16 :] == ["soon", "usual", "late"]


def test_a_guest_whose_first_round_is_refused_is_discarded(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.refuses_at_round = 1
    assert str(submit(engine, "guest").wait().error) == "no such round"
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_when_it_has_stopped_nothing_is_forced_any_more(engine: Engine, runtime: ScriptedRuntime) -> None:
    class Late(Spell):
        def pre(self) -> Pre:
            return Pre(suspend=False, num_forks=1, ff_tokens=tuple(encode("late"))) if self.told else GO_ON

        def post(self, tokens: list[TokenId], backtrack: int) -> bool:
            super().post(tokens, backtrack)
            return True

    runtime.guests["late"] = Late
    end = submit(engine, "late", "x").wait()
    assert (end.text, end.reason, end.usage.ff_tokens) == ("x", FinishReason.STOP, 0)


def test_a_slow_start_blocks_nobody(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.hold.clear()
    slow = submit(engine, "spell", "late")
    assert engine.generate("a", max_tokens=5, temperature=0.0) is not None
    runtime.hold.set()
    assert slow.wait().text == "late"


def test_aborted_while_its_guest_starts(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.hold.clear()
    slow = submit(engine, "spell", "late")
    slow.abort()
    assert slow.wait().reason is FinishReason.ABORT
    runtime.hold.set()
    # A guest started afterwards is discarded; the fixture checks.
    deadline = time.monotonic() + 2
    while not runtime.all or runtime._started:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_aborted_half_way(engine: Engine, runtime: ScriptedRuntime) -> None:
    handle = submit(engine, "guest")
    wait_for_token(handle)
    handle.abort()
    assert handle.wait().reason is FinishReason.ABORT


@pytest.mark.parametrize(("max_tokens", "reason"), [(3, FinishReason.LENGTH), (8, FinishReason.STOP)])
def test_max_tokens_counts_forced_and_sampled(engine: Engine, max_tokens: int, reason: FinishReason) -> None:
    end = submit(engine, "spell", "abcdefg", max_tokens=max_tokens).wait()
    assert (end.text, end.reason) == ("abcdefg"[:max_tokens], reason)
    assert len(submit(engine, "force", "fixed", max_tokens=2).wait().tokens) == 2


def test_max_tokens_bounds_the_output_that_begins_in_the_prompt(engine: Engine) -> None:
    anything = [range(255)] * 20
    # The sampled token, `a` and four tokens of `Hello` are removed.
    end = submit(engine, "script", [encode("a"), Splice(6, ()), *anything], max_tokens=3).wait()
    assert (len(end.tokens), end.reason) == (3, FinishReason.LENGTH)


def test_a_controller_may_go_on_after_eos(engine: Engine, runtime: ScriptedRuntime) -> None:
    end = submit(engine, "script", [encode("a"), [EOS], encode("b")]).wait()
    assert (end.text, end.reason) == ("ab", FinishReason.STOP)
    assert runtime.all[0].told == [(encode("a"), 0), ([EOS], 0), (encode("b"), 0)]


def test_the_bit_of_eos_opens_every_eos_and_the_guest_is_told_of_its_own(
    tmp_path: Path, runtime: ScriptedRuntime
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = write_tiny_model(tmp_path)
    weights = load_file(folder / "model.safetensors")
    # A model that always says EOT: only EOT's row of the head is not zero, and the row equals the last norm's output.
    weights["lm_head.weight"] = torch.zeros_like(weights["lm_head.weight"])
    weights["model.norm.weight"][:] = 1.0
    weights["model.embed_tokens.weight"][:] = 1.0
    weights["lm_head.weight"][EOT] = 1.0
    for name in weights:
        if "layers" in name:
            weights[name][:] = 0.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with Engine(EngineConfig(model_dir=folder, num_pages=64), runtime=runtime) as engine:
        end = submit(engine, "spell", "").wait()
        chosen = submit(engine, "script", [[EOS, 65]]).wait()
        closed = submit(engine, "script", [range(VOCAB_SIZE - 50)]).wait()
    assert [token.token_id for token in end.tokens] == [EOT]
    assert (end.text, end.reason) == ("", FinishReason.STOP), "the controller let nothing else come"
    assert (chosen.text, chosen.reason) == ("", FinishReason.EOS), "the model ended it"
    assert runtime.all[0].told == [([EOS], 0)]
    assert EOT not in [token.token_id for token in closed.tokens]


def test_logs_and_preemption(tiny_model: Path, runtime: ScriptedRuntime) -> None:
    config = EngineConfig(model_dir=tiny_model, num_pages=16, page_size=4, max_num_seqs=8, max_batch_tokens=16)
    words = [str(i) * 21 for i in range(6)]
    with Engine(config, runtime=runtime) as engine:
        ends = [handle.wait() for handle in [submit(engine, "spell", word) for word in words]]
        assert engine._components.loop.num_preemptions > 0
    assert [end.text for end in ends] == words
    assert not runtime.live


class Talk(Spell):
    """Logs the name of the current callback."""

    def init_prompt(self, prompt: list[TokenId]) -> None:
        self.says = ""

    def pre(self) -> Any:
        self.says = f"pre{self.at} " if self.at < 2 else ""
        return super().pre()

    def mid(self) -> Any:
        self.says = f"mid{self.at} "
        return super().mid()

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        self.says = "post "
        return super().post(tokens, backtrack)


def test_what_a_controller_says_comes_as_it_says_it(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.guests["talk"] = Talk
    *events, end = submit(engine, "talk", "ab").events()
    assert isinstance(end, FinishEvent)
    told = [event.logs if isinstance(event, ControlEvent) else chr(event.token.token_id)
            for event in events if isinstance(event, ControlEvent | TokenEvent)]  # fmt: skip
    eos = chr(EOS)
    assert told == ["pre0 ", "mid0 ", "a", "post ", "pre1 ", "mid1 ", "b", "post ", "mid2 ", eos, "post "]
    assert end.logs == "".join(event.logs for event in events if isinstance(event, ControlEvent))
    assert end.storage == tuple(s for event in events if isinstance(event, ControlEvent) for s in event.storage)
    assert len(end.storage) == 8


def test_a_stop_string_in_forced_tokens_ends_them(engine: Engine, runtime: ScriptedRuntime) -> None:
    *events, end = submit(engine, "force", "fixed text", stop=("d t", "!")).events()
    assert isinstance(end, FinishEvent)
    assert (end.text, end.reason, end.stop) == ("fixe", FinishReason.STOP_STRING, "d t")
    assert "".join(event.text for event in events if isinstance(event, TokenEvent)) + end.tail == "fixe"
    assert (end.usage.ff_tokens, end.usage.sampled_tokens) == (len("fixed t"), 0)
    [guest] = runtime.all
    assert guest.told == []


@pytest.mark.parametrize(
    ("script", "text", "stop"),
    [
        # `abc` is in the text as streamed, but never in the remaining text.
        ([*"ab", Splice(2, tuple(encode("bX"))), "c", Splice(2, ()), "d"], "abXd", None),
        ([*"abX", Splice(2, tuple(encode("c"))), "d"], "", "abc"),
    ],
)
def test_stop_strings_are_matched_on_the_true_text(
    engine: Engine, script: list[Any], text: str, stop: str | None
) -> None:
    answers = [encode(answer) if isinstance(answer, str) else answer for answer in script]
    end = submit(engine, "script", answers, stop=("abc",)).wait()
    assert (end.text, end.stop) == (text, stop)
    assert end.reason is (FinishReason.STOP_STRING if stop else FinishReason.STOP)


def test_log_probabilities_are_those_of_what_the_mask_allows(engine: Engine) -> None:
    allowed = encode("abcd")
    script = [allowed, encode("z"), Splice(0, tuple(encode("!")))]
    first, only, forced = submit(engine, "script", script, logprobs=6).wait().tokens
    [plain] = engine.submit(
        Request(prompt="Hello", sampling=SamplingParams(temperature=0.0, max_tokens=1, logprobs=20))
    ).wait().tokens  # fmt: skip
    assert {token for token, _ in first.top_logprobs} == set(allowed)
    assert first.top_logprobs[0] == (first.token_id, first.logprob)
    assert sum(math.exp(value) for _, value in first.top_logprobs) == pytest.approx(1.0)
    assert sum(math.exp(value) for _, value in plain.top_logprobs) < 1.0
    assert (only.logprob, only.top_logprobs) == (0.0, ((ord("z"), 0.0),))
    assert (forced.origin, forced.logprob, forced.top_logprobs) == (Origin.FORCED, 0.0, ((ord("!"), 0.0),))


def test_a_bias_does_not_open_what_the_mask_closes(engine: Engine) -> None:
    end = submit(engine, "script", [encode("ab")] * 5, logit_bias={ord("b"): 100.0, ord("c"): 1000.0}).wait()
    assert end.text == "bbbbb"


def test_nothing_to_generate_starts_no_guest(engine: Engine, runtime: ScriptedRuntime) -> None:
    end = submit(engine, "spell", "abc", max_tokens=0).wait()
    assert (end.reason, end.tokens, end.text) == (FinishReason.LENGTH, (), "")
    assert not runtime.all


@pytest.mark.parametrize("asked", [{"score_from": 0}, {"sampling": SamplingParams(ignore_eos=True)}])
def test_what_does_not_go_with_a_controller_is_refused(engine: Engine, asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"(score_from|ignore_eos) does not go with a controller"):
        engine.submit(Request(prompt="a", controller=ControllerCall("spell", "a"), **asked))


@pytest.mark.parametrize("priority", [1 << 31, -(1 << 31) - 1])
def test_a_priority_beyond_all_bounds_is_refused(engine: Engine, priority: int) -> None:
    with pytest.raises(UsageError, match=f"priority is {priority}"):
        engine.submit(Request(prompt="a", priority=priority))


def test_with_a_new_runtime_it_goes_on(engine: Engine, runtime: ScriptedRuntime) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    lost = [submit(engine, "guest"), submit(engine, "suspend", 3)]
    runtime.dies_at_round = runtime.rounds + 5
    assert {type(handle.wait().error) for handle in lost} == {RuntimeDiedError}
    new = ScriptedRuntime(dict(GUESTS))
    engine.use_runtime(new)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"
    assert plain.wait().error is None
    assert new.all
    # The runtime may die, too.
    new.dies_at_round = new.rounds + 3
    assert isinstance(submit(engine, "guest").wait().error, RuntimeDiedError)


def test_a_runtime_that_lives_may_be_replaced_too(engine: Engine, runtime: ScriptedRuntime) -> None:
    running = submit(engine, "guest")
    wait_for_token(running)
    runtime.hold.clear()
    starting = submit(engine, "missing")
    new = ScriptedRuntime(dict(GUESTS))
    engine.use_runtime(new)
    for handle in (starting, running):
        assert "was replaced" in str(handle.wait().error)
    runtime.hold.set()
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"
    assert new.all
    runtime.live.clear()


def test_a_runtime_of_another_vocabulary_is_refused(engine: Engine) -> None:
    other = ScriptedRuntime(dict(GUESTS))
    other.vocab_size = VOCAB_SIZE - 1
    with pytest.raises(UsageError, match=r"299 tokens.*300"):
        engine.use_runtime(other)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_on_step_follows_whatever_was_told(tiny_model: Path, runtime: ScriptedRuntime) -> None:
    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    with Engine(
        EngineConfig(model_dir=tiny_model, num_pages=64), runtime=runtime, on_step=lambda: events.put("step")
    ) as engine:

        def told(name: str, **sampling: Any) -> list[object]:
            """Up to the step after the end."""
            request = Request(
                prompt="Hello", sampling=SamplingParams(temperature=0.0, **sampling),
                controller=ControllerCall(name, "ab") if name else None,
            )  # fmt: skip
            handle = engine.submit(request, sink=events.put)
            if name == "suspend":
                handle.abort()
            seen = [events.get(timeout=5)]
            while not (len(seen) > 1 and isinstance(seen[-2], FinishEvent)):
                seen.append(events.get(timeout=5))
            return seen

        def kinds(seen: list[object]) -> list[str]:
            return [event if isinstance(event, str) else type(event).__name__ for event in seen]

        # Two sinks in one step, one call: the token and the end.
        tokens = ["TokenEvent", "step", "TokenEvent", "FinishEvent", "step"]
        assert kinds(told("", max_tokens=2)) == ["AcceptedEvent", "step", *tokens]
        assert kinds(told("missing")) == kinds(told("spell", max_tokens=0)) == ["FinishEvent", "step"]
        assert kinds(told("suspend"))[-2:] == ["FinishEvent", "step"]
        # Forced tokens do not wait for the model.
        assert kinds(told("force"))[:5] == ["AcceptedEvent", "TokenEvent", "TokenEvent", "step", "TokenEvent"]
    assert events.empty()


def test_on_step_comes_before_the_next_round(tiny_model: Path) -> None:
    events: list[str] = []

    class Watched(ScriptedRuntime):
        def _count_round(self) -> None:
            events.append("round")
            super()._count_round()

    config = EngineConfig(model_dir=tiny_model, num_pages=64)
    with Engine(config, runtime=Watched(dict(GUESTS)), on_step=lambda: events.append("step")) as engine:
        request = Request(prompt="Hello", controller=ControllerCall("spell", "ab"))
        ended = threading.Event()

        def sink(event: object) -> None:
            events.append(type(event).__name__)
            if isinstance(event, FinishEvent):
                ended.set()

        engine.submit(request, sink=sink)
        assert ended.wait(5)
    start = ["AcceptedEvent", "round", "step", "TokenEvent", "step"]
    assert events[:14] == [*start, *["round", "TokenEvent", "step"] * 2, "round", "FinishEvent", "step"]


def test_a_guest_that_starts_while_the_runtime_dies_does_not_wait_for_the_next_request(tiny_model: Path) -> None:
    class DiesFreeing(ScriptedRuntime):
        def send_turn(self, *, freed: Any, **ops: Any) -> None:
            if freed:
                raise RuntimeDiedError("the runtime died")
            super().send_turn(freed=freed, **ops)

    runtime = DiesFreeing(dict(GUESTS))
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64), runtime=runtime) as engine:
        last = submit(engine, "spell", "a long word that takes its time")
        wait_for_token(last)
        runtime.hold.clear()
        ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        engine.submit(Request(prompt="Hello", controller=ControllerCall("missing")), sink=ends.put)
        try:
            assert last.wait().reason is FinishReason.STOP
            assert isinstance(ends.get(timeout=5).error, RuntimeDiedError)
        finally:
            runtime.hold.set()


def test_on_step_that_raises_does_not_take_the_engine_along(tiny_model: Path) -> None:
    def broken() -> None:
        raise RuntimeError("boom")

    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64), on_step=broken) as engine:
        assert engine.generate("a", max_tokens=3) is not None
        assert engine.generate("a", max_tokens=3) is not None
