"""The Anthropic protocol through the official SDK, over a scripted engine."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anthropic
import pytest
from anthropic.types import Message

from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from aici_engine.server.protocols.anthropic.response import MessageEnding, streamed
from aici_engine.server.protocols.chat.turn import Delta, Text
from tests.support.anthropic_api import HELLO, PLACE, USER, WEATHER, Api, Json
from tests.support.fake_engine import Script, fails, says
from tests.support.fake_service import TOOL_TEMPLATE, vocabulary

CALL = says('{"name":"weather",', '"arguments":{"pl', 'ace":"Rome"}', "}")
NO_MORE = says("")
UP_TO_MARK = says("Let me see.\n", reason=FinishReason.STOP_STRING, stop="<tool_call>")


def said(message: Json) -> Json:
    """Return the parts that two answers to the same request have in common."""
    content = [{**block, "id": None} for block in message["content"]]
    usage = {name: message["usage"][name] for name in ("input_tokens", "output_tokens")}
    return {"content": content, "usage": usage} | {name: message[name] for name in ("stop_reason", "stop_sequence")}


def events(body: str) -> list[Json]:
    """Strictly: a line that names the event, a line of data, an empty line."""
    parts = body.split("\n\n")
    assert parts.pop() == ""
    parsed = []
    for part in parts:
        name, data = part.split("\n")
        parsed.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {parsed[-1]['type']}"
    return parsed


def test_a_message() -> None:
    api = Api()
    message = api.message()
    num_tokens = len(api.engine.submitted[0].prompt)
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "it",
        "content": [{"type": "text", "text": "Hello there"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": num_tokens,
            "output_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "service_tier": "standard",
        },
    }
    assert api.admission.num_admitted == 0


def test_cached_tokens_are_not_input_tokens() -> None:
    api = Api(says("Hello", num_cached=5))
    num_tokens = api.sdk.messages.count_tokens(model="it", messages=HELLO["messages"]).input_tokens
    for usage in (Message(**api.message()).usage, api.streamed().usage):
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (num_tokens - 5, 5)


def test_a_stream_event_by_event() -> None:
    answer = Api().post(stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    start, *rest = events(answer.text)
    assert start["message"]["content"] == []
    assert start["message"]["stop_reason"] is None
    usage = start["message"]["usage"]
    assert usage["output_tokens"] == 0
    assert rest == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " there"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {
                "input_tokens": usage["input_tokens"],
                "output_tokens": 2,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        },
        {"type": "message_stop"},
    ]


ANSWERS: Mapping[str, tuple[list[Script], Json]] = {
    "text": ([says("Hello", " there")], {}),
    "nothing": ([says("")], {}),
    "stop sequence": ([says("1, 2", reason=FinishReason.STOP_STRING, stop=", 3")], {"stop_sequences": [", 3"]}),
    "length": ([says(*"abc", reason=FinishReason.LENGTH)], {"max_tokens": 3}),
    "context": ([says(*"abc", reason=FinishReason.LENGTH)], {"max_tokens": 4}),
    "text, then a call": ([UP_TO_MARK, CALL, NO_MORE], {"tools": [WEATHER]}),
    "a tool was not needed": ([says("Fine.")], {"tools": [WEATHER]}),
    "two calls": ([CALL, says("\n<tool_call>\n"), CALL, NO_MORE], {"tools": [WEATHER], "tool_choice": {"type": "any"}}),
    "this tool": ([CALL], {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}}),
    "one call at most": (
        [CALL],
        {"tools": [WEATHER], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    ),
    "a call cut short": (
        [says('{"name":"weather","arguments":{"place":"Ro', reason=FinishReason.LENGTH)],
        {"tools": [WEATHER], "tool_choice": {"type": "any"}, "max_tokens": 1},
    ),
}
TEXT = {"id": None, "type": "text"}
USE = {"id": None, "type": "tool_use", "name": "weather", "input": {"place": "Rome"}}
WANTED: Mapping[str, tuple[list[Json], str, str | None]] = {
    "text": ([TEXT | {"text": "Hello there"}], "end_turn", None),
    "nothing": ([], "end_turn", None),
    "stop sequence": ([TEXT | {"text": "1, 2"}], "stop_sequence", ", 3"),
    "length": ([TEXT | {"text": "abc"}], "max_tokens", None),
    "context": ([TEXT | {"text": "abc"}], "model_context_window_exceeded", None),
    "text, then a call": ([TEXT | {"text": "Let me see.\n"}, USE], "tool_use", None),
    "a tool was not needed": ([TEXT | {"text": "Fine."}], "end_turn", None),
    "two calls": ([USE, USE], "tool_use", None),
    "this tool": ([USE], "tool_use", None),
    "one call at most": ([USE], "tool_use", None),
    "a call cut short": ([USE | {"input": {}}], "max_tokens", None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_streamed_and_not(name: str) -> None:
    scripts, fields = ANSWERS[name]
    message = Api(*scripts).message(**fields)
    content, reason, stop = WANTED[name]
    assert [{**block, "id": None} for block in message["content"]] == content
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    assert said(Api(*scripts).streamed(**fields).to_dict()) == said(message)
    for block in message["content"]:
        assert block["type"] == "text" or block["id"].startswith("toolu_")


PROMPTS: Mapping[str, tuple[Json, str]] = {
    "turns": (
        {"system": "Be brief.", "messages": [USER, {"role": "assistant", "content": "Yes?"}, USER]},
        "[system:Be brief.][user:Hi][assistant:Yes?][user:Hi][assistant:",
    ),
    "blocks, and turns of one role in a row": (
        {
            "system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "C"}]}, USER],
        },
        "[system:A\nB][user:C\nHi][assistant:",
    ),
    "the answer's beginning": (
        {"messages": [USER, {"role": "assistant", "content": "The best is ("}]},
        "[user:Hi][assistant:The best is (",
    ),
    "an empty message": ({"messages": [{"role": "user", "content": []}]}, "[user:][assistant:"),
    "a system message on the way": (
        {"messages": [USER, {"role": "system", "content": "Hurry."}]},
        "[user:Hi][system:Hurry.][assistant:",
    ),
    "tools that must not be used": ({"tools": [WEATHER], "tool_choice": {"type": "none"}}, "[user:Hi][assistant:"),
    "results": (
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Wait."},
                        {"type": "tool_use", "id": "t1", "name": "w", "input": {"city": "Rome"}},
                        {"type": "tool_use", "id": "t2", "name": "w", "input": {"city": "Bonn"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "rain"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "t2",
                            "content": [{"type": "text", "text": "down"}],
                            "is_error": True,
                        },
                        {"type": "text", "text": "So?"},
                    ],
                },
            ]
        },
        "[user:Hi][assistant:Wait.w(Rome)w(Bonn)][tool:rain<-w][tool:Error: down<-w][user:So?][assistant:",
    ),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts(name: str) -> None:
    fields, wanted = PROMPTS[name]
    api = Api(template=TOOL_TEMPLATE)
    message = api.message(**fields)
    assert api.prompt() == wanted
    counted = {name: value for name, value in (HELLO | fields).items() if name != "max_tokens"}
    answer = api.http.post("/v1/messages/count_tokens", json=counted)
    assert answer.json() == {"input_tokens": message["usage"]["input_tokens"]}


def test_an_answer_can_be_sent_back_as_it_is() -> None:
    api = Api(UP_TO_MARK, CALL, NO_MORE)
    message = api.streamed(tools=[WEATHER])
    again = Api(template=TOOL_TEMPLATE.replace(".city", ".place"))
    used = message.content[1]
    assert used.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": used.id, "content": "rain"}
    again.streamed(messages=[USER, message.to_param(), {"role": "user", "content": [result]}])
    assert "[assistant:Let me see.\nweather(Rome)][tool:rain<-weather]" in again.prompt()


def test_an_output_format_is_a_constraint() -> None:
    ours, theirs = Api(), Api()
    ours.message(guided_json=PLACE)
    theirs.message(output_config={"format": {"type": "json_schema", "schema": PLACE}})
    assert ours.engine.submitted[0].controller is not None
    assert theirs.engine.submitted[0].controller == ours.engine.submitted[0].controller
    assert theirs.engine.submitted[0].argument == ours.engine.submitted[0].argument


def test_claude_code_sends_thoughts_back() -> None:
    template = "{% for m in messages %}[{{ m.role }}<{{ m.reasoning_content or '' }}>{{ m.content }}]{% endfor %}"
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eHl6"},
        {"type": "text", "text": "Hello"},
    ]
    api = Api(says("a"), template=template)
    api.message(messages=[USER, {"role": "assistant", "content": blocks}, USER])
    assert vocabulary().decode(api.engine.submitted[0].prompt) == "[user<>Hi][assistant<Hm.>Hello][user<>Hi]"


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_has_the_id_of_its_request(stream: bool) -> None:
    answer = Api(fails(wire.Failure("unavailable", "no engine"))).post(stream=stream)
    assert answer.json()["request_id"] == answer.headers["request-id"]
    late = Api(fails(wire.Failure("unavailable", "no engine"), "a")).post(stream=True)
    last = json.loads(late.text.strip().rpartition("data: ")[2])
    assert last["request_id"] == late.headers["request-id"]


def test_failures_before_the_first_event_have_their_status() -> None:
    dead = wire.Failure("runtime_died", "the runtime died")
    for stream in (False, True):
        answer = Api(fails(wire.Failure("unavailable", "the engine died"))).post(stream=stream)
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "overloaded_error"
        answer = Api(fails(dead)).post(stream=stream)
        assert answer.status_code >= 500
        assert answer.json()["type"] == "error"


def test_a_failure_on_the_way_is_an_event() -> None:
    api = Api(fails(wire.Failure("unavailable", "the engine died"), "Hel"))
    *_, delta, error = events(api.post(stream=True).text)
    assert delta["delta"] == {"type": "text_delta", "text": "Hel"}
    assert error.pop("request_id")
    assert error == {"type": "error", "error": {"type": "overloaded_error", "message": "the engine died"}}
    with pytest.raises(anthropic.APIStatusError, match="the engine died"):
        api.streamed()
    assert api.admission.num_admitted == 0


def test_not_streamed_a_failure_on_the_way_is_a_status() -> None:
    assert Api(fails(wire.Failure("unavailable", "the engine died"), "Hel")).post().status_code == 503


def test_another_model_is_not_found() -> None:
    body = {"model": "claude", "messages": [USER]}
    for path, more in (("", {"max_tokens": 1}), ("/count_tokens", {})):
        answer = Api().http.post(f"/v1/messages{path}", json=body | more)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


def test_a_full_queue_is_429() -> None:
    api = Api()
    api.admission.num_admitted = api.admission.capacity
    answer = api.post()
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["type"] == "rate_limit_error"


def test_numbers_stay_as_they_were_said() -> None:
    number = "1" * 40
    message = Api(says(f'{{"name":"weather","arguments":{{"place":[{number}, 1e999]}}}}')).message(
        tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"}
    )
    assert message["content"][0]["input"] == {"place": [int(number), float("inf")]}


def test_a_stream_that_is_left_ends_its_sequence() -> None:
    """At once, not when the garbage is collected."""
    closed = False

    async def turn() -> AsyncGenerator[Delta, None]:
        nonlocal closed
        try:
            yield Text("a")
            yield Text("b")
        finally:
            closed = True

    async def leave() -> None:
        events = streamed(turn(), {}, MessageEnding(max_tokens=5))
        await anext(events)
        await events.aclose()
        assert closed

    asyncio.run(leave())


@anthropic.beta_tool
def weather(place: str) -> str:
    """The weather of a place."""
    return f"rain in {place}"


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdks_tool_runner_calls_the_tool_and_goes_on(stream: bool) -> None:
    """The tool runner first asks for a thread. The error makes the tool runner send whole conversations."""
    api = Api(UP_TO_MARK, CALL, NO_MORE, says("It rains."))
    body: Any = {**HELLO, "tools": [weather], "stream": stream}
    answer = api.sdk.beta.messages.tool_runner(**body).until_done()
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].text == "It rains."
    assert "rain in Rome" in api.prompt(-1)


def test_the_sdk_finds_the_id_of_a_request() -> None:
    api = Api()
    message = api.sdk.messages.create(**HELLO, extra_headers={"x-request-id": "mine"})
    assert message._request_id == "mine"
    with pytest.raises(anthropic.NotFoundError) as failed:
        api.sdk.messages.create(**(HELLO | {"model": "x"}), extra_headers={"x-request-id": "mine"})
    assert failed.value.request_id == "mine"
    assert isinstance(failed.value.body, dict)
    assert failed.value.body["request_id"] == "mine"


def test_headers_change_nothing() -> None:
    """A beta acts through its fields only, and unknown fields are refused."""
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "fast-mode-2026-02-01"}
    assert Api().http.post("/v1/messages", json=HELLO, headers=headers).status_code == 200
