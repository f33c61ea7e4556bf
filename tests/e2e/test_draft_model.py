"""A draft model changes no text and no event: the default model drafts for itself in int4, a random model drafts."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aici_controllers.catalog import guest_path
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.native.library import describe
from aici_engine.request import Request
from aici_engine.speculation.speculator import Costs, has_prompt
from aici_runtime.client import Runtime, RuntimeConfig
from tests.e2e.test_speculate import Served, requests
from tests.support.model import default_model_dir

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not describe().level, reason="no kernels for this processor")]


@contextmanager
def served(config: EngineConfig) -> Iterator[Served]:
    with Runtime(RuntimeConfig(tokenizer=config.model_dir)) as runtime:
        runtime.wait_ready()
        module_id = runtime.mk_module(guest_path("regex").read_bytes()).module_id
        with Engine(config, runtime=runtime) as engine:
            yield Served(engine, module_id)


def always_draft(engine: Engine) -> None:
    """Let guesses pay whatever the times are: a busy machine makes single passes slow."""
    speculator = engine._loop._scheduler._speculator  # type: ignore[attr-defined]
    speculator._costs = lambda plan: None if has_prompt(plan) else Costs([1.0] * 16, 0.0, 0.0)


def test_the_model_in_int4_drafts_for_its_own_weights() -> None:
    """One request after the other, and all together."""
    folder = default_model_dir()
    config = EngineConfig(model_dir=folder, dtype="bfloat16", max_context=512, speculate="off")
    with ExitStack() as stack:
        plain = stack.enter_context(served(config))
        drafting = stack.enter_context(served(replace(config, draft_model=folder, draft_dtype="int4")))
        always_draft(drafting.engine)
        for asked in [*([request] for request in requests()), requests()]:
            assert drafting.told(asked) == plain.told(asked)
        stats = drafting.engine.get_stats()
        assert 0 < stats["accepted_tokens"] <= stats["drafted_tokens"]
        assert stats["num_steps"] < plain.engine.get_stats()["num_steps"]
        assert stats["cache_usage"] == 0.0


def test_a_drawn_text_is_drafted_with_its_own_random_numbers() -> None:
    folder = default_model_dir()
    config = EngineConfig(model_dir=folder, dtype="bfloat16", max_context=512, speculate="off")
    sampling = SamplingParams(temperature=0.9, top_p=0.95, seed=7, max_tokens=150, ignore_eos=True)
    request = Request(prompt="Once upon a time", sampling=sampling)
    with Engine(config) as plain, Engine(replace(config, draft_model=folder, draft_dtype="int4")) as drafting:
        always_draft(drafting)
        expected = plain.submit(request).wait().tokens
        assert drafting.submit(request).wait().tokens == expected
        stats = drafting.get_stats()
    # Guesses with other random numbers would give half of the tokens.
    assert stats["accepted_tokens"] > 105


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with the tokens of the default model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("random")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    shutil.copy(default_model_dir() / "tokenizer.json", folder)
    return folder


def test_a_draft_model_that_knows_nothing_soon_drafts_no_more(random_model: Path) -> None:
    config = EngineConfig(model_dir=default_model_dir(), max_context=512, speculate="off")
    request = Request(
        prompt="Once upon a time", sampling=SamplingParams(temperature=0.0, max_tokens=120, ignore_eos=True)
    )
    with Engine(config) as plain, Engine(replace(config, draft_model=random_model)) as drafting:
        expected = plain.submit(request).wait().tokens
        assert drafting.submit(request).wait().tokens == expected
        first = drafting.get_stats()
        assert drafting.submit(request).wait().tokens == expected
        again = drafting.get_stats()
    assert first["drafted_tokens"] < 60
    assert again["drafted_tokens"] - first["drafted_tokens"] < 12
