"""Embeddings of the engine on a tiny model, against the hidden states of transformers."""

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from aici_base.errors import UsageError
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import AcceptedEvent, EmbeddingEvent, FinishEvent, FinishReason, TokenEvent
from aici_engine.pooling_kinds import POOLINGS, Pooling
from aici_engine.request import ControllerCall, Request, Sink
from tests.engine.support import VOCAB_SIZE, encode, write_tiny_model
from tests.support.processes import wait_until

pytestmark = pytest.mark.one_process
TEXTS = ["a", "Hello", "the quick brown fox " * 6, "the quick brown fox " * 6 + "!", "x" * 60, "é"]
TEXT_OF_A_CONTEXT = "y" * 256
Vector = npt.NDArray[np.float32]


@cache
def hf_model(folder: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder, attn_implementation="eager")


def oracle(folder: Path, text: str, pooling: Pooling) -> npt.NDArray[np.float64]:
    import torch

    with torch.inference_mode():
        states = hf_model(folder)(torch.tensor([encode(text)])).last_hidden_state[0].double().numpy()
    wanted: npt.NDArray[np.float64] = states.mean(0) if pooling == "mean" else states[-1]
    return wanted


def embed(
    engine: Engine, texts: list[str], pooling: Pooling, *, submitted: Callable[[], None] = lambda: None
) -> list[Vector]:
    """Embed all texts at the same time. `submitted`: called when the engine has all requests."""
    handles = [engine.submit(Request(prompt=text, pooling=pooling)) for text in texts]
    submitted()
    vectors = []
    for handle, text in zip(handles, texts, strict=True):
        accepted, embedding, end = handle.events()
        assert isinstance(accepted, AcceptedEvent)
        assert isinstance(embedding, EmbeddingEvent)
        assert isinstance(end, FinishEvent)
        assert (end.reason, end.text, end.tokens) == (FinishReason.LENGTH, "", ())
        assert (end.usage.prompt_tokens, end.usage.sampled_tokens) == (len(encode(text)), 0)
        vectors.append(embedding.vector)
    return vectors


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int]]:
    """The folder of the model and the size of a page."""
    return {"torch": (tiny_model, 4), "kernels": (write_tiny_model(tmp_path_factory.mktemp("wide"), num_heads=2), 16)}


def same(by: str, vectors: list[Vector], others: list[Vector]) -> None:
    """On the kernels to the last bit; torch's matrices depend on the batch."""
    for vector, other in zip(vectors, others, strict=True):
        np.testing.assert_allclose(vector, other, atol=1e-4 if by == "torch" else 0.0, rtol=0.0)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("by", ["torch", "kernels"])
def test_vectors_are_those_of_transformers_alone_and_in_a_batch(
    models: dict[str, tuple[Path, int]], by: str, pooling: Pooling
) -> None:
    folder, page_size = models[by]
    with Engine(EngineConfig(model_dir=folder, num_pages=64, page_size=page_size, max_batch_tokens=64)) as engine:
        alone = [embed(engine, [text], pooling)[0] for text in TEXTS]
        for text, vector in zip(TEXTS, alone, strict=True):
            np.testing.assert_allclose(vector, oracle(folder, text, pooling), atol=2e-4)
        same(by, embed(engine, TEXTS, pooling), alone)
        same(by, embed(engine, TEXTS[::-1], pooling), alone[::-1])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("by", ["torch", "kernels"])
def test_a_preempted_prompt_has_the_same_vector(models: dict[str, tuple[Path, int]], by: str, pooling: Pooling) -> None:
    """Prompts of ten pages beside four older texts that grow, in 25 pages."""
    folder, page_size = models[by]
    texts = [letter * 10 * page_size for letter in "bcde"]
    small = EngineConfig(model_dir=folder, num_pages=25, page_size=page_size, max_num_seqs=8, max_batch_tokens=9)
    growing = SamplingParams(temperature=0.0, max_tokens=5 * page_size, ignore_eos=True)
    with Engine(small) as engine:
        # On a busy machine, the growing texts would end before the others come.
        gate = threading.Event()
        engine.nudge(lambda: gate.wait(60) or None)
        handles = [engine.submit(Request(prompt=each, sampling=growing)) for each in "pqrs"]
        crowd = embed(engine, texts, pooling, submitted=gate.set)
        assert [handle.wait().reason for handle in handles] == [FinishReason.LENGTH] * 4
        assert engine.get_stats()["num_preemptions"] > 0
    with Engine(EngineConfig(model_dir=folder, page_size=page_size, num_pages=64)) as engine:
        same(by, embed(engine, texts, pooling), crowd)


def test_a_mean_needs_every_state_and_a_last_state_uses_the_cache(engine: Engine) -> None:
    text = "a" * 41
    for pooling, cached in (("mean", 0), ("mean", 0), ("last", 40)):
        end = engine.submit(Request(prompt=text, pooling=pooling)).wait()
        assert end.usage.cached_tokens == cached


def test_a_text_goes_on_beside_many_embeddings(engine: Engine) -> None:
    """32 tokens a step: each step has the next token of the text, and 31 tokens of the list's prompts at most."""
    told: list[str] = []

    def note(name: str) -> Sink:
        return lambda event: told.append(name) if isinstance(event, TokenEvent | EmbeddingEvent) else None

    going = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    engine.submit(Request(prompt="a", sampling=going), sink=note("text"))
    for byte in range(32, 72):
        engine.submit(Request(prompt=chr(byte) * 30, pooling="mean"), sink=note("list"))
    assert wait_until(lambda: len(told) == 60 and engine.get_stats()["cache_usage"] == 0.0, 60.0)
    assert (told.count("text"), told.count("list")) == (20, 40)
    last = len(told) - told[::-1].index("text")
    assert told[:last].count("list") <= 20 * 31 // 30 + 1


def test_what_does_not_go_with_an_embedding_is_refused(engine: Engine) -> None:
    for request, named in (
        (Request(prompt="a", pooling="mean", controller=ControllerCall("x")), "controller"),
        (Request(prompt="a", pooling="mean", score_from=0), "score_from"),
        (Request(prompt="a", pooling="max"), "max"),  # type: ignore[arg-type]
        (Request(prompt=[], pooling="mean"), "no tokens"),
        (Request(prompt=[VOCAB_SIZE], pooling="mean"), "token"),  # type: ignore[list-item]
        (Request(prompt=TEXT_OF_A_CONTEXT + "y", pooling="mean"), "256"),
    ):
        with pytest.raises(UsageError, match=named):
            engine.submit(request)
    [vector] = embed(engine, [TEXT_OF_A_CONTEXT], "mean")  # no room for output is needed
    assert vector.shape == (engine.states_size,)


def test_an_aborted_embedding_ends_once(engine: Engine) -> None:
    handles = [engine.submit(Request(prompt="z" * 200 + str(i), pooling="mean")) for i in range(8)]
    for handle in handles:
        handle.abort()
    ends = [[event for event in handle.events() if isinstance(event, FinishEvent)] for handle in handles]
    assert all(len(each) == 1 for each in ends)
    assert {end.reason for [end] in ends} <= {FinishReason.ABORT, FinishReason.LENGTH}
