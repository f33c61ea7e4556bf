"""Thoughts in the OpenAI, Responses and Anthropic protocols, over a scripted engine: apart from the answer."""

import json
from typing import Any

import anthropic
import pytest
from openai.types.chat import ChatCompletion

from aici_engine.chat.settings import ChatSettings
from aici_engine.events import FinishReason
from tests.support.chat_templates import DEEPSEEK_R1, QWEN3
from tests.support.fake_engine import Script, says
from tests.support.fake_service import vocabulary
from tests.support.openai_api import Api, Json
from tests.support.openai_strict import strict_event, strict_response

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER: Json = {"role": "user", "content": "Hi"}
HELLO: Json = {"messages": [USER]}
ASK: Json = {"model": "it", "max_tokens": 50, "messages": [USER]}
THOUGHT = says("\nHm", ".", "\n", reason=FinishReason.STOP_STRING, stop="</think>")
ANSWER = says("Hello", " there")
CALL = says('{"name": "f", "arguments": {"a": 1}}')
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def thinking(*scripts: Script) -> Api:
    """A server of a model whose template opens the tag."""
    return Api(*(scripts or (THOUGHT, ANSWER)), template=DEEPSEEK_R1)


def prompts(api: Api) -> list[str]:
    names = vocabulary()
    return [
        "".join(names.decode([token]) or names.name_of(token) for token in submit.prompt)
        for submit in api.engine.submitted
    ]


def test_a_chat() -> None:
    body = thinking().answer(CHAT, HELLO)
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hello there")
    assert body["usage"]["completion_tokens"] == 5
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    ChatCompletion.model_validate(body)


def test_the_stream_of_a_chat() -> None:
    asked = {**HELLO, "logprobs": True, "stream_options": {"include_usage": True}}
    *chunks, last = thinking().chunks(CHAT, asked)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"reasoning_content": "."},
        {"content": "Hello"},
        {"content": " there"},
        {},
    ]
    assert [len((chunk["choices"][0]["logprobs"] or {"content": []})["content"]) for chunk in chunks] == [
        0,
        0,
        0,
        1,
        1,
        0,
    ]
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_a_response() -> None:
    body = thinking().answer(RESPONSES, {"input": "Hi", "reasoning": {"effort": "low"}})
    strict_response(body)
    reasoning, message = body["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert (reasoning["summary"], message["content"][0]["text"]) == ([], "Hello there")
    assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
    assert body["reasoning"]["effort"] == "low"


def test_the_stream_of_a_response() -> None:
    answer = thinking().post(RESPONSES, {"input": "Hi", "stream": True})
    *frames, _ = answer.text.split("\n\n")
    events = [json.loads(frame.split("\n")[1].removeprefix("data: ")) for frame in frames]
    for event in events:
        strict_event(event)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["output_index"] for event in events[2:-1]] == [0] * 7 + [1] * 7
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message"]


def test_the_next_response_shows_the_thought_to_the_template() -> None:
    api = thinking(THOUGHT, ANSWER, THOUGHT, ANSWER)
    first = api.answer(RESPONSES, {"input": "Hi"})
    api.answer(RESPONSES, {"input": "And?", "previous_response_id": first["id"]})
    echoed = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "And?"}]
    api.answer(RESPONSES, {"input": echoed})
    wanted = "assistant\n<think>\nHm.\n</think>\n\nHello there<|im_end|>\n<|im_start|>user\nAnd?"
    assert wanted in prompts(api)[2]
    assert prompts(api)[2] == prompts(api)[4]


def test_a_message() -> None:
    sdk = anthropic.Anthropic(http_client=thinking().http, base_url="http://aici", api_key="none", max_retries=0)
    message = sdk.messages.create(**ASK)
    thought, text = message.content
    assert (thought.type, thought.thinking, text.text) == ("thinking", "Hm.", "Hello there")  # type: ignore[union-attr]
    assert thought.signature  # type: ignore[union-attr]
    assert message.usage.output_tokens == 5


def test_the_stream_of_a_message() -> None:
    sdk = anthropic.Anthropic(http_client=thinking().http, base_url="http://aici", api_key="none", max_retries=0)
    with sdk.messages.stream(**ASK) as stream:
        kinds = [event.type for event in stream]
        message: Any = stream.get_final_message()
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (message.content[0].thinking, message.content[1].text) == ("Hm.", "Hello there")
    assert message.content[0].signature == "aici"


def test_thoughts_that_a_message_omits() -> None:
    asked = {**ASK, "thinking": {"type": "adaptive", "display": "omitted"}}
    whole = thinking().answer(MESSAGES, asked)
    assert [block.get("thinking") for block in whole["content"]] == ["", None]
    api = thinking()
    streamed = api.post(MESSAGES, {**asked, "stream": True}).text
    assert "Hm" not in streamed
    assert "signature_delta" in streamed


