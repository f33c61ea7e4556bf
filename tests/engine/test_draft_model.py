"""A draft model on the kernels: its memory, its guesses, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aici_base.errors import UsageError
from aici_base.ids import SeqId
from aici_engine.cache.ids import PageId
from aici_engine.components import make_executor
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.local_executor import LocalExecutor
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.request import Request
from aici_engine.sample.pipeline import choose
from aici_engine.server.api.models import planned_bytes
from aici_engine.server.config import ModelConfig, ReplicaCount, ReplicaPlaces, ServerConfig
from aici_engine.speculation.model_speculator import DraftText
from aici_engine.speculation.speculator import Costs, has_prompt
from aici_engine.step_input import Chunk, StepInput
from tests.engine.support import EOT, encode, write_tiny_model

CPU = ComputeDevice("cpu", 16)


@pytest.fixture(scope="module")
def kernels_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("kernels"), num_heads=2)


def local(config: EngineConfig) -> LocalExecutor:
    found = make_executor(config, CPU)
    assert isinstance(found, LocalExecutor)
    return found


@pytest.mark.one_process
def test_weights_and_pages_of_the_draft_model_count_as_memory(kernels_model: Path) -> None:
    alone = EngineConfig(model_dir=kernels_model, dtype="float32", cache_bytes=1 << 20, max_num_seqs=32)
    plain = local(alone)
    both = local(replace(alone, draft_model=kernels_model))
    weights = plain._model.weight_bytes
    assert both.num_pages == plain.num_pages // 2
    assert plain.memory_bytes - weights <= 1 << 20
    assert both.memory_bytes - 2 * weights <= 1 << 20
    assert both.memory_bytes - 2 * weights > 0.9 * (1 << 20)


def test_a_server_plans_memory_for_the_draft_model(kernels_model: Path) -> None:
    alone = EngineConfig(model_dir=kernels_model, dtype="float32", max_num_seqs=4)
    assert planned_bytes(replace(alone, draft_model=kernels_model)) == 2 * planned_bytes(alone)
    small = replace(alone, draft_model=kernels_model, draft_dtype="int4")
    assert planned_bytes(alone) < planned_bytes(small) < 2 * planned_bytes(alone)


@pytest.mark.one_process
def test_discarded_pages_are_computed_again(kernels_model: Path) -> None:
    both = local(EngineConfig(model_dir=kernels_model, num_pages=8, draft_model=kernels_model))
    draft = both.draft_model
    assert draft is not None
    tokens, pages = encode("b" * 40), [PageId(2), PageId(5), PageId(3)]
    assert draft.compute([DraftText(tokens[:20], pages, 0, guesses=False)]) == []
    [first] = draft.compute([DraftText(tokens, pages, 20, guesses=True)])
    assert draft.num_known(tokens, pages) == 40
    both.discard([PageId(5), PageId(6)])
    assert draft.num_known(tokens, pages) == 16
    [again] = draft.compute([DraftText(tokens, pages, 16, guesses=True)])
    assert again == first


@pytest.mark.one_process
def test_the_guess_is_the_likeliest_token_with_its_probability(kernels_model: Path) -> None:
    both = local(EngineConfig(model_dir=kernels_model, num_pages=8, draft_model=kernels_model))
    assert both.draft_model is not None
    text = DraftText(encode("b" * 20), [PageId(2), PageId(5)], 0, guesses=True)
    [guess] = both.draft_model.compute([text])
    [row] = both.begin(StepInput([Chunk(SeqId(1), text.tokens, 0, text.pages, 1)])).logits()
    of_tokens = np.float64(row[: both.draft_model.vocab_size])
    assert len(of_tokens) == EOT + 1 < len(row), "the model has logits of more tokens than the tokenizer"
    assert guess.token == int(np.argmax(of_tokens))
    assert guess.probability == pytest.approx(1 / np.exp(of_tokens - of_tokens.max()).sum(), rel=1e-4)


@pytest.mark.one_process
def test_a_drawn_guess_is_what_the_model_would_draw(kernels_model: Path) -> None:
    both = local(EngineConfig(model_dir=kernels_model, num_pages=8, draft_model=kernels_model))
    assert both.draft_model is not None
    warm = SamplingParams(temperature=2.0)
    text = DraftText(encode("b" * 20), [PageId(2), PageId(5)], 0, guesses=True, sampling=warm)
    [row] = both.begin(StepInput([Chunk(SeqId(1), text.tokens, 0, text.pages, 1)])).logits()
    of_tokens = np.array(row[: both.draft_model.vocab_size])
    guessed = set()
    for draw in range(0, 2**64, 2**58):
        [guess] = both.draft_model.compute([text._replace(draw=draw)])
        assert guess.token == choose(of_tokens.copy(), warm, draw)
        guessed.add(guess.token)
    assert len(guessed) > 5


@pytest.mark.one_process
def test_drawn_texts_are_guessed_with_their_own_random_numbers(kernels_model: Path) -> None:
    """The draft model has the same weights, and is wrong only where the model draws a token beyond the tokenizer's."""
    config = EngineConfig(model_dir=kernels_model, num_pages=64, speculate="off")
    asked = Request(prompt="Hello", sampling=SamplingParams(temperature=1.5, seed=4, max_tokens=60, ignore_eos=True))
    with Engine(config) as plain:
        expected = plain.submit(asked).wait().tokens
    drafting = Engine(replace(config, draft_model=kernels_model))
    # A pass of a tiny model is too short for guesses to pay: here, they always do.
    speculator = drafting._loop._scheduler._speculator  # type: ignore[attr-defined]
    speculator._costs = lambda plan: None if has_prompt(plan) else Costs([1.0] * 16, 0.0, 0.0)
    with drafting:
        assert drafting.submit(asked).wait().tokens == expected
        stats = drafting.get_stats()
    # With other random numbers, one guess in hundreds would be right.
    assert 2 * stats["accepted_tokens"] > stats["drafted_tokens"] > 10


