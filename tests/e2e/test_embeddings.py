"""`/v1/embeddings` of the default model: the official client, against the hidden states of transformers."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import openai
import pytest

from aici_engine.pooling_kinds import POOLINGS, Pooling
from tests.support.model import default_model_dir
from tests.support.server import Server

pytestmark = pytest.mark.e2e
TEXTS = ["The capital of France is Paris.", "Tea", "She opened the door and " * 30, "import numpy as np\n"]
Vectors = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def states() -> list[Vectors]:
    """The hidden states of the texts, by transformers in 32 bits."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model: Any = AutoModel.from_pretrained(default_model_dir(), dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(default_model_dir())
    with torch.inference_mode():
        return [model(torch.tensor([tokenizer(t).input_ids])).last_hidden_state[0].double().numpy() for t in TEXTS]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_point_where_transformers_states_point(
    client: openai.OpenAI, states: list[Vectors], pooling: Pooling
) -> None:
    answer = client.embeddings.create(model="default", input=TEXTS, extra_body={"pooling": pooling})
    vectors = np.array([each.embedding for each in answer.data])
    wanted = np.array([each.mean(0) if pooling == "mean" else each[-1] for each in states])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    # The served weights and the inputs of the matrices are bf16. Different texts are much farther apart.
    assert ((vectors * wanted).sum(1) > 0.998).all()
    assert answer.usage.prompt_tokens == sum(map(len, states))
    assert "generation model" in (answer.model_extra or {})["source"]


def test_a_vector_is_the_same_alone_and_in_a_list(client: openai.OpenAI) -> None:
    def raw(texts: str | list[str]) -> list[bytes]:
        data = client.embeddings.create(model="default", input=texts, encoding_format="base64").data
        return [base64.b64decode(str(each.embedding)) for each in data]

    assert raw(TEXTS) == [raw(text)[0] for text in TEXTS]


def test_fewer_dimensions_are_the_first_ones_with_length_1(client: openai.OpenAI) -> None:
    [whole], [short] = (
        client.embeddings.create(model="default", input="Tea", **options).data  # type: ignore[arg-type]
        for options in ({}, {"dimensions": 32})
    )
    kept = np.array(whole.embedding[:32])
    np.testing.assert_allclose(short.embedding, kept / np.linalg.norm(kept), rtol=1e-5)
