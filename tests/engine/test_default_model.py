"""The default model, token for token as transformers generates with it."""

from collections.abc import Iterator
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
    with Engine(EngineConfig(model_dir=default_model_dir(), max_num_seqs=16, max_batch_tokens=96)) as engine:
        yield engine


Outputs = list[tuple[list[int], list[list[float]]]]
"""The tokens of each output; of each token its log-probability and those of the three likeliest."""


@pytest.fixture(scope="module")
def wanted() -> Outputs:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = default_model_dir()
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    outputs = []
    with torch.inference_mode():
        for prompt in PROMPTS:
            ids = torch.tensor([tokenizer(prompt).input_ids])
            output = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NUM_TOKENS,
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
            tokens = output.sequences[0, ids.shape[1] :].tolist()
            rows = [logits[0].double().log_softmax(-1) for logits in output.logits]
            values = [
                [row[token].item(), *row.topk(3).values.tolist()] for row, token in zip(rows, tokens, strict=True)
            ]
            outputs.append((tokens, values))
    return outputs


def run(engine: Engine, prompts: list[str]) -> Outputs:
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, logprobs=3)
    handles = [engine.submit(Request(prompt=prompt, sampling=params)) for prompt in prompts]
    outputs = []
    for handle in handles:
        tokens = handle.wait().tokens
        values = [[token.logprob or 0.0, *(value for _, value in token.top_logprobs)] for token in tokens]
        outputs.append(([token.token_id for token in tokens], values))
    return outputs


def compare(ours: Outputs, wanted: Outputs) -> None:
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in wanted]
    for (_, values), (_, expected) in zip(ours, wanted, strict=True):
        for value, same in zip(values, expected, strict=True):
            assert value == pytest.approx(same, abs=1e-3)


def test_alone(engine: Engine, wanted: Outputs) -> None:
    compare([run(engine, [prompt])[0] for prompt in PROMPTS], wanted)


def test_in_mixed_batches(engine: Engine, wanted: Outputs) -> None:
    compare(run(engine, PROMPTS), wanted)
    assert engine.get_stats()["cache_usage"] == 0.0