@pytest.mark.one_process
def test_a_draft_model_with_other_tokens_is_refused(kernels_model: Path, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other", num_heads=2)
    document = (other / "tokenizer.json").read_text()
    swapped = document.replace('"a": 97', '"a": 98', 1).replace('"b": 98', '"b": 97', 1)
    assert swapped != document
    (other / "tokenizer.json").write_text(swapped)
    with pytest.raises(UsageError, match="has other tokens than the model") as caught:
        Engine(EngineConfig(model_dir=kernels_model, num_pages=8, draft_model=other))
    assert caught.value.param == "draft_model"


@pytest.mark.one_process
def test_a_draft_model_without_kernels_is_refused(kernels_model: Path, tiny_model: Path) -> None:
    with pytest.raises(UsageError, match="the kernels do not run the whole draft model") as caught:
        Engine(EngineConfig(model_dir=kernels_model, num_pages=8, draft_model=tiny_model))
    assert caught.value.param == "draft_model"
    with pytest.raises(UsageError, match="drafts need the kernels") as caught:
        Engine(EngineConfig(model_dir=tiny_model, num_pages=8, page_size=8, draft_model=kernels_model))
    assert caught.value.param == "draft_model"


def test_replicas_on_other_machines_have_no_draft_model(tmp_path: Path) -> None:
    model = ModelConfig(engine=EngineConfig(model_dir=tmp_path, draft_model=tmp_path), name="a")
    with pytest.raises(UsageError, match="replicas on other machines have no draft model") as caught:
        ServerConfig(models=(model,), replicas=ReplicaCount(places=ReplicaPlaces(engines=("tcp://h:1#k",))))
    assert caught.value.param == "draft_model"


@pytest.mark.one_process
def test_a_draft_model_with_a_short_context_drafts_as_far_as_that(kernels_model: Path, tmp_path: Path) -> None:
    short = write_tiny_model(tmp_path / "short", num_heads=2, context=32)
    request = Request(prompt="Hello", sampling=SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
    config = EngineConfig(model_dir=kernels_model, num_pages=16, page_size=16)
    with Engine(config) as plain:
        expected = plain.submit(request).wait().tokens
    with Engine(replace(config, draft_model=short)) as drafting:
        assert drafting.submit(request).wait().tokens == expected
