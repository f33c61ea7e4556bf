"""The Anthropic protocol through the official SDK, over a scripted engine."""

import asyncio
import json
import re
import typing
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, message_count_tokens_params, message_create_params
from starlette.testclient import TestClient

from aici_engine.events import FinishReason
from aici_engine.server.api.app import create_app
from aici_engine.server.link import wire
from aici_engine.server.protocols.anthropic.response import MessageEnding, streamed
from aici_engine.server.protocols.anthropic.schema import CountRequest, MessagesRequest
from aici_engine.server.protocols.chat.turn import Delta, Text
from aici_engine.server.service.admission import Principal
from tests.support.fake_engine import Script, fails, says
from tests.support.fake_service import TOOL_TEMPLATE, fake_service, vocabulary

Json = dict[str, Any]

USER: Json = {"role": "user", "content": "Hi"}
HELLO: Json = {"model": "it", "max_tokens": 16, "messages": [USER]}
PLACE: Json = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER: Json = {"name": "weather", "description": "of a place", "input_schema": PLACE}
CALL = says('{"name":"weather",', '"arguments":{"pl', 'ace":"Rome"}', "}")
NO_MORE = says("")
UP_TO_MARK = says("Let me see.\n", reason=FinishReason.STOP_STRING, stop="<tool_call>")


class Api:
    """The server over `scripts`, by raw HTTP and by the SDK."""

    def __init__(self, *scripts: Script, template: str | None = None) -> None:
        service, self.engine = fake_service(*scripts, template=template)
        self.http = TestClient(create_app(service), raise_server_exceptions=False)
        self.admission = service.admission
        self.sdk = anthropic.Anthropic(http_client=self.http, base_url="http://aici", api_key="none", max_retries=0)

    def post(self, **fields: object) -> httpx2.Response:
        return self.http.post("/v1/messages", json=HELLO | fields)

    def message(self, **fields: object) -> Json:
        answer = self.post(**fields)
        assert answer.status_code == 200, answer.text
        message: Json = answer.json()
        return message

    def streamed(self, **fields: object) -> Message:
        with self.sdk.messages.stream(**(HELLO | fields)) as stream:
            return typing.cast("Message", stream.get_final_message())

    def refusal(self, **fields: object) -> str:
        """Return the message of the status 400 for `fields`; the engine gets no request."""
        answer = self.post(**fields)
        assert answer.status_code == 400, answer.text
        body = answer.json()
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        assert not self.engine.submitted
        return str(body["error"]["message"])

    def prompt(self, number: int = 0) -> str:
        names = vocabulary()
        tokens = self.engine.submitted[number].prompt
        return "".join(names.decode([token]) or names.name_of(token) for token in tokens)


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


def test_parameters_reach_the_engine() -> None:
    api = Api()
    api.message(temperature=0.5, top_p=0.9, top_k=7, stop_sequences=["a", "b"])
    sampling = api.engine.submitted[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.stop, sampling.max_tokens) == (("a", "b"), 16)


def test_without_parameters_nothing_is_cut_off() -> None:
    api = Api()
    api.message()
    sampling = api.engine.submitted[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.stop) == (1.0, 1.0, 0, ())


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


IMAGE: Json = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "no"}


