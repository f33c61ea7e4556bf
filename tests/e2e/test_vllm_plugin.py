"""`aici.vllm` in the real vLLM: run alone, with `AICI_TEST_VLLM=""`, in an environment with vLLM, pytest and aici."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.model import default_model_dir

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("AICI_TEST_VLLM" not in os.environ, reason="AICI_TEST_VLLM is not set: see this file's head"),
]

PROMPT = "The capital of France is"
JS = "jsctrl"
GOOD: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "[0-9]{3}[a-z]{2}"}, "[0-9]{3}[a-z]{2}"),
    "choice": ({"choice": ["the quick fox", "the quick dog"]}, "the quick (fox|dog)"),
    "json_schema": ({"json_schema": {"enum": ["x", "yy"]}}, '"(x|yy)"'),
    "script": ({"controller": JS, "controller_arg": "await $`Two: `; await gen({regex: /[a-z]{4}/})"}, "Two: [a-z]{4}"),
}


@pytest.fixture(scope="module")
def vllm() -> Iterator[Any]:
    """vLLM as a library: `vllm serve` has the same engine."""
    from vllm import LLM

    options = {"max_model_len": 512, "max_num_seqs": 8, "dtype": "bfloat16", "enforce_eager": True}
    llm = LLM(
        model=str(default_model_dir()),
        async_scheduling=False,
        scheduler_cls="aici.vllm.ControlledScheduler",
        logits_processors=["aici.vllm:RequestCheck"],
        kv_cache_memory_bytes=1 << 30,
        **options,
    )
    yield llm
    import psutil

    # vLLM looks at its children before it kills them, and a process of the runtime may end by itself meanwhile.
    with contextlib.suppress(psutil.NoSuchProcess):
        llm.llm_engine.engine_core.shutdown()


def outputs(vllm: Any, *constraints: object, **options: Any) -> list[Any]:
    from vllm import SamplingParams

    params = [
        SamplingParams(
            **({"max_tokens": 40, "temperature": 0.0} | options),
            extra_args=None if constraint is None else {"aici": constraint},
        )
        for constraint in constraints
    ]
    found = vllm.generate([PROMPT] * len(params), params, use_tqdm=False)
    return [each.outputs[0] for each in found]


def test_constraints_beside_plain_rows(vllm: Any) -> None:
    [alone] = outputs(vllm, None)
    *found, plain = outputs(vllm, *(constraint for constraint, _ in GOOD.values()), None)
    for output, (_, pattern) in zip(found, GOOD.values(), strict=True):
        assert re.fullmatch(pattern, output.text)
        assert output.finish_reason == "stop"
    assert plain.text[:20] == alone.text[:20]


def test_what_cannot_be_had_ends_with_an_error(vllm: Any) -> None:
    bad = [{"controller": JS, "controller_arg": "await fork(2)"}, {"controller": JS, "controller_arg": "throw 1"}]
    *found, good = outputs(vllm, *bad, {"regex": "[a-z]{3}"})
    assert [output.finish_reason for output in found] == ["error", "error"]
    assert re.fullmatch("[a-z]{3}", good.text)


@pytest.mark.parametrize(
    ("constraint", "options"), [({"regex": "("}, {}), ({"nix": 1}, {}), ({"regex": "a"}, {"min_tokens": 3})]
)
def test_wrong_requests_are_refused(vllm: Any, constraint: object, options: dict[str, Any]) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=r"regex|aici|min_tokens"):
        outputs(vllm, constraint, **options)


def test_two_samples_of_a_request_have_a_guest_each(vllm: Any) -> None:
    from vllm import SamplingParams

    params = SamplingParams(n=2, temperature=1.0, seed=1, max_tokens=20, extra_args={"aici": {"regex": "[a-z]{6}"}})
    [found] = vllm.generate([PROMPT], params, use_tqdm=False)
    texts = [output.text for output in found.outputs]
    assert all(re.fullmatch("[a-z]{6}", text) for text in texts)
    assert len(set(texts)) == 2
