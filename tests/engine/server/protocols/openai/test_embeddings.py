"""`/v1/embeddings` over an engine that plays scripts: by raw HTTP and by the official SDK."""

import asyncio
import base64
import json
from collections.abc import Iterable

import httpx2 as httpx
import numpy as np
import openai
import pytest

from aici_engine.events import FinishReason
from aici_engine.server.api.app import create_app
from aici_engine.server.link import wire
from tests.support.fake_engine import FakeEngine, Script, fails, silent
from tests.support.fake_service import service_over, vocabulary
from tests.support.openai_api import Api, Json

PATH = "/v1/embeddings"
SIZE = 8
INFO = wire.EngineInfo(49152, 2048, 4, states_size=SIZE)


def vector_of(prompt: list[int]) -> list[float]:
    """A vector that tells the prompt."""
    return [float(len(prompt)), *(float(token) for token in prompt[: SIZE - 1]), *[0.5] * (SIZE - 1 - len(prompt))]


def embeds(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    yield wire.AcceptedOut(submit.stream)
    yield wire.EmbeddingOut(submit.stream, np.array(vector_of(submit.prompt), "<f4").tobytes())
    yield wire.FinishOut(submit.stream, FinishReason.LENGTH, "", wire.UsageOut(len(submit.prompt), 0, 0))


def wanted(prompt: list[int], dimensions: int = SIZE) -> list[float]:
    kept = np.array(vector_of(prompt)[:dimensions])
    unit: list[float] = (kept / np.linalg.norm(kept)).tolist()
    return unit


def api_of(*scripts: Script) -> Api:
    api = Api(*(scripts or (embeds,)))
    api.engine.client.info = INFO
    return api


@pytest.mark.parametrize("dimensions", [None, 3])
@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_the_official_client_reads_vectors_of_length_1(encoding: str | None, dimensions: int | None) -> None:
    """Without an `encoding_format`, the client asks for base64 and decodes the answer."""
    api = api_of()
    options: Json = {
        name: value for name, value in (("encoding_format", encoding), ("dimensions", dimensions)) if value
    }
    texts = ["Hello there", "Tea", "a b c"]
    answer = api.sdk.embeddings.create(model="it", input=texts, user="somebody", **options)
    prompts = [vocabulary().encode(text) for text in texts]
    assert [submit.prompt for submit in api.engine.submitted] == prompts
    assert [each.index for each in answer.data] == [0, 1, 2]
    for each, prompt in zip(answer.data, prompts, strict=True):
        numbers: object = each.embedding
        if isinstance(numbers, str):
            numbers = np.frombuffer(base64.b64decode(numbers), "<f4").tolist()
        assert numbers == pytest.approx(wanted(prompt, dimensions or SIZE), rel=1e-6)
    num_tokens = sum(map(len, prompts))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens, answer.model) == (num_tokens, num_tokens, "it")


def test_the_answer_says_where_the_vectors_come_from() -> None:
    api = api_of()
    mean, last = (api.answer(PATH, {"input": "Tea", "pooling": pooling})["source"] for pooling in ("mean", "last"))
    assert "generation model" in mean
    assert "generation model" in last
    assert "mean" in mean
    assert "last token" in last
    assert [submit.pooling for submit in api.engine.submitted] == ["mean", "last"]
    api.answer(PATH, {"input": "Tea"})
    assert api.engine.submitted[-1].pooling == "mean"


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("Tea", [vocabulary().encode("Tea")]),
        (["Tea"], [vocabulary().encode("Tea")]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2, 3], [4]], [[1, 2, 3], [4]]),
    ],
)
def test_an_input_is_a_text_or_tokens_or_a_list(given: object, prompts: list[list[int]]) -> None:
    answer = api_of().answer(PATH, {"input": given})
    assert [each["embedding"] for each in answer["data"]] == [pytest.approx(wanted(each), rel=1e-6) for each in prompts]


