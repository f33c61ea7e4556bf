"""The default model generates the same tokens as transformers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.request import Request
from tests.support.model import default_model_dir

pytestmark = pytest.mark.e2e
NUM_TOKENS = 16
PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "1, 2, 3, 4,", "Water boils at",
    "Dear Sir or Madam,", "The quick brown fox", "SELECT name FROM", "To be or not to be,", "import numpy as np\n",
    "Das Wetter ist heute", "Il était une fois", "In 1969, humans", "Q: What is 2+2?\nA:", "The recipe needs flour,",
    "<html>\n<body>", "My favourite colour is", "Photosynthesis is", "Roses are red,", "She opened the door and " * 12,
]  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    config = EngineConfig(model_dir=default_model_dir(), dtype="float32", max_num_seqs=16, max_batch_tokens=96)
    with Engine(config) as engine:
        yield engine


Outputs = list[tuple[list[int], list[list[float]]]]
"""Return the tokens of every output, with log-probabilities of the token and of the three most likely tokens."""


@pytest.fixture(scope="module")
def compare() -> Callable[[Outputs], None]:
    """Check an output in one pass: greedy decoding takes the most likely token at every position."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = default_model_dir()
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def compare(outputs: Outputs) -> None:
        for prompt, (tokens, values) in zip(PROMPTS, outputs, strict=True):
            ids = tokenizer(prompt).input_ids
            logits = model(torch.tensor([ids + tokens[:-1]])).logits[0, len(ids) - 1 :]
            assert tokens == logits.argmax(-1).tolist()
            assert len(tokens) == NUM_TOKENS or tokens[-1] == tokenizer.eos_token_id
            for token, row, value in zip(tokens, logits.double().log_softmax(-1), values, strict=True):
                assert value == pytest.approx([row[token].item(), *row.topk(3).values.tolist()], abs=1e-3)

    return compare


def run(engine: Engine, prompts: list[str]) -> Outputs:
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, logprobs=3)
    handles = [engine.submit(Request(prompt=prompt, sampling=params)) for prompt in prompts]
    outputs = []
    for handle in handles:
        tokens = handle.wait().tokens
        values = [[token.logprob or 0.0, *(value for _, value in token.top_logprobs)] for token in tokens]
        outputs.append(([int(token.token_id) for token in tokens], values))
    return outputs


def test_alone(engine: Engine, compare: Callable[[Outputs], None]) -> None:
    compare([run(engine, [prompt])[0] for prompt in PROMPTS])


def test_in_mixed_batches(engine: Engine, compare: Callable[[Outputs], None]) -> None:
    compare(run(engine, PROMPTS))
    assert engine.get_stats()["cache_usage"] == 0.0