WRONG: Mapping[str, tuple[Json, str]] = {
    "image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content.*image.*not supported"),
    "document": ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "type document"),
    "user's thinking": (
        {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "Hm."}]}]},
        "a user message cannot have a thinking block",
    ),
    "image in a result": (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [IMAGE]}]}]},
        "type image",
    ),
    "image in system": ({"system": [IMAGE]}, "system: .*type image"),
    "citations": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "citations": []}]}]},
        "citations is not supported",
    ),
    "thinking": ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens: .*greater than or"),
    "mcp": ({"mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}]}, "mcp_servers is not supported"),
    "output_format": ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format is not supported"),
    "effort": ({"output_config": {"effort": "huge"}}, "output_config.effort: .*'low'"),
    "temperature": ({"temperature": 1.5}, "temperature: .*less than or equal to 1"),
    "max_tokens": ({"max_tokens": -1}, "max_tokens: .*greater than or equal to 0"),
    "stops": ({"stop_sequences": [""]}, "stop_sequences.0: .*at least 1 character"),
    "no messages": ({"messages": []}, "messages: .*at least 1 item"),
    "server tool": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "tools.0.type: tools of type web_search_20250305 are not supported",
    ),
    "computer": ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools of type bash_20250124"),
    "tool name": ({"tools": [WEATHER | {"name": "the weather"}]}, "tools.0.name"),
    "twice": ({"tools": [WEATHER, WEATHER]}, "two tools have the same name"),
    "examples": ({"tools": [WEATHER | {"input_examples": [{}]}]}, "input_examples is not supported"),
    "deferred": ({"tools": [WEATHER | {"defer_loading": True}]}, "defer_loading must be False"),
    "no object": ({"tools": [WEATHER | {"input_schema": {"type": "string"}}]}, "input_schema: .*the type"),
    "bad schema": ({"tools": [WEATHER | {"input_schema": {"minLength": "x"}}]}, "tool weather: .*minLength"),
    "unknown tool": ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "no tool x"),
    "any of none": ({"tool_choice": {"type": "any"}}, "tool_choice any requires tools"),
    "unanswered": (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "w", "input": {}}]}]},
        "add a message with the results",
    ),
    "only an answer's beginning": ({"messages": [{"role": "assistant", "content": []}]}, "there are no messages"),
    "whose call": (
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "w", "input": {}}]}]},
        "messages.0.content.0: a user message cannot have a tool_use block",
    ),
    "result of nothing": (
        {"messages": [{"role": "user", "content": [RESULT]}]},
        "'no', but no message before it has that call",
    ),
    "constraints": ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex and guided_choice together"),
    "format and constraint": (
        {"guided_regex": "a", "output_config": {"format": {"type": "json_schema", "schema": {}}}},
        "guided_regex and output_config.format together",
    ),
    "constraint and tools": ({"guided_regex": "a", "tools": [WEATHER]}, "guided_regex and tools together"),
    "bad regex": ({"guided_regex": "("}, "guided_regex: "),
    "bad format": (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "text"}}}},
        "output_config.format: ",
    ),
    "too long": (
        {"messages": [{"role": "user", "content": "a b " * 5000}]},
        r"has \d{5} tokens: a sequence may have 2048",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals_and_their_reasons(name: str) -> None:
    fields, words = WRONG[name]
    message = Api().refusal(**fields, stream=True)
    assert re.search(words, message, re.DOTALL), message


@pytest.mark.parametrize("field", ["model", "messages", "max_tokens"])
def test_missing_fields(field: str) -> None:
    body = {name: value for name, value in HELLO.items() if name != field}
    answer = Api().http.post("/v1/messages", json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, f"the parameter {field} is missing")


@pytest.mark.parametrize(
    "fields", [{"max_tokens": "5"}, {"messages": [{"role": "user", "content": 1}]}, {"stream": "yes"}, {"system": 5}]
)
def test_wrong_types_are_422(fields: Json) -> None:
    answer = Api().post(**fields)
    assert (answer.status_code, answer.json()["error"]["type"]) == (422, "invalid_request_error")


# A value per parameter of the SDK; True: accepted.
PARAMETERS: Mapping[str, list[tuple[object, bool]]] = {
    "max_tokens": [(0, True), (5, True), (-1, False)],
    "messages": [([USER], True)],
    "model": [("it", True)],
    "cache_control": [({"type": "ephemeral", "ttl": "1h"}, True), (None, True)],
    "container": [("c1", False), (None, True)],
    "diagnostics": [({"previous_message_id": None}, False), (None, True)],
    "inference_geo": [("eu", False), (None, True)],
    "metadata": [({"user_id": "u"}, True)],
    "output_config": [({"format": {"type": "json_schema", "schema": PLACE}}, True), ({"effort": "low"}, True)],
    "service_tier": [("auto", True), ("standard_only", True), ("batch", False)],
    "speed": [("standard", True), ("fast", True), ("slow", False)],
    "stop_sequences": [(["x"], True)],
    "system": [("x", True), ([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}], True)],
    "thinking": [({"type": "disabled"}, True), ({"type": "adaptive"}, True), ({"type": "enabled"}, True)],
    "tool_choice": [({"type": "auto"}, True), ({"type": "none"}, True)],
    "tools": [([WEATHER | {"type": "custom", "strict": True}], True), ([{"type": "memory_20250818"}], False)],
    "stream": [(False, True), (True, True)],
}
HEADERS = {"user_profile_id", "workspace_id"}


def parameters_of(kind: type) -> set[str]:
    return set(typing.get_type_hints(kind)) - HEADERS


def test_every_parameter_of_the_sdk_is_known() -> None:
    """A new parameter of a new SDK needs a decision in this table."""
    kinds = (
        message_create_params.MessageCreateParamsNonStreaming,
        message_create_params.MessageCreateParamsStreaming,
    )
    assert set().union(*map(parameters_of, kinds)) == PARAMETERS.keys()
    assert PARAMETERS.keys() <= MessagesRequest.model_fields.keys()
    counted = parameters_of(message_count_tokens_params.MessageCountTokensParams)
    assert counted | {"context_management"} == CountRequest.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "value", "accepted"), [(name, *case) for name, cases in PARAMETERS.items() for case in cases]
)
def test_every_parameter_is_honoured_or_refused_by_name(name: str, value: object, accepted: bool) -> None:
    api = Api(says("a", reason=FinishReason.LENGTH) if name == "max_tokens" else says("a"))
    if accepted:
        assert api.post(**{name: value}).status_code == 200
    else:
        leaf = "type" if name == "tools" else name
        assert leaf in api.refusal(**{name: value})


CLAUDE_CODE: Json = {
    "thinking": {"type": "adaptive", "display": "omitted"},
    "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "u"},
}


def test_claude_code_sends_hints_about_thinking() -> None:
    hinted, plain = Api(says("a")), Api(says("a"))
    message = hinted.message(**CLAUDE_CODE)
    assert message["context_management"] == {"applied_edits": []}
    assert "context_management" not in plain.message()
    assert hinted.engine.submitted == plain.engine.submitted
    budget = {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert hinted.message(**budget)["content"] == plain.message()["content"]
    counted = hinted.http.post("/v1/messages/count_tokens", json={"model": "it", "messages": [USER], **budget})
    assert counted.status_code == 200


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
    api.admission.capacity = 1
    with api.admission.admit(Principal(), 1):
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
