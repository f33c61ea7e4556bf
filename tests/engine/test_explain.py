"""Explanations of tokens: against transformers' logits and the guest's own mask; the trace of `aici run --explain`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishEvent, Origin, SuspendedEvent, explanation_fields
from aici_engine.request import ControllerCall, Request
from tests.engine.programs import PRINTABLE, Program, by_fork
from tests.engine.support import EOS, VOCAB_SIZE, ScriptedRuntime, encode
from tests.engine.test_logprobs import hf_logits

PROMPT = "Hello, mask"


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[Engine]:
    config = EngineConfig(model_dir=tiny_model, num_pages=300, page_size=4, max_num_seqs=8, max_batch_tokens=32)
    with Engine(config, runtime=ScriptedRuntime({"program": Program})) as engine:
        yield engine


def finish(engine: Engine, *program: Any, **sampling: Any) -> FinishEvent:
    call = ControllerCall("program", list(program)) if program else None
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 12} | sampling)
    return engine.submit(Request(prompt=PROMPT, sampling=params, controller=call)).wait()


def softmax(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    weights: npt.NDArray[np.float64] = np.exp(row - row.max())
    return weights / weights.sum()


@pytest.mark.parametrize("options", [{}, {"temperature": 1.3, "seed": 4, "top_k": 7, "presence_penalty": 1.5}])
@pytest.mark.parametrize("program", [(), (("any", 6),)])
def test_probabilities_are_those_of_the_model(
    engine: Engine, tiny_model: Path, program: tuple[Any, ...], options: dict[str, Any]
) -> None:
    bias = {EOS: -100.0, 7: 3.0}
    end = finish(engine, *program, explain=5, logit_bias=bias, **options)
    assert end.tokens
    ids = [*encode(PROMPT), *(token.token_id for token in end.tokens)]
    rows = hf_logits(tiny_model, ids[:-1])[-len(end.tokens) :]
    is_open = np.isin(np.arange(VOCAB_SIZE), PRINTABLE if program else range(VOCAB_SIZE))
    for token, row in zip(end.tokens, rows, strict=True):
        for biased, value in bias.items():
            row[biased] += value
        before, after = softmax(row), softmax(np.where(is_open, row, -np.inf))
        why = token.explanation
        assert why is not None
        assert why.num_allowed == is_open.sum()
        assert why.probability == pytest.approx(before[token.token_id], abs=2e-4)
        assert why.masked_probability == pytest.approx(after[token.token_id], abs=2e-4)
        assert [each.probability for each in why.likeliest] == pytest.approx(sorted(before)[::-1][:5], abs=2e-4)
        for each in why.likeliest:
            assert each.probability == pytest.approx(before[each.token_id], abs=2e-4)
            assert each.allowed == is_open[each.token_id]
        assert why.forward_s > 0
        assert (why.guest_s is None) == (not program)


def test_they_change_nothing_and_come_only_when_asked_for(engine: Engine) -> None:
    options: dict[str, Any] = {"seed": 5, "temperature": 1.2, "frequency_penalty": 0.5}
    without, none, three = (finish(engine, ("any", 9), explain=k, **options) for k in (None, 0, 3))
    assert without.text == none.text == three.text
    assert {token.explanation for token in without.tokens} == {None}
    assert {len(token.explanation.likeliest) for token in three.tokens if token.explanation} == {3}
    assert {token.explanation.likeliest for token in none.tokens if token.explanation} == {()}


def test_forced_tokens_have_none_and_logprobs_stay(engine: Engine) -> None:
    end = finish(engine, ("force", "ab"), ("say", "c"), ("back", 1, "xy"), ("say", "d"), explain=1, logprobs=1)
    assert end.text == "abxyd"
    assert [token.explanation is None for token in end.tokens] == [True, True, True, True, False]
    assert [token.origin is Origin.FORCED for token in end.tokens] == [True, True, True, True, False]
    said = end.tokens[-1]
    assert said.explanation is not None
    assert (said.explanation.num_allowed, said.explanation.masked_probability) == (1, 1.0)
    assert (said.logprob, said.top_logprobs) == (pytest.approx(0.0, abs=1e-6), ((said.token_id, said.logprob),))


def test_special_tokens_have_names(engine: Engine) -> None:
    end = finish(engine, explain=1, logit_bias={EOS: 100.0})
    [token] = end.tokens
    assert token.explanation is not None
    [likeliest] = token.explanation.likeliest
    assert (likeliest.token_id, likeliest.text, likeliest.allowed) == (EOS, "<|endoftext|>", True)


@pytest.mark.parametrize("explain", [None, 1])
def test_a_fork_that_waits_is_told_once_and_only_when_asked_for(engine: Engine, explain: int | None) -> None:
    program = [("fork", [[("wait", "go"), ("say", "b")], [("say", "aaaaa"), ("set", "go", "x")]])]
    params = SamplingParams(temperature=0.0, max_tokens=30, explain=explain)
    handle = engine.submit(Request(prompt=PROMPT, sampling=params, controller=ControllerCall("program", program)))
    events = list(handle.events())
    assert sorted(told.end.text for told in by_fork(events).values() if told.end) == ["aaaaa", "b"]
    assert sum(isinstance(event, SuspendedEvent) for event in events) == (0 if explain is None else 1)


@pytest.mark.parametrize("value", [-1, 101, 1.5])
def test_bad_wishes_are_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match="explain"):
        SamplingParams(explain=value)


def test_the_fields_are_json(engine: Engine) -> None:
    [token, *_] = finish(engine, explain=2).tokens
    assert token.explanation is not None
    fields = json.loads(json.dumps(explanation_fields(token.explanation)))
    assert TokenId(fields["likeliest"][0]["id"]) == token.explanation.likeliest[0].token_id
