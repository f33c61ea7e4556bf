"""The official Anthropic SDK against `aici serve` with the real model."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import anthropic
import jsonschema
import pytest
from anthropic.types import Message, TextBlock, ToolUseBlock
from pydantic import BaseModel

from aici_engine.chat.template import ChatTemplate, chat_prompt
from aici_engine.engine import Engine
from tests.support.model import default_model_dir
from tests.support.server import Server

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
GREEDY = {"temperature": 0}
QUESTION = "Count from one to ten."
SCHEMA: Json = {
    "type": "object",
    "properties": {"place": {"$ref": "#/$defs/place"}, "unit": {"enum": ["C", "F"]}},
    "required": ["place", "unit"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "zip": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        }
    },
}
WEATHER: Json = {"name": "get_weather", "description": "The weather of a place.", "input_schema": SCHEMA}
TIME: Json = {"name": "time", "description": "The time.", "input_schema": {"type": "object", "maxProperties": 0}}
SCHEMAS = {tool["name"]: tool["input_schema"] for tool in (WEATHER, TIME)}


def user(content: object) -> Any:
    return {"role": "user", "content": content}


def assistant(content: object) -> Any:
    return {"role": "assistant", "content": content}


@pytest.fixture(scope="module")
def claude(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def greedy_text(engine: Engine) -> str:
    """The engine's answer to QUESTION, in 32 tokens."""
    template = ChatTemplate.of(default_model_dir())
    assert template is not None
    return engine.generate(template.render([user(QUESTION)]), temperature=0.0, max_tokens=32)


def asked(*messages: Any, max_tokens: int = 32, **fields: object) -> Any:
    messages = messages or (user(QUESTION),)
    return {"model": "default", "messages": messages, "max_tokens": max_tokens, "extra_body": GREEDY} | fields


def ask(claude: anthropic.Anthropic, *messages: Any, **fields: Any) -> Message:
    message: Message = claude.messages.create(**asked(*messages, **fields))
    return message


def watch(claude: anthropic.Anthropic, *messages: Any, **fields: Any) -> Message:
    """Ask by a stream; the final text must equal the joined pieces."""
    with claude.messages.stream(**asked(*messages, **fields)) as events:
        pieces = list(events.text_stream)
        final: Message = events.get_final_message()
    assert text_of(final) == "".join(pieces)
    return final


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


def used(message: Message) -> tuple[int, int]:
    """Return the number of tokens in, cached or computed, and of tokens out."""
    usage = message.usage
    return usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens


def uses_of(message: Message) -> list[ToolUseBlock]:
    """Return the uses of tools; every input must fit the schema of the tool."""
    uses = [block for block in message.content if isinstance(block, ToolUseBlock)]
    for use in uses:
        jsonschema.validate(use.input, SCHEMAS[use.name])
    return uses


def test_streamed_or_not_the_text_is_the_engines(claude: anthropic.Anthropic, greedy_text: str) -> None:
    message = ask(claude)
    assert text_of(message) == greedy_text
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 32)
    prompt = chat_prompt(default_model_dir(), [user(QUESTION)])
    assert used(message) == (len(prompt), 32)
    final = watch(claude)
    assert text_of(final) == greedy_text
    assert (final.stop_reason, used(final)) == (message.stop_reason, used(message))


def test_a_stop_sequence_is_found_across_tokens_and_is_not_in_the_text(
    claude: anthropic.Anthropic, greedy_text: str
) -> None:
    middle = len(greedy_text) // 2
    stop = greedy_text[middle - 3 : middle + 4]
    wanted = greedy_text[: greedy_text.index(stop)]
    for message in (ask(claude, stop_sequences=["no such text", stop]), watch(claude, stop_sequences=[stop])):
        assert (text_of(message), message.stop_reason, message.stop_sequence) == (wanted, "stop_sequence", stop)


