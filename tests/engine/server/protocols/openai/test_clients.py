"""Fields of requests that real clients send, by the name of the client. Each field is honoured, or has no effect."""

import json
from collections.abc import Mapping
from typing import Any

import openai
import pydantic
import pytest

from aici_controllers.grammar_check import accepts
from aici_engine.server.link import wire
from aici_engine.server.service.constraints import module_id
from tests.support.fake_engine import fails, says
from tests.support.fake_service import TOOL_TEMPLATE, vocabulary
from tests.support.openai_api import Api, Json, events

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER: Json = {"role": "user", "content": "Hi"}
HELLO: Json = {"messages": [USER]}
NAMES_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}{% if m.name %}({{ m.name }}){% endif %}"
    "{% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}:{{ m.content }}]{% endfor %}"
)

# Client: what it sends beside the messages. Nothing of it changes the answer.
HINTS: Mapping[str, Json] = {
    "openai-agents, ModelSettings(reasoning=Reasoning(effort=))": {"reasoning_effort": "low"},
    "openai-agents, ModelSettings(verbosity=)": {"verbosity": "low"},
    "openai-agents, ModelSettings(store=)": {"store": True},
    "openai, service_tier": {"service_tier": "priority"},
    "openai, prompt caching": {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {}},
    "openai, safety": {"safety_identifier": "s", "user": "u"},
    "LangSmith": {"metadata": {"run": "1"}},
    "vLLM's old clients": {"top_p": -1, "top_k": 0},
}


def prompt_of(api: Api) -> str:
    names = vocabulary()
    return "".join(names.decode([token]) or names.name_of(token) for token in api.engine.submitted[0].prompt)


@pytest.mark.parametrize("client", HINTS)
def test_a_hint_changes_nothing(client: str) -> None:
    api, plain = Api(), Api()
    api.answer(CHAT, {**HELLO, **HINTS[client]})
    plain.answer(CHAT, HELLO)
    assert api.engine.submitted == plain.engine.submitted


def test_langchain_names_the_agent_in_its_messages() -> None:
    """`create_agent(name="helper")` sends its own answers back with the name."""
    talk: list[Json] = [
        {**USER, "name": "eve"},
        {"role": "assistant", "content": "Hello", "name": "helper"},
        {"role": "user", "content": "<|im_end|>", "name": "<|im_end|>"},
    ]
    api = Api(template=NAMES_TEMPLATE)
    api.answer(CHAT, {"messages": talk})
    assert prompt_of(api) == "[user(eve):Hi][assistant(helper):Hello][user(<|im_end|>):<|im_end|>]"
    end = vocabulary().encode("<|im_end|>")[0]
    assert end not in api.engine.submitted[0].prompt, "a name ends no turn"
    ours, plain = Api(), Api()
    ours.answer(CHAT, {"messages": talk})
    plain.answer(CHAT, {"messages": [{name: text for name, text in each.items() if name != "name"} for each in talk]})
    assert ours.engine.submitted == plain.engine.submitted, "this template has no place for names"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_litellm_sends_the_reasoning_back(field: str) -> None:
    api = Api(template=NAMES_TEMPLATE)
    api.answer(CHAT, {"messages": [USER, {"role": "assistant", "content": "Hello", field: "A greeting."}, USER]})
    assert prompt_of(api) == "[user:Hi][assistant<A greeting.>:Hello][user:Hi]"


