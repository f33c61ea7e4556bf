"""The official OpenAI SDK against `aici serve` with the real model."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice
from pydantic import BaseModel

from aici_engine.chat.template import chat_prompt
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishEvent, ScoreEvent
from aici_engine.request import Request
from tests.support.model import default_model_dir
from tests.support.processes import wait_until
from tests.support.server import Server

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
QUESTION = "Count from one to ten."
ASK: Json = {"role": "user", "content": QUESTION}
NUM_TOKENS = 24
PROMPT = "The capital of France is"
PLACE: Json = {
    "type": "object",
    "properties": {"place": {"$ref": "#/$defs/place"}, "unit": {"enum": ["C", "F"]}},
    "required": ["place", "unit"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}, "zip": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        }
    },
}
NOTHING: Json = {"type": "object", "maxProperties": 0}
SCHEMAS = {"get_weather": PLACE, "get_time": NOTHING}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]


@pytest.fixture(scope="module")
def sdk(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def greedy(engine: Engine) -> FinishEvent:
    """The engine's answer to QUESTION."""
    sampling = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, logprobs=3)
    return engine.submit(Request(prompt=chat_prompt(default_model_dir(), [ASK]), sampling=sampling)).wait()


def asked(*messages: Any, **fields: Any) -> Any:
    return {"model": "default", "messages": messages or [ASK], "temperature": 0, "max_tokens": NUM_TOKENS, **fields}


def ask(sdk: openai.OpenAI, *messages: Any, **fields: Any) -> ChatCompletion:
    answer: ChatCompletion = sdk.chat.completions.create(**asked(*messages, **fields))
    return answer


def watch(sdk: openai.OpenAI, *messages: Any, **fields: Any) -> ChatCompletion:
    """Ask by a stream, whose chunks the SDK puts together."""
    wanted = asked(*messages, **fields) | {"stream": True, "stream_options": {"include_usage": True}}
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in sdk.chat.completions.create(**wanted):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot


def same(first: ChatCompletion, second: ChatCompletion) -> None:
    """Compare two answers, without the parts that are new in every answer: the ids of the answer and of its calls,
    the time."""

    def plain(answer: ChatCompletion) -> Json:
        data: Json = json.loads(re.sub(r'"call_\w+"', '"call"', answer.to_json()))
        kept = {"choices": data["choices"], "usage": data["usage"], "model": data["model"]}
        # The second request reuses the cache of the first request.
        del kept["usage"]["prompt_tokens_details"]
        for choice in kept["choices"]:
            message = choice["message"]
            choice["message"] = {name: message.get(name) for name in ("role", "content")} | {
                "calls": [(call["id"], call["function"]["name"], call["function"]["arguments"])
                          for call in message.get("tool_calls") or []]
            }  # fmt: skip
            choice.setdefault("logprobs", None)
        return kept

    assert plain(first) == plain(second)


def calls_of(choice: Choice) -> list[tuple[str, Any]]:
    """Return the calls; the arguments of every call must fit the schema of the tool."""
    calls = []
    for call in choice.message.tool_calls or []:
        assert call.type == "function"
        arguments = json.loads(call.function.arguments)
        jsonschema.validate(arguments, SCHEMAS[call.function.name])
        calls.append((call.function.name, arguments))
    return calls


def test_streamed_or_not_the_tokens_are_the_engines(sdk: openai.OpenAI, greedy: FinishEvent) -> None:
    answer = ask(sdk, logprobs=True, top_logprobs=3)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == (greedy.text, "length")
    assert answer.usage is not None
    prompt_len = len(chat_prompt(default_model_dir(), [ASK]))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt_len, NUM_TOKENS)
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    assert [bytes(entry.bytes or ()) for entry in content] == [token.data for token in greedy.tokens]
    assert [entry.logprob for entry in content] == pytest.approx([token.logprob for token in greedy.tokens], abs=1e-3)
    for entry, token in zip(content, greedy.tokens, strict=True):
        likeliest = [logprob for _, logprob in token.top_logprobs]
        assert [each.logprob for each in entry.top_logprobs] == pytest.approx(likeliest, abs=1e-3)
    same(answer, watch(sdk, logprobs=True, top_logprobs=3))


