"""`POST /v1/responses` over a scripted engine. The official SDK's types are the oracle of every object and event."""

import json
from typing import Any, get_type_hints

import openai
import pytest
from openai.types.responses import response_create_params

from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from tests.support.fake_engine import fails, says
from tests.support.openai_api import Api, Json
from tests.support.openai_strict import strict_event, strict_response

PATH = "/v1/responses"
HELLO: Json = {"input": "Hi"}
FUNCTION: Json = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    "strict": True,
}
CALL = says('{"name":"weather",', '"arguments":{"pl', 'ace":"Rome"}', "}")
UP_TO_MARK = says("Let me see.", reason=FinishReason.STOP_STRING, stop="<tool_call>")
NO_MORE = says("")


def created(api: Api, **fields: Any) -> Json:
    response = api.answer(PATH, HELLO | fields)
    strict_response(response)
    return response


def streamed(api: Api, **fields: Any) -> list[Json]:
    """Return the events of a stream. Each is of the SDK's type, in order, and under its name."""
    answer = api.post(PATH, {**HELLO, **fields, "stream": True})
    assert answer.status_code == 200, answer.text
    *frames, rest = answer.text.split("\n\n")
    assert rest == ""
    events = []
    for number, frame in enumerate(frames):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        strict_event(event)
        assert (name, event["sequence_number"]) == (f"event: {event['type']}", number)
        events.append(event)
    return events