FORBIDDEN: dict[str, tuple[str, Json]] = {
    "effort": (CHAT, {**HELLO, "reasoning_effort": "none"}),
    "member": (CHAT, {**HELLO, "reasoning": {"effort": "none"}}),
    "budget": (CHAT, {**HELLO, "thinking_token_budget": 0}),
    "responses": (RESPONSES, {"input": "Hi", "reasoning": {"effort": "none"}}),
    "anthropic": (MESSAGES, {**ASK, "thinking": {"type": "disabled"}}),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_no_thought_if_it_is_forbidden(name: str) -> None:
    path, body = FORBIDDEN[name]
    api = thinking(ANSWER)
    api.answer(path, body)
    [prompt] = prompts(api)
    assert prompt.endswith("<|im_start|>assistant\n<think>\n</think>\n\n")


BUDGETS: dict[str, tuple[str, Json]] = {
    "vllm": (CHAT, {**HELLO, "thinking_token_budget": 2}),
    "member": (CHAT, {**HELLO, "reasoning": {"max_tokens": 2}}),
    "responses": (RESPONSES, {"input": "Hi", "reasoning": {"max_tokens": 2}}),
    "anthropic": (MESSAGES, {**ASK, "thinking": {"type": "enabled", "budget_tokens": 2}}),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_in_each_protocol(name: str) -> None:
    path, body = BUDGETS[name]
    api = thinking(says("Hm", " m", reason=FinishReason.LENGTH), ANSWER)
    api.answer(path, body)
    first, second = api.engine.submitted
    assert first.sampling.max_tokens == 2
    assert first.sampling.stop == ("</think>",)
    assert prompts(api)[1].endswith("<think>\nHm m\n</think>\n\n")
    assert second.sampling.stop == ()


def test_a_schema_begins_after_the_thought() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    api = thinking(THOUGHT, says("{}"))
    message = api.answer(CHAT, {**HELLO, "response_format": form})["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "{}")
    first, second = api.engine.submitted
    assert first.controller is None
    assert second.controller is not None


def test_calls_after_the_thought() -> None:
    api = thinking(THOUGHT, CALL, says(""))
    message = api.answer(CHAT, {**HELLO, "tools": [TOOL], "tool_choice": "required"})["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm."
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert prompts(api)[1].endswith("Hm.\n</think>\n\n<tool_call>\n")


def test_a_template_that_leaves_it_to_the_model() -> None:
    api = Api(says("", reason=FinishReason.STOP_STRING, stop="<think>"), THOUGHT, ANSWER, template=QWEN3)
    message = api.answer(CHAT, HELLO)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hello there")
    for options in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        api = Api(ANSWER, template=QWEN3)
        message = api.answer(CHAT, {**HELLO, **options})["choices"][0]["message"]
        assert "reasoning_content" not in message
        assert prompts(api)[0].endswith("<think>\n\n</think>\n\n")
    api = Api(says("He", reason=FinishReason.LENGTH), ANSWER, template=QWEN3)
    assert "reasoning_content" not in api.answer(CHAT, HELLO)["choices"][0]["message"]


def test_an_answer_that_has_begun_has_no_thought() -> None:
    talk = [USER, {"role": "assistant", "content": "Well"}]
    api = thinking(ANSWER)
    api.answer(CHAT, {"messages": talk, "continue_final_message": True})
    assert prompts(api)[0].endswith("<think>\n</think>\n\nWell")


def test_without_a_parser_thoughts_are_text() -> None:
    api = thinking(ANSWER)
    api.service.chat_settings = ChatSettings(reasoning_parser="none")
    message = api.answer(CHAT, HELLO)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hello there", "refusal": None}
    api = thinking(ANSWER)
    api.service.chat_settings = ChatSettings(reasoning_parser="none")
    for field, body in (
        ("thinking_token_budget", {"thinking_token_budget": 5}),
        ("reasoning.max_tokens", {"reasoning": {"max_tokens": 5}}),
    ):
        status, message, param = api.refusal(CHAT, {**HELLO, **body})
        assert (status, param) == (400, field)
        assert "does not tell thoughts from answers" in message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"thinking_token_budget": 1, "reasoning": {"max_tokens": 2}}, "reasoning.max_tokens"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"reasoning": {"enabled": True}}, "reasoning.enabled"),
    ],
)
def test_what_is_refused(fields: Json, param: str) -> None:
    assert thinking().refusal(CHAT, {**HELLO, **fields})[2] == param


def test_a_model_without_tags_never_thinks() -> None:
    plain, budgeted = Api(ANSWER), Api(ANSWER)
    plain.answer(CHAT, HELLO)
    budgeted.answer(CHAT, {**HELLO, "thinking_token_budget": 5})
    assert plain.engine.submitted == budgeted.engine.submitted