def test_a_stop_string_is_found_across_tokens_and_is_not_in_the_text(sdk: openai.OpenAI, greedy: FinishEvent) -> None:
    middle = len(greedy.text) // 2
    stop = greedy.text[middle - 3 : middle + 4]
    assert not any(stop in token.data.decode(errors="replace") for token in greedy.tokens)
    for answer in (ask(sdk, stop=["no such text", stop]), watch(sdk, stop=stop)):
        [choice] = answer.choices
        assert choice.message.content == greedy.text[: greedy.text.index(stop)]
        assert choice.finish_reason == "stop"


def test_seeds_repeat_and_answers_differ(sdk: openai.OpenAI) -> None:
    wanted: Json = {"temperature": 1.5, "n": 3, "seed": 11, "max_tokens": 12}
    answer = ask(sdk, **wanted)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    same(answer, watch(sdk, **wanted))
    # Choice 1 of a seed is choice 0 of the next seed.
    assert ask(sdk, **wanted | {"n": 1, "seed": 12}).choices[0].message.content == texts[1]


def test_a_tool_that_must_be_called_is_called_validly(sdk: openai.OpenAI) -> None:
    question = {"role": "user", "content": "What is the weather in Paris?"}
    fields: Json = {"tools": TOOLS, "parallel_tool_calls": False, "max_tokens": 64}
    named = {"type": "function", "function": {"name": "get_weather"}}
    answer = ask(sdk, question, tool_choice=named, **fields)
    assert answer.choices[0].finish_reason == "tool_calls"
    [(name, _)] = calls_of(answer.choices[0])
    assert name == "get_weather"
    same(answer, watch(sdk, question, tool_choice=named, **fields))
    assert len(calls_of(ask(sdk, question, tool_choice="required", **fields).choices[0])) == 1


def test_the_model_decides_to_call_and_gets_the_result(sdk: openai.OpenAI) -> None:
    talk: list[Any] = []
    for i, city in enumerate(("Rome", "Bonn")):
        function = {"name": "get_weather", "arguments": json.dumps({"place": {"city": city}, "unit": "C"})}
        call = {"id": f"c{i}", "type": "function", "function": function}
        talk += [
            {"role": "user", "content": f"Weather in {city}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
    talk.append({"role": "user", "content": "Weather in Paris?"})
    answer = ask(sdk, *talk, tools=TOOLS, parallel_tool_calls=False, max_tokens=64)
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    [(name, arguments)] = calls_of(choice)
    assert (name, arguments["place"]["city"]) == ("get_weather", "Paris")
    message = choice.message
    assert message.tool_calls is not None
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "It rains."}
    [after] = ask(sdk, *talk, message, result, tools=TOOLS, tool_choice="none", max_tokens=4).choices
    assert (calls_of(after), after.finish_reason in ("stop", "length")) == ([], True)


class City(BaseModel):
    size: Literal["small", "large"]
    is_capital: bool


def test_structured_output_is_parsed_by_the_sdk(sdk: openai.OpenAI) -> None:
    question = {"role": "user", "content": "Describe Paris as JSON."}
    answer = sdk.chat.completions.parse(**asked(question, max_tokens=64, response_format=City))
    assert isinstance(answer.choices[0].message.parsed, City)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_regex": "[0-9]{3}"}, "[0-9]{3}"),
        ({"guided_choice": ["tea", "coffee"]}, "tea|coffee"),
        ({"guided_json": {"enum": [1, 23]}}, "1|23"),
        ({"guided_grammar": "%start s\n%%\ns : 'a' | 'b' 'c' ;\n"}, "a|bc"),
        ({"controller": "regex", "controller_arg": "x[yz]"}, "x[yz]"),
    ],
)
def test_constraints(sdk: openai.OpenAI, fields: Json, pattern: str) -> None:
    [choice] = ask(sdk, extra_body=fields).choices
    assert re.fullmatch(pattern, choice.message.content or "")
    assert choice.finish_reason == "stop"


