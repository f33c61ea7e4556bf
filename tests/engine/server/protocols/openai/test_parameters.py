"""Every parameter of the official SDK is honoured, or refused by name; so are ours, and all that is wrong."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from tests.support.fake_engine import says
from tests.support.openai_api import Api, Json

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER: Json = {"role": "user", "content": "Hi"}
BODIES: Mapping[str, Json] = {CHAT: {"messages": [USER]}, TEXT: {"prompt": "Hi"}}
TOOL: Json = {"type": "function", "function": {"name": "f"}}
REFUSED = "refused"
NOTHING: Json = {}
"""Accepted, and nothing changes."""

# parameter → a value, and its effect: the engine's sampling parameters, NOTHING, or REFUSED.
SHARED: Mapping[str, tuple[Any, Any]] = {
    "frequency_penalty": (0.5, {"frequency_penalty": 0.5}),
    "logit_bias": ({"5": -100, "6": 2.5}, {"logit_bias": {5: -100.0, 6: 2.5}}),
    "model": ("default", NOTHING),
    "n": (2, NOTHING),
    "presence_penalty": (0.5, {"presence_penalty": 0.5}),
    "seed": (-5, {"seed": -5}),
    "stop": (["a", "b"], {"stop": ("a", "b")}),
    "stream": (False, NOTHING),
    "stream_options": ({"include_usage": True}, REFUSED),  # without stream
    "temperature": (0, {"temperature": 0.0}),
    "top_p": (0.5, {"top_p": 0.5}),
    "user": ("me", NOTHING),
}
OURS: Mapping[str, tuple[Any, Any]] = {
    "top_k": (5, {"top_k": 5}),
    "min_p": (0.5, {"min_p": 0.5}),
    "repetition_penalty": (2, {"repetition_penalty": 2.0}),
    "ignore_eos": (True, {"ignore_eos": True}),
}
PARAMETERS: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    CHAT: {
        **SHARED,
        "audio": ({"format": "wav", "voice": "v"}, REFUSED),
        "function_call": ("auto", REFUSED),
        "functions": ([{"name": "f"}], REFUSED),
        "logprobs": (True, {"logprobs": 0}),
        "max_completion_tokens": (5, {"max_tokens": 5}),
        "max_tokens": (5, {"max_tokens": 5}),
        "messages": ([USER], NOTHING),
        "metadata": ({"a": "b"}, NOTHING),
        "modalities": (["text"], NOTHING),
        "moderation": ({}, REFUSED),
        "parallel_tool_calls": (False, NOTHING),
        "prediction": ({"type": "content", "content": "a"}, NOTHING),
        "prompt_cache_key": ("k", NOTHING),
        "prompt_cache_options": ({}, NOTHING),
        "prompt_cache_retention": ("24h", NOTHING),
        "reasoning_effort": ("high", NOTHING),
        "response_format": ({"type": "text"}, NOTHING),
        "safety_identifier": ("s", NOTHING),
        "service_tier": ("flex", NOTHING),
        "store": (True, NOTHING),
        "tool_choice": ("none", NOTHING),
        "tools": ([TOOL], {"stop": ("<tool_call>",)}),
        "top_logprobs": (3, REFUSED),  # without logprobs
        "verbosity": ("low", NOTHING),
        "web_search_options": ({}, REFUSED),
    },
    TEXT: {
        **SHARED,
        "best_of": (2, {"logprobs": 0}),
        "echo": (True, NOTHING),
        "logprobs": (3, {"logprobs": 3}),
        "max_tokens": (5, {"max_tokens": 5}),
        "prompt": ("Hi", NOTHING),
        "suffix": ("s", REFUSED),
    },
}


@pytest.mark.parametrize(
    ("path", "params"),
    [
        (CHAT, chat_create_params.CompletionCreateParamsStreaming),
        (TEXT, completion_create_params.CompletionCreateParamsStreaming),
    ],
)
def test_the_tables_are_complete(path: str, params: Any) -> None:
    names = {name for each in params.__mro__ for name in getattr(each, "__annotations__", {})}
    assert names == PARAMETERS[path].keys()


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path in (CHAT, TEXT) for name in [*PARAMETERS[path], *OURS]]
)
def test_each_is_honoured_or_refused_by_name(path: str, name: str) -> None:
    value, effect = {**PARAMETERS[path], **OURS}[name]
    api = Api()
    if effect == REFUSED:
        answer = api.post(path, {**BODIES[path], name: value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
        assert name in answer.json()["error"]["message"]
        return
    plain = Api()
    plain.answer(path, BODIES[path])
    api.answer(path, {**BODIES[path], name: value})
    told, usual = api.engine.submitted[0].sampling, plain.engine.submitted[0].sampling
    changed = {each for each in told.__dataclass_fields__ if getattr(told, each) != getattr(usual, each)}
    assert {each: getattr(told, each) for each in changed} == effect


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_null_is_as_good_as_nothing(path: str) -> None:
    names = {*PARAMETERS[path], *OURS, "guided_json", "controller_arg"} - BODIES[path].keys()
    api = Api()
    api.answer(path, {**BODIES[path], **dict.fromkeys(names)})
    plain = Api()
    plain.answer(path, BODIES[path])
    assert api.engine.submitted == plain.engine.submitted


def test_unusual_spellings_of_values_are_honoured() -> None:
    api = Api()
    api.answer(CHAT, {**BODIES[CHAT], "stop": "a", "logprobs": True, "top_logprobs": 20, "stream": False})
    [submit] = api.engine.submitted
    assert (submit.sampling.stop, submit.sampling.logprobs) == (("a",), 20)
    api = Api(says("a"))
    assert api.chunks(CHAT, {**BODIES[CHAT], "stream_options": {"include_usage": True}})[-1]["usage"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_priority_is_passed_on(path: str) -> None:
    api = Api()
    api.answer(path, {**BODIES[path], "priority": -3})
    assert [submit.priority for submit in api.engine.submitted] == [-3]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_different_salts_share_no_cached_prompts(path: str) -> None:
    api = Api()
    for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "a"}, {"cache_salt": None}):
        api.answer(path, {**BODIES[path], **salt})
    none, a, b, a_too, none_too = (submit.salt for submit in api.engine.submitted)
    assert (a, none) == (a_too, none_too)
    assert len({none, a, b}) == 3


# Invalid fields → the status, the parameter and a part of the message.
ARRAY: Json = {"type": "function", "function": {"name": "t", "parameters": {"type": "array"}}}
WRONG_BOTH: dict[str, tuple[Json, int, str, str]] = {
    "unknown": ({"temprature": 1}, 400, "temprature", "temprature is not supported"),
    "model": ({"model": "gpt-4o"}, 404, "", "gpt-4o is not served here .this server serves it"),
    "a word for a number": ({"temperature": "hot"}, 422, "temperature", "valid number"),
    "a number for a word": ({"user": 5}, 422, "user", "valid string"),
    "temperature": ({"temperature": -0.5}, 400, "temperature", "greater than or equal to 0"),
    "top_p": ({"top_p": 0}, 400, "top_p", "greater than 0"),
    "penalty": ({"presence_penalty": 3}, 400, "presence_penalty", "less than or equal to 2"),
    "seed": ({"seed": 1 << 63}, 400, "seed", "less than"),
    "n": ({"n": 0}, 400, "n", "greater than or equal to 1"),
    "too many": ({"n": 20}, 400, "", "needs 20 sequences: this server takes 8"),
    "stop": ({"stop": ["a", ""]}, 400, "stop.1", "at least 1 character"),
    "stops": ({"stop": list("abcdefghijklmnopq")}, 400, "stop", "at most 16"),
    "stop type": ({"stop": 5}, 422, "stop", "valid list"),
    "bias of a word": ({"logit_bias": {"a": 1}}, 400, "logit_bias", "'a': the keys are token numbers, 0 to 49151"),
    "bias of no token": ({"logit_bias": {"49152": 1}}, 400, "logit_bias", "0 to 49151"),
    "bias in another spelling": ({"logit_bias": {"07": 1}}, 400, "logit_bias", "'07': the keys are token numbers"),
    "bias of a huge number": ({"logit_bias": {"9" * 5000: 1}}, 400, "logit_bias", "0 to 49151"),
    "bias": ({"logit_bias": {"5": 101}}, 400, "logit_bias.5", "less than or equal to 100"),
    "no salt": ({"cache_salt": ""}, 400, "cache_salt", "at least 1 character"),
    "salt": ({"cache_salt": "a" * 257}, 400, "cache_salt", "at most 256 characters"),
    "priority": ({"priority": 1 << 31}, 400, "priority", "less than 2147483648"),
    "no whole priority": ({"priority": 0.5}, 422, "priority", "valid integer"),
    "max_tokens": ({"max_tokens": -1}, 400, "max_tokens", "greater than or equal"),
    "tier": ({"service_tier": "best"}, 400, "service_tier", "'auto', 'default'"),
    "store": ({"store": "yes"}, 422, "store", "valid boolean"),
    "two constraints": ({"guided_regex": "a", "guided_json": {}}, 400, "guided_json", "guided_regex and guided_json"),
    "argument": ({"controller_arg": "a"}, 400, "controller_arg", "without a controller"),
    "controller's name": ({"controller": "no such!"}, 400, "controller", "tag name"),
    "controller's argument": ({"controller": "regex", "controller_arg": "("}, 400, "controller", "missing '.'"),
    "regex": ({"guided_regex": "("}, 400, "guided_regex", r"guided_regex: .*missing '\)'"),
    "grammar": ({"guided_grammar": "%%"}, 400, "guided_grammar", "guided_grammar: "),
    "choice": ({"guided_choice": []}, 400, "guided_choice", "at least 1"),
    "schema": ({"guided_json": {"type": "strin"}}, 400, "guided_json", "#/type"),
    "schema text": ({"guided_json": "{"}, 400, "guided_json", "guided_json: "),
    "schema type": ({"guided_json": 5}, 422, "guided_json", "guided_json"),
}
NAMED: Json = {"type": "function", "function": {"name": "g"}}
SCHEMA: Json = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "strin"}}}
IMAGE: Json = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
CALL: Json = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[1]"}}
WRONG: Mapping[str, dict[str, tuple[Json, int, str, str]]] = {
    CHAT: {
        **WRONG_BOTH,
        "parameters": ({"tools": [ARRAY]}, 400, "tools.0.function.parameters", "must have the type 'object'"),
        "no tokens": ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        "two limits": ({"max_tokens": 5, "max_completion_tokens": 6}, 400, "max_tokens", "together"),
        "no messages": ({"messages": []}, 400, "messages", "at least 1"),
        "messages": ({"messages": "Hi"}, 422, "messages", "valid list"),
        "message": ({"messages": ["Hi"]}, 422, "messages.0", "messages.0"),
        "role": ({"messages": [{"role": "function", "content": "a"}]}, 400, "messages.0.role", "'system', 'developer'"),
        "no role": ({"messages": [{"content": "a"}]}, 400, "messages.0.role", "missing"),
        "no content": ({"messages": [{"role": "user"}]}, 400, "messages.0.content", "missing"),
        "user's refusal": ({"messages": [{**USER, "refusal": "No."}]}, 400, "messages.0.refusal", "role assistant"),
        "user's reasoning": ({"messages": [{**USER, "reasoning_content": "Hm."}]}, 400,
                             "messages.0.reasoning_content", "role assistant"),
        "prefix": ({"messages": [{**USER, "prefix": True}]}, 400, "messages.0.prefix", "not supported"),
        "image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, 400, "messages.0.content", "type image_url"),
        "part": ({"messages": [{"role": "user", "content": ["a"]}]}, 400, "messages.0.content", "type None"),
        "part's text": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400,
                        "messages.0.content.text", "missing"),
        "user calls": ({"messages": [{**USER, "tool_calls": [CALL]}]}, 400, "messages.0.tool_calls", "only the assist"),
        "arguments": ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, 400,
                      "messages.0.tool_calls.0.function.arguments", "is not a JSON object"),
        "no call": ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "a"}]}, 400, "messages",
                    "result of the call 'c', but no message"),
        "no id": ({"messages": [{"role": "tool", "content": "a"}]}, 400, "messages.0.tool_call_id", "missing"),
        "user's id": ({"messages": [{**USER, "tool_call_id": "c"}]}, 400, "messages.0.tool_call_id", "the role tool"),
        "too long": ({"messages": [{"role": "user", "content": "a b " * 5000}]}, 400, "messages",
                     r"has \d{5} tokens: a sequence may have 2048"),
        "functions": ({"functions": []}, 400, "functions", "use tools and tool_choice"),
        "top_logprobs": ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", "less than or equal to 20"),
        "audio out": ({"modalities": ["text", "audio"]}, 400, "modalities.1", "'text'"),
        "effort": ({"reasoning_effort": "huge"}, 400, "reasoning_effort", "'none'"),
        "schema of plain text": ({"response_format": {"type": "text", "schema": {}}}, 400, "response_format.schema",
                                 "belongs to the type json_object"),
        "two schemas": ({"response_format": {**SCHEMA, "schema": {}}}, 400, "response_format.schema", "together"),
        "custom tool": ({"tools": [{"type": "custom", "custom": {}}]}, 400, "tools.0.type", "'function'"),
        "tool's name": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400,
                        "tools.0.function.name", "pattern"),
        "twice": ({"tools": [TOOL, TOOL]}, 400, "tools", "two tools have the name f"),
        "tool's schema": ({"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"properties": {"a": {"type": "strin"}}}}}]}, 400, "",
            "parameters of the tool f: .*#/properties/a/type"),
        "choice of none": ({"tools": [TOOL], "tool_choice": NAMED}, 400, "tool_choice", "tools has no tool g"),
        "choice without name": ({"tools": [TOOL], "tool_choice": {"type": "function"}}, 400, "tool_choice.function",
                                "missing"),
        "choice": ({"tools": [TOOL], "tool_choice": "any"}, 400, "tool_choice.type", "'none', 'auto'"),
        "choice without tools": ({"tool_choice": "required"}, 400, "tool_choice", "tool_choice required needs tools"),
        "format": ({"response_format": SCHEMA}, 400, "response_format", "response_format: .*#/type"),
        "no schema": ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema", "missing"),
        "schema of text": ({"response_format": {**SCHEMA, "type": "text"}}, 400, "response_format.json_schema",
                           "belongs to"),
        "format and regex": ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, 400, "response_format",
                             "guided_regex and response_format"),
        "regex and tools": ({"guided_regex": "a", "tools": [TOOL]}, 400, "guided_regex", "and tools together"),
    },
    TEXT: {
        **WRONG_BOTH,
        "no prompts": ({"prompt": []}, 400, "prompt", "at least 1"),
        "an empty one": ({"prompt": [[]]}, 400, "prompt.0", "at least 1"),
        "a number": ({"prompt": 5}, 422, "prompt", "valid list"),
        "mixed": ({"prompt": [5, "a"]}, 422, "prompt.0.1", "valid integer"),
        "no token": ({"prompt": [49152]}, 400, "prompt", "the token 49152: tokens are 0 to 49151"),
        "too long": ({"prompt": "a" * 1000000}, 400, "prompt", "has 1000000 characters"),
        "best_of": ({"best_of": 1, "n": 2}, 400, "best_of", "best_of is 1, less than n, which is 2"),
        "echo of a constraint": ({"echo": True, "logprobs": 0, "guided_regex": "a"}, 400, "echo", "guided_regex"),
        "logprobs": ({"logprobs": True}, 422, "logprobs", "valid integer"),
    },
}  # fmt: skip


@pytest.mark.parametrize(("path", "name"), [(path, name) for path in (CHAT, TEXT) for name in WRONG[path]])
def test_an_invalid_field_is_named(path: str, name: str) -> None:
    fields, status, param, words = WRONG[path][name]
    got_status, message, got_param = Api().refusal(path, {**BODIES[path], **fields})
    assert re.search(words, message, re.DOTALL), message
    assert (got_status, got_param or "") == (status, param)


def test_the_best_is_not_known_in_a_stream() -> None:
    answer = Api().post(TEXT, {"prompt": "a", "best_of": 2, "stream": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "best_of")


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_nan_and_infinity_are_refused(path: str, number: str) -> None:
    api = Api()
    text = f'{{"messages":[{{"role":"user","content":"a"}}],"temperature":{number}}}'
    if path == TEXT:
        text = f'{{"prompt":"a","temperature":{number}}}'
    answer = api.http.post(path, content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert not api.engine.submitted


@pytest.mark.parametrize("body", ["", "{", "[]", '"a"', "null", '{"messages": ' + "[" * 2000 + "]" * 2000 + "}"])
def test_a_body_that_is_not_a_request_is_refused(body: str) -> None:
    for path in (CHAT, TEXT):
        answer = Api().http.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["error"]["message"]


def test_half_a_character_is_refused() -> None:
    for path, body in ((CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}), (TEXT, {"prompt": "\ud800"})):
        answer = Api().post(path, body)
        assert (answer.status_code, "surrogate" in answer.json()["error"]["message"]) == (400, True)


def test_an_error_found_by_the_engine_is_reported() -> None:
    def refuses(submit: wire.Submit) -> list[wire.StreamOut]:
        failure = wire.Failure("invalid_request_error", "ignore_eos does not go with a controller")
        return [wire.FinishOut(submit.stream, FinishReason.FAIL, "", wire.UsageOut(1, 0, 0), failure=failure)]

    answer = Api(refuses).post(CHAT, {**BODIES[CHAT], "ignore_eos": True, "guided_regex": "a"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "ignore_eos does not go with a controller")
