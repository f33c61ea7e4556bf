"""What a controlled request tells: the controller's words, stop strings, log probabilities, logs."""

import math
from pathlib import Path
from typing import Any

import pytest

from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import (
    ControlEvent,
    FinishEvent,
    FinishReason,
    Origin,
    TokenEvent,
)
from aici_engine.request import Request
from aici_runtime.wire import Splice
from tests.engine.control.scripted_guests import (
    Spell,
    submit,
)
from tests.engine.support import (
    EOS,
    ScriptedRuntime,
    encode,
)


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
