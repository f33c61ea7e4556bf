"""The engine on the real vLLM: `AICI_TEST_VLLM=FLAGS`, in an environment with vLLM, pytest and aici.

The other tests of this folder that take the fixture `engine` run there too: `test_gallery.py` has the example scripts.
"""

import json
import math
import os
import re
import signal
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
from aici_runtime.client import Runtime, RuntimeConfig
from tests.engine.support import wait_for_token
from tests.support.model import default_model_dir

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

PYTHON = """
import aici

async def main():
    await aici.FixedTokens("In ")
    await aici.gen_text(regex="[0-9]{4}")
    await aici.FixedTokens(".")

aici.start(main())
"""


def is_near_tie(one: float, other: float) -> bool:
    """Two computations in bfloat16 may choose differently: each rounds a logit to a neighbouring number."""
    distance = 2.0 ** (math.frexp(max(one, other))[1] - 8)
    return abs(one - other) <= 2 * distance


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
    "structural_tag": (
        aici.structural_tag(
            {
                "type": "structural_tag",
                "format": {
                    "type": "tag",
                    "begin": "<n>",
                    "content": {"type": "regex", "pattern": "[0-9]{2,4}"},
                    "end": "</n>",
                },
            }
        ),
        re.compile(r"<n>[0-9]{2,4}</n>").fullmatch,
    ),
    "python": (
        aici.script(PYTHON, "py"),
        re.compile(r"In \d{4}\.").fullmatch,
    ),
    "steps": (
        aici.script(
            '{"steps": [{"Fixed": {"text": {"String": {"str": "Say "}}}}, {"Gen": {"rx": "[a-z]{3}"}}]}', "steps"
        ),
        re.compile(r"Say [a-z]{3}").fullmatch,
    ),
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


@pytest.mark.parametrize("name", ["regex", "json_schema"])
def test_greedy_texts_are_those_of_transformers_with_the_same_masks(
    engine: Engine, runtime: Runtime, name: str
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from aici.transformers import ControllerProcessor

    folder, constraint = default_model_dir(), CASES[name][0]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with ControllerProcessor(constraint, folder, eos_tokens=engine.eos_tokens) as processor:
        for prompt in PROMPTS[:6]:
            given = [token.token_id for token in submit(engine, runtime, prompt, constraint).wait().tokens]
            ids = tokenizer(prompt, return_tensors="pt").input_ids
            processor.reset()
            all_ids = model.generate(ids, logits_processor=[processor], do_sample=False, max_new_tokens=60)[0]
            wanted = [token for token in all_ids[ids.shape[1] :].tolist() if token not in engine.eos_tokens]
            given = [token for token in given if token not in engine.eos_tokens]
            at = next((k for k, pair in enumerate(zip(given, wanted, strict=False)) if pair[0] != pair[1]), None)
            if at is None:
                assert given == wanted
            else:
                logits = model(all_ids[None, : ids.shape[1] + at]).logits[0, -1].float()
                assert is_near_tie(float(logits[given[at]]), float(logits[wanted[at]])), (prompt, at)


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


def test_a_dead_runtime_fails_controlled_requests_only(engine: Engine, runtime: Runtime) -> None:
    wanted = submit(engine, runtime, PROMPTS[0], None, max_tokens=40, ignore_eos=True).wait().tokens
    with Runtime(RuntimeConfig(tokenizer=default_model_dir())) as other:
        other.wait_ready()
        engine.use_runtime(other)
        plain = submit(engine, other, PROMPTS[0], None, max_tokens=40, ignore_eos=True)
        controlled = submit(engine, other, PROMPTS[1], aici.regex("[a-z ]{500}"), max_tokens=200)
        wait_for_token(controlled)
        os.kill(other.pid, signal.SIGKILL)
        assert controlled.wait().reason is FinishReason.FAIL
        end = plain.wait()
    assert end.reason is FinishReason.LENGTH
    assert [token.token_id for token in end.tokens][:10] == [token.token_id for token in wanted][:10]
    engine.use_runtime(runtime)
    assert submit(engine, runtime, PROMPTS[0], aici.regex("[a-z]{3}")).wait().reason is FinishReason.STOP


def test_a_seed_repeats_a_plain_text(engine: Engine, runtime: Runtime) -> None:
    texts = [submit(engine, runtime, PROMPTS[0], None, temperature=1.0, seed=seed).wait().text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_log_probabilities_of_plain_requests(engine: Engine, runtime: Runtime) -> None:
    end = submit(engine, runtime, PROMPTS[0], None, max_tokens=4, logprobs=3).wait()
    for token in end.tokens:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0][1] == token.logprob  # greedy; several tokens may be equally likely