def test_completions_and_scores_are_the_engines(sdk: openai.OpenAI, engine: Engine) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=8, logprobs=1)
    handle = engine.submit(Request(prompt=PROMPT, sampling=sampling, score_from=0))
    *events, finish = handle.events()
    assert isinstance(finish, FinishEvent)
    [scores] = [event.scores for event in events if isinstance(event, ScoreEvent)]
    wanted: Any = {"model": "default", "prompt": [PROMPT, PROMPT[:11]], "temperature": 0, "max_tokens": 8}
    answer = sdk.completions.create(**wanted, echo=True, logprobs=1)
    first, second = answer.choices
    assert (first.text, second.text.startswith(PROMPT[:11])) == (PROMPT + finish.text, True)
    assert first.logprobs is not None
    logprobs = [score.logprob for score in scores] + [token.logprob for token in finish.tokens]
    assert first.logprobs.token_logprobs == pytest.approx(logprobs, abs=1e-3)
    pieces = {0: "", 1: ""}
    for chunk in sdk.completions.create(**wanted, echo=True, stream=True):
        pieces[chunk.choices[0].index] += chunk.choices[0].text
    assert pieces == {0: first.text, 1: second.text}
    # The prompt alone: evaluations score a prompt without generating.
    [alone] = sdk.completions.create(**wanted | {"prompt": PROMPT, "max_tokens": 0}, echo=True, logprobs=1).choices
    assert alone.text == PROMPT
    assert alone.logprobs is not None
    assert alone.logprobs.token_logprobs == pytest.approx(logprobs[: len(scores)], abs=1e-3)


def test_the_best_of_several(sdk: openai.OpenAI) -> None:
    wanted: Any = {"model": "default", "prompt": PROMPT, "max_tokens": 6, "logprobs": 0, "seed": 3, "temperature": 1.5}

    def likelihoods(**fields: Any) -> list[float]:
        found = []
        for choice in sdk.completions.create(**wanted | fields).choices:
            assert choice.logprobs is not None
            logprobs = [logprob for logprob in choice.logprobs.token_logprobs or [] if logprob is not None]
            found.append(sum(logprobs) / len(logprobs))
        return found

    assert likelihoods(n=2, best_of=4) == pytest.approx(sorted(likelihoods(n=4), reverse=True)[:2], abs=1e-3)


def test_errors_are_those_of_the_sdk(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here"):
        ask(sdk, model="gpt-4o")
    with pytest.raises(openai.BadRequestError, match="web_search_options"):
        ask(sdk, web_search_options={})
    with pytest.raises(openai.NotFoundError, match="nobody"):
        ask(sdk, extra_body={"controller": "nobody"})


def test_a_client_that_disconnects_frees_the_pages(sdk: openai.OpenAI, server: Server) -> None:
    endless: Any = asked(max_tokens=1500, n=2, stream=True, extra_body={"guided_regex": "(a|b)+"})
    with sdk.chat.completions.create(**endless) as chunks:
        for number, _ in enumerate(chunks):
            if number == 6:
                break
        assert wait_until(lambda: server.stats()["active_requests"] == 2, 30)
    with pytest.raises(openai.APITimeoutError):
        ask(sdk.with_options(timeout=0.5), max_tokens=1500, extra_body={"guided_regex": "(a|b)+"})
    until = time.monotonic() + 30
    while (stats := server.stats())["active_requests"] or stats["waiting_requests"]:
        assert time.monotonic() < until
    assert stats["cache_usage"] == 0.0
