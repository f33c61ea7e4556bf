"""Calls in the forms of several templates, and thoughts, with the default model: the request brings the template."""

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.support.chat_templates import DEEPSEEK_R1, GRANITE, HERMES, LLAMA3, MISTRAL, QWEN3
from tests.support.server import Server

pytestmark = pytest.mark.e2e

ASK: Any = [{"role": "user", "content": "Is it warm in Oslo, and in Rome?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
        },
    },
}
OTHER: Any = {"type": "function", "function": {"name": "now"}}
FORMS = {"hermes": HERMES, "llama3": LLAMA3, "mistral": MISTRAL, "granite": GRANITE}


@pytest.fixture(scope="module")
def sdk(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(sdk: openai.OpenAI, template: str, *, extra: Any = None, **fields: Any) -> Any:
    asked = {"model": "default", "messages": ASK, "temperature": 0, "max_tokens": 80, **fields}
    return sdk.chat.completions.create(**asked, extra_body={"chat_template": template, **(extra or {})})


@pytest.mark.parametrize("form", FORMS)
def test_calls_in_the_form_of_a_template(sdk: openai.OpenAI, form: str) -> None:
    """Valid calls, whole and streamed; the answer goes back into the conversation."""
    asked: Any = {"tools": [TOOL, OTHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    message = chat(sdk, FORMS[form], **asked).choices[0].message
    [call] = message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Oslo", "Rome")
    assert 1 <= arguments["days"] <= 9
    chunks = [chunk.choices[0].delta for chunk in chat(sdk, FORMS[form], stream=True, **asked)]
    parts = [part.function.arguments for delta in chunks for part in delta.tool_calls or []]
    assert "".join(parts) == call.function.arguments
    assert len(parts) > 2
    result = {"role": "tool", "tool_call_id": call.id, "content": "20"}
    again = chat(sdk, FORMS[form], messages=[*ASK, message, result], tools=[TOOL], tool_choice="none", max_tokens=4)
    assert again.choices[0].message.content is not None


@pytest.mark.parametrize("form", FORMS)
def test_calls_that_are_required(sdk: openai.OpenAI, form: str) -> None:
    choice = chat(sdk, FORMS[form], tools=[TOOL], tool_choice="required", seed=3, temperature=1).choices[0]
    assert choice.finish_reason in ("tool_calls", "length")
    made = choice.message.tool_calls
    assert form != "llama3" or len(made) == 1
    for call in made if choice.finish_reason == "tool_calls" else made[:-1]:
        assert json.loads(call.function.arguments).keys() == {"city", "days"}


def test_a_thought_has_a_budget_and_the_constraint_comes_after_it(sdk: openai.OpenAI) -> None:
    asked: Any = {"extra": {"thinking_token_budget": 12, "guided_regex": "[0-9]{3} degrees"}}
    answer = chat(sdk, DEEPSEEK_R1, **asked)
    message = answer.choices[0].message
    assert message.reasoning_content
    assert re.fullmatch("[0-9]{3} degrees", message.content)
    assert answer.usage.completion_tokens_details.reasoning_tokens <= 12
    chunks = list(chat(sdk, DEEPSEEK_R1, stream=True, **asked))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == message.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == message.content


def test_a_call_comes_after_a_thought(sdk: openai.OpenAI) -> None:
    template = HERMES.replace(
        "<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}{# </think> #}"
    )
    asked: Any = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    message = chat(sdk, template, extra={"thinking_token_budget": 8}, **asked).choices[0].message
    assert message.reasoning_content
    assert json.loads(message.tool_calls[0].function.arguments)["city"] in ("Oslo", "Rome")


def test_no_thought_where_the_model_writes_none(sdk: openai.OpenAI) -> None:
    """The default model knows no tags: its answer is the same as without them, and peeked tokens do not count."""
    plain = QWEN3.replace("think>", "other>")
    answers = [chat(sdk, template, max_tokens=8) for template in (QWEN3, plain)]
    assert answers[0].choices[0].message == answers[1].choices[0].message
    assert answers[0].usage.completion_tokens == answers[1].usage.completion_tokens == 8
    forbidden = chat(sdk, QWEN3, max_tokens=8, reasoning_effort="none")
    assert forbidden.usage.prompt_tokens > answers[0].usage.prompt_tokens


def test_anthropic_has_its_budget_field_and_no_thought_of_a_model_without_tags(server: Server) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        message = client.messages.create(
            model="default",
            max_tokens=8,
            messages=[{"role": "user", "content": "Hello"}],
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
    assert [block.type for block in message.content] == ["text"]