def plain(value: Any) -> Any:
    """Return a value without ids and times, which differ from answer to answer."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in ("id", "call_id", "created_at", "completed_at")}
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_a_response() -> None:
    api = Api(says("Hello", " there", num_cached=5))
    response = created(api, instructions="Be kind.", metadata={"a": "b"}, max_output_tokens=20, temperature=0)
    num_tokens = len(api.engine.submitted[0].prompt)
    assert response["id"].startswith("resp_")
    assert response["output"] == [
        {
            "id": response["output"][0]["id"],
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello there", "annotations": [], "logprobs": []}],
        }
    ]
    assert response["usage"] == {
        "input_tokens": num_tokens,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": num_tokens + 2,
    }
    shown = {name: response[name] for name in ("status", "model", "instructions", "metadata", "max_output_tokens")}
    assert shown == {
        "status": "completed",
        "model": "it",
        "instructions": "Be kind.",
        "metadata": {"a": "b"},
        "max_output_tokens": 20,
    }
    assert api.service.admission.num_admitted == 0


def test_the_sdk_reads_it() -> None:
    api = Api()
    assert api.sdk.responses.create(model="default", input="Hi").output_text == "Hello there"
    with api.sdk.responses.stream(model="default", input="Hi") as stream:
        assert stream.get_final_response().output_text == "Hello there"
    assert api.sdk.responses.input_tokens.count(model="default", input="Hi").input_tokens == len(
        api.engine.submitted[0].prompt
    )


def test_a_stream_event_by_event() -> None:
    events = streamed(Api())
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    assert [event["delta"] for event in events[4:6]] == ["Hello", " there"]
    assert {event["item_id"] for event in events[3:8]} == {events[2]["item"]["id"]}
    assert events[-1]["response"]["output"] == [events[-2]["item"]]


@pytest.mark.parametrize(
    "scripts", [[], [UP_TO_MARK, CALL, NO_MORE], [says("Hel", reason=FinishReason.LENGTH)], [says("")]]
)
def test_a_stream_ends_with_the_response_that_is_not_streamed(scripts: list[Any]) -> None:
    tools = [FUNCTION] if len(scripts) > 1 else []
    whole = created(Api(*scripts), tools=tools)
    last = streamed(Api(*scripts), tools=tools)[-1]
    assert last["type"] == f"response.{whole['status']}"
    assert plain(last["response"]) == plain(whole)


def test_a_limit_makes_it_incomplete() -> None:
    response = created(Api(says("Hel", reason=FinishReason.LENGTH)), max_output_tokens=1)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete"


def test_a_call() -> None:
    api = Api(UP_TO_MARK, CALL, NO_MORE)
    message, call = created(api, tools=[FUNCTION])["output"]
    assert message["content"][0]["text"] == "Let me see."
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", '{"place":"Rome"}')
    events = streamed(Api(UP_TO_MARK, CALL, NO_MORE), tools=[FUNCTION])
    gained = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(gained) == '{"place":"Rome"}'
    [done] = [e for e in events if e["type"] == "response.function_call_arguments.done"]
    assert (done["arguments"], done["output_index"]) == ('{"place":"Rome"}', 1)


def test_a_failure_after_the_first_event_is_the_last_event() -> None:
    failure = wire.Failure("runtime_died", "gone")
    events = streamed(Api(fails(failure, "Hel")))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"
    early = Api(fails(failure)).post(PATH, HELLO | {"stream": True})
    assert early.status_code == 503


def test_log_probabilities() -> None:
    for asked in ({"top_logprobs": 1}, {"include": ["message.output_text.logprobs"], "top_logprobs": 1}):
        response = created(Api(), **asked)
        entries = response["output"][0]["content"][0]["logprobs"]
        assert [entry["logprob"] for entry in entries] == [-0.5, -0.5]
        assert [len(entry["top_logprobs"]) for entry in entries] == [1, 1]
        deltas = [e for e in streamed(Api(), **asked) if e["type"] == "response.output_text.delta"]
        assert [entry["logprob"] for event in deltas for entry in event["logprobs"]] == [-0.5, -0.5]
    assert Api().sdk.responses.create(model="it", input="Hi").output[0].content[0].logprobs == []


SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "maxlength": 1}


def test_a_format() -> None:
    api = Api(says('{"a": 1}'))
    form = {"type": "json_schema", "name": "it", "schema": SCHEMA, "strict": True}
    response = created(api, text={"format": form})
    assert response["text"]["format"] == form
    assert api.engine.submitted[0].controller is not None
    assert response["warnings"]
    answer = api.post(PATH, HELLO | {"text": {"format": form}})
    assert json.loads(answer.headers["aici-warnings"]) == response["warnings"]
    assert streamed(api, text={"format": form})[-1]["response"]["warnings"] == response["warnings"]
    assert "warnings" not in created(api, text={"format": {"type": "json_object"}})
    created(api, guided_regex="a+")
    assert "a+" in str(api.engine.submitted[-1].argument)


def test_a_format_beside_tools() -> None:
    text = {"format": {"type": "json_schema", "name": "it", "schema": SCHEMA}}
    document = created(Api(says('{"a": 1}')), text=text, tools=[FUNCTION])
    assert document["output"][0]["content"][0]["text"] == '{"a": 1}'
    [call] = created(Api(says("<tool_call>"), CALL, NO_MORE), text=text, tools=[FUNCTION])["output"]
    assert call["type"] == "function_call"
    chosen = {"type": "function", "name": "weather"}
    [call] = created(Api(CALL), text=text, tools=[FUNCTION], tool_choice=chosen)["output"]
    assert call["type"] == "function_call"


def refused(status: int, param: str, **fields: Any) -> Any:
    return pytest.param(fields, status, param, id="-".join(fields))


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        refused(400, "background", background=True),
        refused(400, "conversation", conversation="conv_1"),
        refused(400, "prompt", prompt={"id": "p"}),
        refused(400, "surprise", surprise=1),
        refused(400, "previous_response_id", previous_response_id="resp_none"),
        refused(400, "input", input=[]),
        refused(400, "input", input=[{"type": "computer_call"}]),
        refused(400, "input.0.message.content", input=[{"role": "user", "content": [{"type": "input_image"}]}]),
        refused(400, "input.0.id", input=[{"type": "item_reference", "id": "msg_none"}]),
        refused(400, "tools", tools=[{"type": "web_search"}]),
        refused(400, "tools", tools=[FUNCTION, FUNCTION]),
        refused(400, "tool_choice", tool_choice="required"),
        refused(400, "tool_choice", tool_choice={"type": "function", "name": "f"}),
        refused(400, "tool_choice", tool_choice={"type": "mcp", "server_label": "s"}),
        refused(400, "text.format", text={"format": {"type": "grammar"}}),
        refused(400, "text.format.schema", text={"format": {"type": "json_schema", "name": "it"}}),
        refused(400, "text.format", guided_regex="a", text={"format": {"type": "json_object"}}),
        refused(400, "guided_regex", guided_regex="a", tools=[FUNCTION]),
    ],
)
def test_refused_by_name(fields: Json, status: int, param: str) -> None:
    assert Api().refusal(PATH, HELLO | fields)[::2] == (status, param)


def test_errors_of_the_sdk() -> None:
    api = Api()
    with pytest.raises(openai.NotFoundError):
        api.sdk.responses.create(model="another", input="Hi")
    with pytest.raises(openai.BadRequestError):
        api.sdk.responses.create(model="it", input="Hi", background=True)


REFUSED: Json = {
    "access_programs": {"cyber": "standard"},
    "background": True,
    "background_options": {"completion_window": "2h"},
    "context_management": [{"type": "compaction"}],
    "conversation": "conv_1",
    "image": {"context_compression": "auto"},
    "moderation": {"model": "m"},
    "prompt": {"id": "p"},
}
NO_EFFECT: Json = {
    "max_tool_calls": 3,
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "low"},
    "safety_identifier": "s",
    "service_tier": "flex",
    "user": "me",
}
HONOURED = (
    "include input instructions max_output_tokens model parallel_tool_calls previous_response_id store stream"
    " stream_options temperature text tool_choice tools top_logprobs top_p truncation"
)


def test_every_parameter_of_the_sdk_is_honoured_or_refused_by_name() -> None:
    hints = get_type_hints(response_create_params.ResponseCreateParamsNonStreaming)
    assert set(hints) == {*REFUSED, *NO_EFFECT, *HONOURED.split()}
    for name, value in REFUSED.items():
        status, _, param = Api().refusal(PATH, HELLO | {name: value})
        assert (status, param) == (400, name)
    assert plain(created(Api(), **NO_EFFECT)["output"]) == plain(created(Api())["output"])
