"""`/v1/completions` and `/v1/models`: prompts of all kinds, echo, log-probabilities, the best of several."""

import json
from typing import Any

import pytest

from aici_engine.server.link import wire
from aici_engine.server.service.constraints import module_id
from tests.support.fake_engine import fails, says
from tests.support.fake_service import vocabulary
from tests.support.openai_api import Api, Json, events, samples

PATH = "/v1/completions"
HELLO: Json = {"model": "it", "prompt": "Hello there"}
WORDS = vocabulary().encode(" word")


def encode(text: str) -> list[int]:
    return vocabulary().encode(text)


def test_an_answer() -> None:
    answer = Api(says("a", "b")).answer(PATH, HELLO)
    assert answer.pop("id").startswith("cmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "text_completion",
        "model": "it",
        "choices": [{"index": 0, "text": "ab", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 2,
            "total_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_the_events_of_a_stream() -> None:
    body = {**HELLO, "echo": True, "stream_options": {"include_usage": True}}
    *chunks, last = Api(says("a", "b")).chunks(PATH, body)
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]
        for text, reason in (("Hello there", None), ("a", None), ("b", None), ("", "stop"))
    ]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2)
    assert {chunk["usage"] for chunk in chunks} == {None}


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("Hi there", [encode("Hi there")]),
        (["Hi", "there"], [encode("Hi"), encode("there")]),
        (["Hi"], [encode("Hi")]),
        ([5, 6], [[5, 6]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
        ("", [[1]]),  # the model's start
    ],
)
def test_prompts(prompt: Any, tokens: list[list[int]]) -> None:
    api = Api(samples(*WORDS))
    choices = api.answer(PATH, {"prompt": prompt, "echo": True})["choices"]
    assert [submit.prompt for submit in api.engine.submitted] == tokens
    assert [choice["index"] for choice in choices] == list(range(len(tokens)))
    texts = [each if isinstance(each, str) else vocabulary().decode(each) for each in as_list(prompt)]
    assert [choice["text"] for choice in choices] == [text + " word" for text in texts]


def as_list(prompt: Any) -> list[Any]:
    return [prompt] if isinstance(prompt, str) or type(prompt[0]) is int else prompt


def test_without_max_tokens_there_are_sixteen_and_the_defaults_are_the_protocols() -> None:
    api = Api()
    api.answer(PATH, HELLO)
    [submit] = api.engine.submitted
    sampling = submit.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (16, 1.0, 1.0, 0)


