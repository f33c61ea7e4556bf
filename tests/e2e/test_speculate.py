"""Drafts change no text and no event: the default model with real guests, with and without `speculate`."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from aici_controllers.catalog import guest_path
from aici_engine.config import EngineConfig, SamplingParams, Speculation
from aici_engine.engine import Engine
from aici_engine.events import Event, FinishEvent
from aici_engine.native.library import describe
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.model import default_model_dir

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not describe().level, reason="no kernels for this processor")]

PAIRS = "red: 1, green: 2, blue: 3, red: 1, green: 2, blue: 3,"
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef add(a, b):\n"


class Served(NamedTuple):
    engine: Engine
    module_id: str

    def told(self, requests: list[dict[str, Any]]) -> list[list[Any]]:
        """Return the events by request, without times."""
        handles = [self._submit(**request) for request in requests]
        return [[_plain(event) for event in handle.events()] for handle in handles]

    def _submit(
        self, prompt: str, sampling: dict[str, Any], pattern: str | None = None, prediction: str = ""
    ) -> RequestHandle:
        call = None if pattern is None else ControllerCall(self.module_id, pattern)
        params = SamplingParams(**({"max_tokens": 48} | sampling))
        expected = self.engine.tokenize(prediction) if prediction else ()
        return self.engine.submit(Request(prompt=prompt, sampling=params, controller=call, prediction=expected))


def _plain(event: Event) -> Any:
    if isinstance(event, FinishEvent):
        return event.reason, event.text, event.tokens, event.stop, event.usage.sampled_tokens, event.usage.ff_tokens
    return event


@pytest.fixture(scope="module")
def both() -> Iterator[dict[Speculation, Served]]:
    served: dict[Speculation, Served] = {}
    names: tuple[Speculation, ...] = ("off", "ngram")
    folder = default_model_dir()
    with Runtime(RuntimeConfig(tokenizer=folder)) as first, Runtime(RuntimeConfig(tokenizer=folder)) as second:
        engines = []
        try:
            for name, runtime in zip(names, (first, second), strict=True):
                runtime.wait_ready()
                module_id = runtime.mk_module(guest_path("regex").read_bytes()).module_id
                engine = Engine(EngineConfig(model_dir=folder, speculate=name), runtime=runtime)
                engines.append(engine)
                served[name] = Served(engine, module_id)
            yield served
        finally:
            for engine in engines:
                engine.shutdown()


def requests() -> list[dict[str, Any]]:
    greedy: dict[str, Any] = {"temperature": 0.0}
    drawn: dict[str, Any] = {"temperature": 0.8, "seed": 11}
    return [
        {"prompt": PAIRS, "sampling": greedy},
        {"prompt": CODE, "sampling": greedy | {"logprobs": 2}},
        {"prompt": PAIRS, "sampling": drawn | {"top_p": 0.9}},
        {"prompt": CODE, "sampling": drawn | {"frequency_penalty": 0.2, "repetition_penalty": 1.02}},
        {"prompt": PAIRS, "sampling": greedy | {"stop": ("blue: 3, red",)}},
        {"prompt": PAIRS, "sampling": greedy, "pattern": r"(.|\n)*"},
        {"prompt": PAIRS, "sampling": drawn, "pattern": r"( red: \d, green: \d, blue: \d,){3} done"},
        {
            "prompt": CODE,
            "sampling": greedy,
            "pattern": r" *return a \+ b\n\ndef [a-z]+\(a, b\):\n *return .*\n",
        },
    ]


def test_a_prediction_changes_no_event(both: dict[Speculation, Served]) -> None:
    """Right, wrong and half right predictions, free and under a constraint."""
    asked: list[dict[str, Any]] = [{"prompt": "Three colours are", "sampling": {"temperature": 0.0}}]
    [events] = both["off"].told(asked)
    text = events[-1][1]
    for prediction in (text, text[:40] + " And so on. " + text[60:], "Nothing of this is right."):
        for more in ({}, {"pattern": r"(.|\n)*"}):
            [expected] = both["off"].told([asked[0] | more])
            assert both["ngram"].told([asked[0] | more | {"prediction": prediction}]) == [expected]


def test_drafts_change_no_event(both: dict[Speculation, Served]) -> None:
    """One after the other, and all together."""
    for asked in [*([request] for request in requests()), requests()]:
        told = both["ngram"].told(asked)
        assert told == both["off"].told(asked)
    *_, (_, text, _, _, _, num_forced) = told[-1]
    assert "return a + b\n\ndef " in text
    assert num_forced > 0
    plain, drafting = (both[name].engine.get_stats() for name in ("off", "ngram"))
    assert plain["drafted_tokens"] == 0
    assert 0 < drafting["accepted_tokens"] <= drafting["drafted_tokens"]
    assert drafting["num_steps"] < plain["num_steps"]
    assert drafting["cache_usage"] == 0.0