@pytest.mark.parametrize(
    "message",
    [{"refusal": "No."}, {"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}],
)
def test_openai_sends_a_refusal_back(message: Json) -> None:
    api = Api(template=NAMES_TEMPLATE)
    api.answer(CHAT, {"messages": [USER, {"role": "assistant", **message}, USER]})
    assert prompt_of(api) == "[user:Hi][assistant:No.][user:Hi]"


def test_openai_sends_its_own_message_back() -> None:
    api = Api()
    message = (
        api.sdk.chat.completions.create(model="it", messages=[{"role": "user", "content": "Hi"}]).choices[0].message
    )
    messages: Any = [USER, message, USER]
    assert api.sdk.chat.completions.create(model="it", messages=messages).choices[0].message.content


def test_openai_sends_back_the_message_of_its_stream_helper() -> None:
    """The messages of `parse` and `stream` have `parsed`, and their calls `parsed_arguments`."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    parsed = {**call, "function": {**call["function"], "parsed_arguments": {"a": 1}}}
    talks = [
        [USER, {"role": "assistant", "content": None, "tool_calls": [each], "parsed": {"b": 2}}, USER]
        for each in (call, parsed)
    ]
    api, plain = Api(template=TOOL_TEMPLATE), Api(template=TOOL_TEMPLATE)
    api.answer(CHAT, {"messages": talks[1]})
    del talks[0][1]["parsed"]
    plain.answer(CHAT, {"messages": talks[0]})
    assert api.engine.submitted == plain.engine.submitted


def test_litellm_sends_back_its_own_fields() -> None:
    """`litellm.completion` adds `provider_specific_fields` to messages and to calls."""
    extra: Json = {"provider_specific_fields": {"refusal": None}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    said: Json = {"role": "assistant", "content": "Hello", "tool_calls": [call]}
    api, plain = Api(template=TOOL_TEMPLATE), Api(template=TOOL_TEMPLATE)
    api.answer(CHAT, {"messages": [USER, {**said, **extra, "tool_calls": [{**call, **extra}]}, USER]})
    plain.answer(CHAT, {"messages": [USER, said, USER]})
    assert api.engine.submitted == plain.engine.submitted


def test_llamaindex_gives_both_names_of_the_limit() -> None:
    api = Api()
    api.answer(CHAT, {**HELLO, "max_tokens": 7, "max_completion_tokens": 7})
    assert api.engine.submitted[0].sampling.max_tokens == 7


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_llama_cpp_puts_the_schema_beside_the_type(kind: str) -> None:
    schema: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
    api, openais = Api(), Api()
    api.answer(CHAT, {**HELLO, "response_format": {"type": kind, "schema": schema}})
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    openais.answer(CHAT, {**HELLO, "response_format": form})
    assert api.engine.submitted == openais.engine.submitted
    assert api.engine.submitted[0].controller == module_id("json_schema")


def test_a_plain_loop_over_a_stream_finds_content_in_the_first_delta() -> None:
    chunks = Api().chunks(CHAT, HELLO)
    assert chunks[0]["choices"][0]["delta"]["content"] == ""


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_vllm_reports_the_usage_in_each_chunk(path: str) -> None:
    body: Json = HELLO if path == CHAT else {"prompt": "Hi"}
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = Api(says("a", "b", "c")).chunks(path, {**body, "n": 2, "stream_options": options})
    used = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert used == sorted(used)
    assert used[-1] == 6
    assert all(chunk["usage"]["prompt_tokens"] == last["usage"]["prompt_tokens"] for chunk in chunks)
    assert last["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == last["usage"]["total_tokens"]
    without = Api(says("a")).chunks(path, {**body, "stream_options": {"continuous_usage_stats": True}})
    assert without[-1]["choices"]
    assert without[-1]["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**HELLO, "model": "gpt-4o"}, "model_not_found"),
        ({**HELLO, "temprature": 1}, "unknown_parameter"),
        ({}, "missing_required_parameter"),
        ({**HELLO, "temperature": "hot"}, "invalid_type"),
        ({**HELLO, "temperature": -1}, "invalid_value"),
        ({"messages": [{"role": "user", "content": "a b " * 5000}]}, "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": "a b " * 500_000}]}, "context_length_exceeded"),
    ],
)
def test_openai_reads_the_code_of_an_error_as_a_word(body: Json, code: str) -> None:
    api = Api()
    with pytest.raises(openai.APIStatusError) as caught:
        api.sdk.post("/chat/completions", body=body, cast_to=object)
    assert caught.value.code == code


def test_the_error_of_a_failed_stream_has_a_code() -> None:
    answer = Api(fails(wire.Failure("rate_limit_error", "later"), "a")).post(CHAT, {**HELLO, "stream": True})
    assert json.loads(events(answer.text)[-1])["error"]["code"] == "rate_limit_exceeded"


CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Json = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
REPORT: Json = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}
TYPED: Json = {"type": "json_schema", "json_schema": {"name": "n", "schema": REPORT, "strict": True}}


@pytest.mark.parametrize("field", ["response_format", "guided_json"])
def test_an_agent_with_tools_and_a_type_of_its_answer(field: str) -> None:
    """openai-agents `Agent(tools=, output_type=)`, the AI SDK's `Output.object`, LangChain's ProviderStrategy."""
    body = {**HELLO, "tools": [WEATHER], field: TYPED if field == "response_format" else REPORT}
    called = Api(says("<tool_call>"), says('{"name":"weather","arguments":{"city":"Bonn"}}'), says(""))
    message = called.answer(CHAT, body)["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Bonn"}'}
    submit = called.engine.submitted[0]
    assert submit.controller == module_id("grammar")
    assert isinstance(submit.argument, str)
    for text, allowed in (
        ('{"rain": true}', True), ("<tool_call>", True), ("", False), ('{"rain": 1}', False), ("Hm", False),
        ('<tool_call>{"rain": true}', False),
    ):  # fmt: skip
        verdict = accepts(submit.argument, text, syntax="y")
        assert verdict.accepted == allowed, text
    chunks = called_stream(body)
    assert [
        chunk["choices"][0]["delta"].get("content") for chunk in chunks if "content" in chunk["choices"][0]["delta"]
    ] == [None]


def called_stream(body: Json) -> list[Json]:
    scripts = (says("<tool", "_call>"), says('{"name":"weather","arguments":{"city":"Bonn"}}'), says(""))
    return Api(*scripts).chunks(CHAT, body)


def test_openai_parse_with_tools() -> None:
    """`chat.completions.parse(response_format=, tools=)`, whose tools are strict."""

    class Report(pydantic.BaseModel):
        rain: bool

    strict: Any = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    api = Api(says('{"rain"', ": true}"))
    messages: Any = [USER]
    answer = api.sdk.chat.completions.parse(model="it", messages=messages, tools=[strict], response_format=Report)
    assert answer.choices[0].message.parsed == Report(rain=True)


def test_a_tool_that_must_be_called_leaves_no_room_for_a_document() -> None:
    body = {**HELLO, "tools": [WEATHER], "tool_choice": "required", "response_format": TYPED}
    api = Api(says('{"name":"weather","arguments":{"city":"Bonn"}}'), says(""))
    assert api.answer(CHAT, body)["choices"][0]["finish_reason"] == "tool_calls"
    assert api.engine.submitted[0].controller == module_id("json_schema")
    wrong = {**TYPED["json_schema"], "schema": {"type": "strin"}}
    status, _, param = Api().refusal(CHAT, {**body, "response_format": {**TYPED, "json_schema": wrong}})
    assert (status, param) == (400, "response_format")


def test_the_schema_beside_tools_is_read_with_the_options_of_the_request() -> None:
    api = Api(says("{}"))
    body = {**HELLO, "tools": [WEATHER], "guided_json": REPORT, "schema_options": {"objects": "open"}}
    api.answer(CHAT, body)
    argument = str(api.engine.submitted[0].argument)
    assert accepts(argument, '{"rain": true, "snow": 1}', syntax="y").accepted
    assert not accepts(argument, '{"rain": 1}', syntax="y").accepted


ALLOWED: Json = {"type": "allowed_tools", "allowed_tools": {
    "mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}}  # fmt: skip
TIME: Json = {"type": "function", "function": {"name": "time"}}


def test_openai_allows_some_of_the_tools() -> None:
    body = {**HELLO, "tools": [WEATHER, TIME]}
    allowed, required = (
        Api(says('{"name":"weather","arguments":{"city":"Bonn"}}'), says(""), template=TOOL_TEMPLATE) for _ in "ab"
    )
    answer = allowed.answer(CHAT, {**body, "tool_choice": ALLOWED})
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    required.answer(CHAT, {**body, "tool_choice": "required"})
    assert allowed.engine.submitted[0].prompt == required.engine.submitted[0].prompt, "the model is told of all tools"
    assert "time" in str(required.engine.submitted[0].argument)
    assert "time" not in str(allowed.engine.submitted[0].argument)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"type": "allowed_tools"}, "allowed_tools is missing"),
        ({**ALLOWED, "type": "auto"}, "belongs to the type allowed_tools"),
        ({**ALLOWED, "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}},
         "has no tool g"),
    ],
)  # fmt: skip
def test_a_wrong_choice_of_some_tools_is_named(choice: Json, words: str) -> None:
    status, message, _ = Api().refusal(CHAT, {**HELLO, "tools": [WEATHER, TIME], "tool_choice": choice})
    assert (status, words in message) == (400, True), message
