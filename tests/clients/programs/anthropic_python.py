"""A program of a user of Anthropic's client for Python."""

import sys
from typing import Any, Literal

import anthropic
from features import feature
from pydantic import BaseModel

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
hello: Any = [{"role": "user", "content": "Say hello."}]
common: Any = {"model": "claude-sonnet-4-5", "max_tokens": 40, "extra_body": {"temperature": 0}}
rome: Any = [{"role": "user", "content": "How is the weather in Rome and in Oslo?"}]
schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
tools: Any = [{"name": "weather", "description": "Return the weather of a city.", "input_schema": schema}]


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


def results(message: Any) -> Any:
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": "clear"}
        for block in message.content
        if block.type == "tool_use"
    ]


@feature("messages", "create")
def _() -> bool:
    return bool(client.messages.create(messages=hello, system="Be brief.", **common).content[0].text)


@feature("messages", "count_tokens, models, aliases")
def _() -> bool:
    count = client.messages.count_tokens(model="default", messages=hello).input_tokens
    usage = client.messages.create(messages=hello, **common).usage
    known = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    return count == known and bool(client.models.list().data) and bool(client.models.retrieve("claude-sonnet-4-5").id)


@feature("messages", "thinking, effort, cache_control, context_management, metadata")
def _() -> bool:
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    fields: list[Any] = [
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1100, "stop_sequences": ["."]},
        {"output_config": {"effort": "low"}},
        {"extra_body": {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}},
        {"metadata": {"user_id": "ada"}, "service_tier": "auto"},
    ]
    return all(client.messages.create(messages=hello, system=system, **{**common, **each}).id for each in fields)


@feature("messages", "beta.messages")
def _() -> bool:
    edits: Any = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    answer = client.beta.messages.create(
        messages=hello, betas=["context-management-2025-06-27"], context_management=edits, **common
    )
    return answer.context_management is not None and answer.context_management.applied_edits == []


@feature("chat")
def _() -> bool:
    answer = client.messages.create(messages=hello, **common)
    return answer.stop_reason in ("end_turn", "max_tokens") and answer.type == "message"


@feature("stream")
def _() -> bool:
    with client.messages.stream(messages=hello, **common) as stream:
        text = "".join(stream.text_stream)
        return text == stream.get_final_message().content[0].text != ""


@feature("multi-turn")
def _() -> bool:
    first = client.messages.create(messages=hello, **common)
    messages: Any = [*hello, {"role": "assistant", "content": first.content}, {"role": "user", "content": "Again."}]
    return bool(client.messages.create(messages=messages, **common).content)


@feature("tools")
def _() -> bool:
    first = client.messages.create(messages=rome, tools=tools, tool_choice={"type": "any"}, **common)
    messages: Any = [
        *rome,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results(first)},
    ]
    after = client.messages.create(messages=messages, tools=tools, tool_choice={"type": "none"}, **common)
    return first.stop_reason == "tool_use" and bool(after.content)


@feature("tools", "named, streamed")
def _() -> bool:
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    with client.messages.stream(messages=rome, tools=tools, tool_choice=choice, **common) as stream:
        [call] = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    return call.input["city"] in ("Oslo", "Rome")


@feature("tools", "tool_runner")
def _() -> bool:
    @anthropic.beta_tool
    def weather(city: Literal["Oslo", "Rome"]) -> str:
        """Return the weather of a city."""
        return "clear"

    runner = client.beta.messages.tool_runner(messages=rome, tools=[weather], **common)
    return runner.until_done().stop_reason is not None


@feature("parallel tools")
def _() -> bool:
    asked: Any = {**common, "max_tokens": 100, "tools": tools, "tool_choice": {"type": "any"}}
    first = client.messages.create(messages=rome, **asked)
    messages: Any = [
        *rome,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results(first)},
    ]
    after = client.messages.create(messages=messages, tools=tools, **common)
    return len(results(first)) > 1 and bool(after.content)


@feature("structured output")
def _() -> bool:
    question: Any = [{"role": "user", "content": "The sky is blue."}]
    answer = client.messages.parse(messages=question, output_format=Weather, **common)
    return isinstance(answer.parsed_output, Weather)


@feature("tools + structured output")
def _() -> bool:
    one: Any = {"type": "auto", "disable_parallel_tool_use": True}
    answer = client.messages.parse(messages=rome, tools=tools, tool_choice=one, output_format=Weather, **common)
    return isinstance(answer.parsed_output, Weather) or answer.stop_reason == "tool_use"


@feature("constraints")
def _() -> bool:
    answer = client.messages.create(messages=hello, **{**common, "extra_body": {"guided_regex": "yes|no"}})
    return answer.content[0].text in ("yes", "no")


@feature("usage")
def _() -> bool:
    usage = client.messages.create(messages=hello, **common).usage
    with client.messages.stream(messages=hello, **common) as stream:
        streamed = stream.get_final_message().usage
    return usage.output_tokens == streamed.output_tokens > 0


@feature("errors")
def _() -> bool:
    try:
        client.messages.create(messages=hello, **{**common, "extra_body": {"temperature": -1}})
    except anthropic.BadRequestError as error:
        body: Any = error.body
        assert body["error"]["type"] == "invalid_request_error", body
        assert error.request_id and body["request_id"] == error.request_id, (error.request_id, body)
        return "temperature" in error.message
    return False


@feature("errors", "unknown model")
def _() -> bool:
    try:
        client.messages.create(messages=hello, **{**common, "model": "claude-nosuch"})
    except anthropic.NotFoundError as error:
        return "claude-nosuch" in error.message
    return False
