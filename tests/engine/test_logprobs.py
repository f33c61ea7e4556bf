"""Log-probabilities of the output and of the prompt, against transformers' logits; bias; stop strings end to end."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import AcceptedEvent, FinishEvent, FinishReason, ScoreEvent, TokenEvent, TokenScore
from aici_engine.request import ControllerCall, Request
from tests.engine.support import EOS, EOT, encode

PROMPTS = ["a", "Hello", "the quick brown fox " * 4, "x" * 60, "Zebra crossing", "1 2 3 4 5 6 7 8 9", "é", "end."]
TOLERANCE = {"rel": 0, "abs": 2e-4}


@cache
def hf_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")


def hf_logits(folder: Path, ids: list[int]) -> npt.NDArray[np.float64]:
    import torch

    with torch.inference_mode():
        logits: npt.NDArray[np.float64] = hf_model(folder)(torch.tensor([ids])).logits[0].double().numpy()
    return logits


def log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    top = logits.max(-1, keepdims=True)
    rows: npt.NDArray[np.float64] = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return rows


def check(score: Any, row: npt.NDArray[np.float64], k: int) -> None:
    assert score.logprob == pytest.approx(row[score.token_id], **TOLERANCE)
    assert [value for _, value in score.top_logprobs] == pytest.approx(sorted(row)[::-1][:k], **TOLERANCE)
    assert [row[token] for token, _ in score.top_logprobs] == pytest.approx(sorted(row)[::-1][:k], **TOLERANCE)


def finish(engine: Engine, prompt: str, **sampling: Any) -> FinishEvent:
    return engine.submit(Request(prompt=prompt, sampling=SamplingParams(**sampling))).wait()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        # Sampling parameters do not change log-probabilities.
        {"temperature": 1.7, "top_k": 9, "top_p": 0.9, "seed": 3, "presence_penalty": 1.0, "repetition_penalty": 1.4},
    ],
)
def test_of_the_output_alone_and_in_a_crowd(engine: Engine, tiny_model: Path, options: dict[str, Any]) -> None:
    params = SamplingParams(max_tokens=12, logprobs=4, **options)
    handles = [engine.submit(Request(prompt=prompt, sampling=params)) for prompt in PROMPTS]
    for prompt, handle in zip(PROMPTS, handles, strict=True):
        crowd, alone = handle.wait().tokens, finish(engine, prompt, max_tokens=12, logprobs=4, **options).tokens
        ids = [*encode(prompt), *(token.token_id for token in crowd)]
        rows = log_softmax(hf_logits(tiny_model, ids[:-1]))[-len(crowd) :]
        assert [token.token_id for token in crowd] == [token.token_id for token in alone]
        for token, same, row in zip(crowd, alone, rows, strict=True):
            check(token, row, 4)
            check(same, row, 4)


def test_they_change_nothing_and_come_only_when_asked_for(engine: Engine) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "seed": 5, "temperature": 1.2, "frequency_penalty": 0.5}
    without, zero, five = (finish(engine, "Hello", logprobs=k, **options) for k in (None, 0, 5))
    assert without.text == zero.text == five.text
    assert {(token.logprob, token.top_logprobs) for token in without.tokens} == {(None, ())}
    assert {token.top_logprobs for token in zero.tokens} == {()}
    assert [token.logprob for token in zero.tokens] == [token.logprob for token in five.tokens]
    assert {len(token.top_logprobs) for token in five.tokens} == {5}


def test_a_bias_forces_forbids_and_counts(engine: Engine, tiny_model: Path) -> None:
    forced = finish(engine, "Hello", max_tokens=6, logit_bias={ord("a"): 100.0, ord("b"): 100.0}, logprobs=2)
    assert set(forced.text) <= set("ab")
    greedy = finish(engine, "Hello", temperature=0.0, max_tokens=6, logprobs=0)
    taken = greedy.tokens[0].token_id
    bias = {taken: -100.0, 7: 1.5}
    [first, *_] = finish(engine, "Hello", temperature=0.0, max_tokens=6, logit_bias=bias, logprobs=3).tokens
    logits = hf_logits(tiny_model, list(encode("Hello")))[-1]
    for token, value in bias.items():
        logits[token] += value
    assert first.token_id == logits.argmax() != taken
    check(first, log_softmax(logits), 3)
    assert finish(engine, "Hello", temperature=0.0, max_tokens=6, logprobs=0).tokens == greedy.tokens


@pytest.mark.parametrize("options", [{"logit_bias": {300: 1.0}}, {"logit_bias": {-1: 1.0}}])
def test_a_bias_for_what_is_no_token_is_refused(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"logit_bias has token (300|-1): tokens are 0 to 299"):
        engine.generate("a", **options)


@pytest.mark.parametrize(
    "options",
    [{"logprobs": -1}, {"logprobs": 101}, {"logprobs": 1.5}, {"stop": ("",)}, {"stop": ("a",) * 33}, {"stop": "a"},
     {"stop": (1,)}, {"logit_bias": {1: float("nan")}}, {"logit_bias": {1: float("inf")}}, {"logit_bias": {"1": 1.0}},
     {"logit_bias": {1: 1e38}}, {"logit_bias": {1: "a"}}],
)  # fmt: skip
def test_bad_wishes_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        SamplingParams(**options)


def scores_of(events: list[Any]) -> tuple[TokenScore, ...]:
    [scores] = [event.scores for event in events if isinstance(event, ScoreEvent)]
    assert isinstance(next(event for event in events if not isinstance(event, AcceptedEvent)), ScoreEvent)
    return scores  # type: ignore[no-any-return]


def check_scores(folder: Path, prompt: str, first: int, k: int, scores: tuple[TokenScore, ...]) -> None:
    ids = encode(prompt)
    assert [score.token_id for score in scores] == ids[first:]
    rows = log_softmax(hf_logits(folder, list(ids)))
    for at, score in enumerate(scores, first):
        if at == 0:
            assert score == TokenScore(ids[0], None, ())
        else:
            check(score, rows[at - 1], k)


@pytest.mark.parametrize("max_batch_tokens", [9, 23, 512])
def test_of_the_prompt_in_any_chunks(tiny_model: Path, max_batch_tokens: int) -> None:
    config = EngineConfig(model_dir=tiny_model, num_pages=64, max_num_seqs=8, max_batch_tokens=max_batch_tokens)
    # A bias and a temperature are the output's affair.
    params = SamplingParams(max_tokens=2, logprobs=3, logit_bias={5: 50.0}, temperature=2.0)
    with Engine(config) as engine:
        asked = [(prompt, first) for prompt in PROMPTS for first in sorted({0, 1, len(encode(prompt)) - 1})
                 if first < len(encode(prompt))]  # fmt: skip
        handles = [engine.submit(Request(prompt=prompt, score_from=first, sampling=params)) for prompt, first in asked]
        for (prompt, first), handle in zip(asked, handles, strict=True):
            events = list(handle.events())
            check_scores(tiny_model, prompt, first, 3, scores_of(events))
            assert sum(isinstance(event, TokenEvent) for event in events) == 2
        assert engine.get_stats()["cache_usage"] == 0.0


def test_of_the_prompt_through_preemption(tiny_model: Path) -> None:
    # While the second prompt is computed, two tokens a step, the first request's output takes the prompt's pages.
    config = EngineConfig(model_dir=tiny_model, num_pages=27, page_size=4, max_num_seqs=2, max_batch_tokens=3)
    with Engine(config) as engine:
        long = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
        first = engine.submit(Request(prompt="Hello", sampling=long))
        prompt = PROMPTS[2]
        second = engine.submit(Request(prompt=prompt, score_from=1, sampling=SamplingParams(max_tokens=0)))
        [_, scores, end] = second.events()
        assert isinstance(end, FinishEvent)
        assert engine.get_stats()["num_preemptions"] > 0
        assert first.wait().error is None
    check_scores(tiny_model, prompt, 1, 0, scores_of([scores]))


@pytest.mark.parametrize(("prompt", "first"), [("Hello", 0), ("Hello", 4), ("a", 0), ("x" * 256, 200)])
def test_of_a_prompt_alone(engine: Engine, tiny_model: Path, prompt: str, first: int) -> None:
    params = SamplingParams(max_tokens=0)
    *events, end = engine.submit(Request(prompt=prompt, score_from=first, sampling=params)).events()
    assert isinstance(end, FinishEvent)
    assert [type(event) for event in events] == [AcceptedEvent, ScoreEvent]
    assert (end.reason, end.tokens, end.usage.prompt_tokens) == (FinishReason.LENGTH, (), len(prompt))
    check_scores(tiny_model, prompt, first, 0, scores_of(events))


def test_nothing_to_generate_is_nothing_to_compute(engine: Engine) -> None:
    [end] = engine.submit(Request(prompt="x" * 256, sampling=SamplingParams(max_tokens=0))).events()
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.text, end.timings.started_s) == (FinishReason.LENGTH, "", None)
    with pytest.raises(UsageError, match="257 tokens"):
        engine.generate("x" * 257, max_tokens=0)


@pytest.mark.parametrize("first", [-1, 5])
def test_scores_of_what_is_no_prompt_are_refused(engine: Engine, first: int) -> None:
    with pytest.raises(UsageError, match=f"score_from is {first}: the prompt has tokens 0 to 4"):
        engine.submit(Request(prompt="Hello", score_from=first))


@pytest.mark.parametrize("eos", [EOS, EOT])
def test_eos_ends_unless_it_is_to_be_ignored(engine: Engine, eos: TokenId) -> None:
    end = finish(engine, "Hello", max_tokens=3, logit_bias={eos: 100.0})
    assert (end.reason, len(end.tokens)) == (FinishReason.EOS, 1)
    end = finish(engine, "Hello", max_tokens=3, logit_bias={eos: 100.0}, ignore_eos=True)
    assert (end.reason, [token.token_id for token in end.tokens], end.text) == (FinishReason.LENGTH, [eos] * 3, "")


@pytest.mark.parametrize("eos", [EOS, EOT])
def test_the_end_may_not_come_too_early(engine: Engine, eos: TokenId) -> None:
    end = finish(engine, "Hello", max_tokens=6, logit_bias={eos: 100.0}, min_tokens=3)
    assert (end.reason, len(end.tokens)) == (FinishReason.EOS, 4)
    assert not {EOS, EOT} & {token.token_id for token in end.tokens[:-1]}


def test_a_stop_token_ends_the_text_and_is_no_part_of_it(engine: Engine) -> None:
    usual = finish(engine, "Hello", temperature=0.0, max_tokens=4, logit_bias={EOS: -100.0, EOT: -100.0})
    tokens = [token.token_id for token in usual.tokens]
    at = tokens.index(tokens[2])
    bias = {EOS: -100.0, EOT: -100.0}
    end = finish(engine, "Hello", temperature=0.0, max_tokens=4, logit_bias=bias, stop_token_ids=(tokens[2],))
    assert (end.reason, [token.token_id for token in end.tokens]) == (FinishReason.EOS, tokens[: at + 1])
    assert end.text.encode() == b"".join(token.data for token in usual.tokens[:at]) or "\ufffd" in end.text


def test_a_run_of_tokens_that_is_forbidden_does_not_come(engine: Engine) -> None:
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 6, "logit_bias": {EOS: -100.0, EOT: -100.0}}
    usual = [token.token_id for token in finish(engine, "Hello", **options).tokens]
    end = finish(engine, "Hello", **options, bad_tokens=((usual[1], usual[2]),))
    found = [token.token_id for token in end.tokens]
    assert found[:2] == usual[:2]
    assert (usual[1], usual[2]) not in itertools.pairwise(found)


@pytest.mark.parametrize("options", [{"min_tokens": 1}, {"stop_token_ids": (5,)}, {"bad_tokens": ((5,),)}])
def test_what_bans_tokens_does_not_go_with_a_controller(engine: Engine, options: dict[str, Any]) -> None:
    request = Request(prompt="a", sampling=SamplingParams(**options), controller=ControllerCall("regex", "a"))
    with pytest.raises(UsageError, match=next(iter(options))):
        engine.submit(request)


def test_a_stop_string_ends_generation_at_once(engine: Engine) -> None:
    whole = finish(engine, "Hello", temperature=0.0, max_tokens=24, logit_bias={EOS: -100.0, EOT: -100.0})
    raw = b"".join(token.data for token in whole.tokens)
    # Two adjacent bytes of the output, of text, without an earlier occurrence.
    at = next(i for i in range(3, 20) if raw[i : i + 2].isascii() and raw.find(raw[i : i + 2]) == i)
    stop = raw[at : at + 2].decode()
    others = [engine.submit(Request(prompt=prompt, sampling=SamplingParams(max_tokens=30))) for prompt in PROMPTS[:4]]
    handle = engine.submit(
        Request(
            prompt="Hello",
            sampling=SamplingParams(
                temperature=0.0, max_tokens=24, logit_bias={EOS: -100.0, EOT: -100.0}, stop=("\0\0\0", stop)
            ),
        )
    )
    *events, end = handle.events()
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.stop, end.error) == (FinishReason.STOP_STRING, stop, None)
    assert end.text == raw[:at].decode(errors="replace")
    assert "".join(event.text for event in events if isinstance(event, TokenEvent)) + end.tail == end.text
    assert len(end.tokens) == end.usage.sampled_tokens == at + 2
    assert {other.wait().error for other in others} == {None}


def test_what_was_held_back_for_nothing_is_the_tail(engine: Engine) -> None:
    bias = {ord("a"): 200.0}
    *events, end = engine.submit(
        Request(prompt="Hello", sampling=SamplingParams(max_tokens=3, logit_bias=bias, stop=("aaaaa",)))
    ).events()
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.text, end.tail, end.stop) == (FinishReason.LENGTH, "aaa", "aaa", None)
    assert {event.text for event in events if isinstance(event, TokenEvent)} == {""}