def test_several_answers_to_several_prompts_stand_in_the_order_of_the_prompts() -> None:
    api = Api(says("a"), says("b"), says("c"), says("d"))
    answer = api.answer(PATH, {"prompt": ["x", "y"], "n": 2, "seed": 5})
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [
        (0, "a"), (1, "b"), (2, "c"), (3, "d"),
    ]  # fmt: skip
    assert [submit.sampling.seed for submit in api.engine.submitted] == [5, 6, 5, 6]
    usage = {name: answer["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert usage == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_those_of_the_first_answer(stream: bool) -> None:
    """The second answer hits the cache with the first answer's prompt. Only the first answer's cached tokens count."""
    api = Api(*(says("a", num_cached=num) for num in (3, 9, 8, 4)))
    body: dict[str, Any] = {"prompt": ["x", "y"], "n": 2}
    if stream:
        usage = api.chunks(PATH, {**body, "stream_options": {"include_usage": True}})[-1]["usage"]
    else:
        usage = api.answer(PATH, body)["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 7}


def test_the_best_are_the_likeliest_by_token() -> None:
    (word,) = WORDS
    scripts = (
        samples(word, word, logprobs=[-1.0, -2.0]),
        samples(word, logprobs=[-1.25]),
        samples(word, word, word, logprobs=[-0.5, -0.5, -2.0]),
    )
    api = Api(*scripts)
    answer = api.answer(PATH, {**HELLO, "best_of": 3, "n": 2})
    assert [choice["text"] for choice in answer["choices"]] == [" word" * 3, " word"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["logprobs"] for choice in answer["choices"]] == [None, None]
    assert [submit.sampling.logprobs for submit in api.engine.submitted] == [0, 0, 0]
    assert answer["usage"]["completion_tokens"] == 6


def test_scores_of_a_prompt() -> None:
    prompt = encode("Hello wide world")
    script = samples(prompt_logprobs=[-1.0] * (len(prompt) - 1))
    api = Api(script)
    body = {"prompt": "Hello wide world", "echo": True, "max_tokens": 0, "logprobs": 1}
    [choice] = api.answer(PATH, body)["choices"]
    [submit] = api.engine.submitted
    assert (submit.score_from, submit.sampling.max_tokens, submit.sampling.logprobs) == (0, 0, 1)
    assert choice["text"] == "Hello wide world"
    assert choice["logprobs"] == {
        "tokens": ["Hello", " wide", " world"],
        "token_logprobs": [None, -1.0, -1.0],
        "top_logprobs": [None, {" wide": -1.0}, {" world": -1.0}],
        "text_offset": [0, 5, 10],
    }
    chunks = Api(script).chunks(PATH, body)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hello wide world", ""]
    assert chunks[0]["choices"][0]["logprobs"] == choice["logprobs"]


def test_log_probabilities_are_of_tokens_whatever_their_bytes_are() -> None:
    vocab = vocabulary()
    first, *others = vocab.encode("↩")
    tokens = [*vocab.encode("é"), first, *others, *vocab.encode("ab"), vocab.eos_token]
    top = [[(first, -0.125), (token, -0.25)] for token in tokens]
    script = samples(*tokens, logprobs=[-0.25] * len(tokens), top=top)
    [choice] = Api(script).answer(PATH, {**HELLO, "logprobs": 2})["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "é↩ab"
    assert logprobs["tokens"][0] == "é"
    assert logprobs["tokens"][-2:] == ["ab", "<|im_end|>"]
    assert logprobs["tokens"][1] == "bytes:" + "".join(f"\\x{byte:02x}" for byte in vocab.bytes_of(first))
    assert logprobs["text_offset"] == [0, *([1] * (len(tokens) - 3)), 2, 4]
    assert logprobs["top_logprobs"][0] == {logprobs["tokens"][1]: -0.125, "é": -0.25}
    gathered: Json = {name: [] for name in logprobs}
    for chunk in Api(script).chunks(PATH, {**HELLO, "logprobs": 2}):
        for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
            gathered[name] += values
    assert gathered == logprobs


def test_special_tokens_count_where_the_echoed_text_has_them() -> None:
    text = "<|im_start|>Hello"
    prompt = encode(text)
    assert len(prompt) == 2
    body = {"echo": True, "max_tokens": 0, "logprobs": 0}
    for given, echoed, offsets in ((text, text, [0, 12]), (prompt, "Hello", [0, 0])):
        [choice] = Api(samples(prompt_logprobs=[-1.0])).answer(PATH, {**body, "prompt": given})["choices"]
        assert (choice["text"], choice["logprobs"]["text_offset"]) == (echoed, offsets)
        assert choice["logprobs"]["tokens"] == ["<|im_start|>", "Hello"]
        assert choice["logprobs"]["top_logprobs"] is None


def test_a_constraint() -> None:
    api = Api()
    api.answer(PATH, {**HELLO, "guided_regex": "a+", "echo": True})
    assert api.engine.submitted[0].controller == module_id("regex")


def test_a_failure_in_the_middle_is_an_event_and_the_end() -> None:
    answer = Api(fails(wire.Failure("runtime_died", "it died"), "a")).post(PATH, {**HELLO, "stream": True})
    text, last = map(json.loads, events(answer.text))
    assert text["choices"][0]["text"] == "a"
    assert last["error"] == {
        "message": "it died",
        "type": "runtime_died",
        "param": None,
        "code": "server_is_overloaded",
    }


def test_models() -> None:
    sdk = Api().sdk
    [model] = sdk.models.list().data
    assert (model.id, model.object, model.owned_by) == ("it", "model", "aici")
    assert sdk.models.retrieve("it") == model
    answer = Api().http.get("/v1/models/some/other")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
