"""The engine on the real vLLM: `AICI_TEST_VLLM=FLAGS`, in an environment with vLLM, pytest and aici.

The other tests of this folder that take the fixture `engine` run there too: `test_gallery.py` has the example scripts.
"""

import json
import os
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

import aici
from aici_controllers.catalog import guest_path
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.client import Runtime

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("AICI_TEST_VLLM" not in os.environ, reason="AICI_TEST_VLLM is not set: see this file's head"),
]

NUM_PROMPTS = 50
PROMPTS = [f"Fact {number}: the " for number in range(NUM_PROMPTS)]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SOURCE = "The river rises in the mountains and ends in the sea."


def _is_json(text: str) -> bool:
    value = json.loads(text)
    return value.keys() == {"name", "age"} and len(value["name"]) <= 8 and value["age"] <= 99


CASES: dict[str, tuple[aici.Constraint[Any], Callable[[str], object]]] = {
    "regex": (aici.regex(r"[a-z]{2,5} [0-9]{3}\."), re.compile(r"[a-z]{2,5} [0-9]{3}\.").fullmatch),
    "choice": (
        aici.choice("the quick fox", "the quick dog", "a cat"),
        ["the quick fox", "the quick dog", "a cat"].count,
    ),
    "json_schema": (aici.json_schema(SCHEMA), _is_json),
    "grammar": (
        aici.grammar('start: "(" start ")" | /[0-9]{1,3}/', syntax="lark"),
        re.compile(r"\(*\d{1,3}\)*").fullmatch,
    ),
    "substring": (aici.substring(SOURCE), lambda text: text.strip() in SOURCE),
    "script": (
        aici.script("await $`In `; await gen({regex: /[0-9]{4}/}); await $`.`;", "js"),
        re.compile(r"In \d{4}\.").fullmatch,
    ),
}


def submit(
    engine: Engine, runtime: Runtime, prompt: str, constraint: aici.Constraint[Any] | None, **sampling: Any
) -> RequestHandle:
    call = None
    if constraint is not None:
        assert isinstance(constraint.controller, str)
        module = runtime.mk_module(guest_path(constraint.controller)).module_id
        call = ControllerCall(module, constraint.argument)
    params = SamplingParams(**({"temperature": 0.0, "max_tokens": 60} | sampling))
    return engine.submit(Request(prompt=prompt, sampling=params, controller=call))


@pytest.mark.parametrize("name", CASES)
def test_every_constraint_beside_plain_neighbours(engine: Engine, runtime: Runtime, name: str) -> None:
    constraint, is_good = CASES[name]
    alone = [submit(engine, runtime, prompt, None, max_tokens=8) for prompt in PROMPTS]
    wanted = [handle.wait().text for handle in alone]
    pairs = [
        (submit(engine, runtime, prompt, constraint), submit(engine, runtime, prompt, None, max_tokens=8))
        for prompt in PROMPTS
    ]
    ends = [controlled.wait() for controlled, _ in pairs]
    texts = [plain.wait().text for _, plain in pairs]
    for end in ends:
        assert end.reason in (FinishReason.STOP, FinishReason.EOS, FinishReason.LENGTH), end.error
        assert end.reason is FinishReason.LENGTH or is_good(end.text), end.text
    assert sum(end.reason is not FinishReason.LENGTH for end in ends) >= 0.8 * NUM_PROMPTS
    # Rows of bfloat16 differ a little with the size of the batch, so a near tie may fall otherwise.
    assert sum(text == want for text, want in zip(texts, wanted, strict=True)) >= 0.9 * NUM_PROMPTS


def test_aborts_at_any_step_leave_nothing(engine: Engine, runtime: Runtime) -> None:
    handles = [submit(engine, runtime, prompt, CASES["json_schema"][0]) for prompt in PROMPTS[:16]]
    for number, handle in enumerate(handles):
        events = handle.events()
        for _ in range(number):
            next(events, None)
        handle.abort()
    for handle in handles:
        assert handle.wait().reason in (FinishReason.ABORT, FinishReason.STOP)
    deadline = time.monotonic() + 30
    while engine.get_stats()["cache_usage"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.get_stats()["cache_usage"] == 0.0
    assert engine.get_stats()["active_requests"] == 0


def test_a_seed_repeats_a_plain_text(engine: Engine, runtime: Runtime) -> None:
    texts = [submit(engine, runtime, PROMPTS[0], None, temperature=1.0, seed=seed).wait().text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_log_probabilities_of_plain_requests(engine: Engine, runtime: Runtime) -> None:
    end = submit(engine, runtime, PROMPTS[0], None, max_tokens=4, logprobs=3).wait()
    for token in end.tokens:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0][1] == token.logprob  # greedy; several tokens may be equally likely