def test_a_long_input_is_cut_if_the_request_says_so() -> None:
    api = api_of()
    api.answer(PATH, {"input": [list(range(9)), [1]], "truncate_prompt_tokens": 2})
    api.answer(PATH, {"input": "a b " * 3000, "truncate_prompt_tokens": -1})
    assert [submit.prompt for submit in api.engine.submitted[:2]] == [[7, 8], [1]]
    assert len(api.engine.submitted[2].prompt) == INFO.max_len


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({}, 400, "input", "missing_required_parameter"),
        ({"input": ""}, 400, "input", "invalid_value"),
        ({"input": []}, 400, "input", "invalid_value"),
        ({"input": ["a", ""]}, 400, "input.1", "invalid_value"),
        ({"input": [[1], []]}, 400, "input.1", "invalid_value"),
        ({"input": ["a"] * 2049}, 400, "input", "invalid_value"),
        ({"input": 5}, 422, "input", "invalid_type"),
        ({"input": ["a", 5]}, 422, "input.1", "invalid_type"),
        ({"input": [49152]}, 400, "input", "invalid_value"),
        ({"input": [[1], [49152]]}, 400, "input.1", "invalid_value"),
        ({"input": [-1]}, 400, "input", "invalid_value"),
        ({"input": [1] * 2049}, 400, "input", "context_length_exceeded"),
        ({"input": "a b " * 3000}, 400, "input", "context_length_exceeded"),
        ({"input": "a", "model": "text-embedding-3-small"}, 404, None, "model_not_found"),
        ({"input": "a", "dimensions": 0}, 400, "dimensions", "invalid_value"),
        ({"input": "a", "dimensions": SIZE + 1}, 400, "dimensions", "invalid_value"),
        ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format", "invalid_value"),
        ({"input": "a", "pooling": "max"}, 400, "pooling", "invalid_value"),
        ({"input": "a", "truncate_prompt_tokens": 0}, 400, "truncate_prompt_tokens", "invalid_value"),
        ({"input": "a", "input_type": "query"}, 400, "input_type", "unknown_parameter"),
    ],
)
def test_what_is_wrong_is_named(body: Json, status: int, param: str | None, code: str) -> None:
    api = api_of()
    answer = api.post(PATH, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), answer.text
    assert not api.engine.submitted


def test_a_model_that_is_divided_over_stages_is_refused_by_name() -> None:
    api = Api(embeds)
    with pytest.raises(openai.BadRequestError, match="divided over stages"):
        api.sdk.embeddings.create(model="it", input="a")
    assert not api.engine.submitted


def test_states_without_a_direction_are_an_error_and_no_vector() -> None:
    def zeros(submit: wire.Submit) -> Iterable[wire.StreamOut]:
        yield wire.EmbeddingOut(submit.stream, bytes(4 * SIZE))
        yield wire.FinishOut(submit.stream, FinishReason.LENGTH, "", wire.UsageOut(1, 0, 0))

    answer = api_of(zeros).post(PATH, {"input": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server_error")


def test_one_failure_is_the_answer_and_ends_the_rest() -> None:
    """Two places: the first input never ends, and the second fails."""
    api = api_of(silent, fails(wire.Failure("unavailable", "no pages")), embeds)
    answer = api.post(PATH, {"input": ["a", "b", "c", "d"]})
    assert "no pages" in answer.json()["error"]["message"]
    assert len(api.engine.submitted) == 2
    assert api.engine.aborted == [api.engine.submitted[0].stream]
    assert api.service.admission.num_admitted == 0


def test_a_long_list_takes_half_of_the_places() -> None:
    """With four places, two inputs are at work at a time, and another request is admitted meanwhile."""
    engine = FakeEngine([silent])
    engine.client.info = INFO
    service = service_over(engine, capacity=4)

    async def main() -> Json:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as http:
            asking = asyncio.create_task(http.post(PATH, json={"input": [[number] for number in range(1, 20)]}))
            for done in range(19):
                while len(engine.submitted) < min(done + 2, 19):
                    await asyncio.sleep(0)
                assert service.admission.num_admitted == 2
                assert engine.client.num_streams == min(2, 19 - done)
                for event in embeds(engine.submitted[done]):
                    engine.client.receive(event)
            answer: Json = json.loads((await asking).text)
            return answer

    answer = asyncio.run(main())
    assert [each["embedding"] for each in answer["data"]] == [
        pytest.approx(wanted([number]), rel=1e-6) for number in range(1, 20)
    ]
