"""The conversation with guests, scripted. The tiny model's own choices do not matter: masks and splices decide."""

import time
from pathlib import Path
from typing import Any

import pytest

from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import (
    AcceptedEvent,
    BacktrackEvent,
    FinishEvent,
    FinishReason,
    Origin,
    TokenEvent,
)
from aici_engine.request import ControllerCall, Request
from aici_runtime.wire import Pre, Splice
from tests.engine.control.scripted_guests import (
    Late,
    Spell,
    submit,
)
from tests.engine.support import (
    EOS,
    EOT,
    GO_ON,
    VOCAB_SIZE,
    ScriptedRuntime,
    encode,
    wait_for_token,
    write_tiny_model,
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


def test_aborted_half_way(engine: Engine, runtime: ScriptedRuntime) -> None:
    handle = submit(engine, "guest")
    wait_for_token(handle)
    handle.abort()
    assert handle.wait().reason is FinishReason.ABORT


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