def test_an_answer_goes_on_from_its_beginning(claude: anthropic.Anthropic, greedy_text: str) -> None:
    start, rest = greedy_text[:4], greedy_text[4:]
    message = ask(claude, user(QUESTION), assistant(start), max_tokens=24)
    assert rest.startswith(text_of(message)[:8])


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_tool_that_must_be_used_is_used_validly(claude: anthropic.Anthropic, choice: Json) -> None:
    fields: Json = {"tools": [WEATHER, TIME], "tool_choice": choice | {"disable_parallel_tool_use": True}}
    question = user("What is the weather in Paris?")
    message, streamed = (how(claude, question, max_tokens=64, **fields) for how in (ask, watch))
    [use], [same] = uses_of(message), uses_of(streamed)
    assert (same.name, same.input) == (use.name, use.input)
    assert message.stop_reason == streamed.stop_reason == "tool_use"
    assert used(message) == used(streamed)


def test_the_model_decides_to_use_a_tool_and_gets_its_result(claude: anthropic.Anthropic) -> None:
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"place": {"city": "%s"}, "unit": "C"}}\n</tool_call>'
    turns = [
        *(user("Weather in Rome?"), assistant(written % "Rome")),
        *(user("Weather in Bonn?"), assistant(written % "Bonn")),
        user("Weather in Paris?"),
    ]
    only_one: Any = {"type": "auto", "disable_parallel_tool_use": True}
    message = ask(claude, *turns, max_tokens=64, tools=[WEATHER], tool_choice=only_one)
    assert message.stop_reason == "tool_use"
    [use] = uses_of(message)
    assert use.input["place"] == {"city": "Paris"}

    result = {"type": "tool_result", "tool_use_id": use.id, "content": "It rains."}
    after: list[Any] = [*turns, message.to_param(), user([result])]
    answer = ask(claude, *after, max_tokens=8, tools=[WEATHER], tool_choice={"type": "none"})
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert not uses_of(answer)


@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_tokens_are_counted_as_they_are_used(claude: anthropic.Anthropic, tools: list[Any]) -> None:
    asking: Any = {"messages": [user("Grüße ↩")], "model": "default", "tools": tools, "system": "Be brief."}
    counted = claude.messages.count_tokens(**asking).input_tokens
    assert used(claude.messages.create(max_tokens=1, **asking))[0] == counted


class City(BaseModel):
    size: Literal["small", "large"]
    is_capital: bool


def test_structured_output_is_parsed_by_the_sdk(claude: anthropic.Anthropic) -> None:
    message = claude.messages.parse(**asked(user("Describe Paris as JSON."), max_tokens=64), output_format=City)
    assert isinstance(message.parsed_output, City)


def test_our_constraints_by_extra_body(claude: anthropic.Anthropic) -> None:
    message = ask(claude, user("A number?"), max_tokens=8, extra_body={"guided_regex": "[0-9]{3}"})
    assert text_of(message).isdigit()
    assert message.stop_reason == "end_turn"


def test_errors_are_those_of_the_sdk(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="not served here"):
        ask(claude, model="claude")
    with pytest.raises(anthropic.BadRequestError, match="container"):
        ask(claude, extra_body={"container": "c"})


ENDLESS = GREEDY | {"guided_regex": "(a|b)+"}


def until(server: Server, active: int) -> Mapping[str, Any]:
    """Return the first figures with `active` requests, or the figures after half a minute."""
    end = time.monotonic() + 30
    while (stats := server.stats())["active_requests"] != active and time.monotonic() < end:
        pass
    return stats


def check_that_nothing_is_held(server: Server) -> None:
    stats = until(server, 0)
    assert (stats["active_requests"], stats["waiting_requests"], stats["cache_usage"]) == (0, 0, 0.0)


def test_closing_a_stream_frees_the_pages(claude: anthropic.Anthropic, server: Server) -> None:
    with claude.messages.create(**asked(max_tokens=1500, stream=True, extra_body=ENDLESS)) as events:
        for number, _ in enumerate(events):
            if number == 4:
                break
        assert server.stats()["active_requests"] == 1
    check_that_nothing_is_held(server)


def test_a_client_that_disconnects_frees_the_pages(server: Server) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    body = {"model": "default", "messages": [user(QUESTION)], "max_tokens": 1500} | ENDLESS
    connection.request("POST", "/v1/messages", json.dumps(body), {"Content-Type": "application/json"})
    assert until(server, 1)["active_requests"] == 1
    connection.close()
    check_that_nothing_is_held(server)
