"""Conversations that the server keeps, through the official SDK."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from tests.support.fake_engine import FakeEngine, says
from tests.support.fake_service import TOOL_TEMPLATE, service_over, vocabulary
from tests.support.openai_api import Api, Json
from tests.support.openai_strict import strict_item, strict_response

PATH = "/v1/responses"
WEATHER: Json = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = says('{"name":"weather",', '"arguments":{"city":"Rome"}', "}")


def prompt(api: Api, number: int = -1) -> str:
    names = vocabulary()
    return "".join(names.decode([t]) or names.name_of(t) for t in api.engine.submitted[number].prompt)


def test_a_conversation_goes_on() -> None:
    api = Api(says("Hello"), template=TOOL_TEMPLATE)
    first = api.sdk.responses.create(model="it", input="Hi", instructions="Be brief.")
    second = api.sdk.responses.create(model="it", input="Go on", previous_response_id=first.id)
    assert prompt(api, 0) == "[system:Be brief.][user:Hi][assistant:"
    assert prompt(api) == "[user:Hi][assistant:Hello][user:Go on][assistant:"  # without the instructions
    assert second.previous_response_id == first.id
    assert api.sdk.responses.retrieve(second.id) == second
    strict_response(api.http.get(f"{PATH}/{second.id}").json())


def test_calls_and_their_outputs() -> None:
    api = Api(CALL, says(""), says("Warm"), template=TOOL_TEMPLATE)
    first = api.sdk.responses.create(model="it", input="Rome?", tools=[WEATHER], tool_choice="required")
    [call] = first.output
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "20"}
    second = api.sdk.responses.create(model="it", input=[output], previous_response_id=first.id)
    assert prompt(api) == "[user:Rome?][assistant:weather(Rome)][tool:20<-weather][assistant:"
    echoed = [{"role": "user", "content": "Rome?"}, call.to_dict(), output]
    again = api.sdk.responses.create(model="it", input=echoed, store=False)
    assert prompt(api) == prompt(api, -2)
    items = api.http.get(f"{PATH}/{second.id}/input_items", params={"order": "asc"}).json()["data"]
    assert [strict_item(item).type for item in items] == ["message", "function_call", "function_call_output"]
    with pytest.raises(openai.NotFoundError):
        api.sdk.responses.retrieve(again.id)


def test_pages_of_items() -> None:
    api = Api()
    items: Any = [{"role": "user", "content": f"{number}"} for number in range(7)]
    response = api.sdk.responses.create(model="it", input=items)
    pages = api.sdk.responses.input_items.list(response.id, limit=3, order="asc")
    assert [item.content[0].text for item in pages] == [str(number) for number in range(7)]
    newest = api.sdk.responses.input_items.list(response.id, limit=1)
    assert newest.data[0].content[0].text == "6"
    assert newest.has_more
    for query in ("limit=0", "limit=101", "order=up", "after=none", "surprise=1"):
        assert api.http.get(f"{PATH}/{response.id}/input_items?{query}").status_code in (400, 422), query


def test_every_item_is_kept_as_the_sdk_lists_it() -> None:
    api = Api(template=TOOL_TEMPLATE)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]}
    items: list[Json] = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind. "}]},
        {"type": "message", "role": "user", "content": "A", "status": "completed"},
        {**reasoning, "encrypted_content": "x", "content": [{"type": "reasoning_text", "text": "t"}]},
        reasoning,
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "B", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "C"},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "20"}]},
        {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "1+1"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "2"},
    ]
    response = api.sdk.responses.create(model="it", input=items)  # type: ignore[arg-type]
    assert prompt(api) == (
        "[system:Be kind. ][user:A][assistant:BCweather(Rome)][tool:20<-weather]"
        "[assistant:run()][tool:2<-run][assistant:"
    )
    kept = api.http.get(f"{PATH}/{response.id}/input_items", params={"order": "asc"}).json()["data"]
    assert [strict_item(item).type for item in kept] == [item.get("type", "message") for item in items]
    reference = [{"type": "item_reference", "id": "msg_1"}, {"id": kept[1]["id"]}, {"role": "user", "content": "D"}]
    api.sdk.responses.create(model="it", input=reference)  # type: ignore[arg-type]
    assert prompt(api) == "[assistant:BC][user:A][user:D][assistant:"


def test_a_deleted_response_is_gone() -> None:
    api = Api()
    first = api.sdk.responses.create(model="it", input="Hi")
    second = api.sdk.responses.create(model="it", input="Go on", previous_response_id=first.id)
    assert api.http.delete(f"{PATH}/{first.id}").json() == {"id": first.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        api.sdk.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match=f"{first.id}, which comes before {second.id}"):
        api.sdk.responses.create(model="it", input="Go on", previous_response_id=second.id)


def test_cancel_says_that_it_is_too_late() -> None:
    api = Api()
    response = api.sdk.responses.create(model="it", input="Hi")
    with pytest.raises(openai.BadRequestError, match="has ended"):
        api.sdk.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError):
        api.sdk.responses.cancel("resp_none")


def test_a_key_sees_only_its_own(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[keys.ann]\nkey = "sk-ann"\n[keys.bob]\nkey = "sk-bob"\n')
    file.chmod(0o600)
    http = TestClient(create_app(service_over(FakeEngine()), keys=Keys(file)))

    def sdk(key: str) -> openai.OpenAI:
        return openai.OpenAI(http_client=http, base_url="http://aici/v1", api_key=key, max_retries=0)

    response = sdk("sk-ann").responses.create(model="it", input="Hi")
    assert sdk("sk-ann").responses.retrieve(response.id) == response
    with pytest.raises(openai.NotFoundError):
        sdk("sk-bob").responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError):
        sdk("sk-bob").responses.create(model="it", input="Hi", previous_response_id=response.id)


def test_a_stream_is_kept_before_its_last_event() -> None:
    api = Api()
    stream = api.sdk.responses.create(model="it", input="Hi", stream=True)
    for event in stream:
        if event.type == "response.completed":
            assert json.loads(api.http.get(f"{PATH}/{event.response.id}").text)["status"] == "completed"
            return
    raise AssertionError("no end")


def test_a_call_that_was_cut_short_is_continued_as_far_as_it_went() -> None:
    api = Api(template=TOOL_TEMPLATE)
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rom'}
    api.sdk.responses.create(model="it", input=[call])  # type: ignore[list-item]
    assert "weather(Rom)" in prompt(api)


def test_arguments_that_are_no_object_are_refused() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '["city"]'}
    with pytest.raises(openai.BadRequestError, match="c1"):
        Api(template=TOOL_TEMPLATE).sdk.responses.create(model="it", input=[call])  # type: ignore[list-item]


def test_a_conversation_that_is_too_long_loses_its_beginning() -> None:
    api = Api(template=TOOL_TEMPLATE)
    items: Any = [{"role": "developer", "content": "Be kind."}]
    items += [{"role": "user", "content": f"{number} " + "word " * 300} for number in range(9)]
    with pytest.raises(openai.BadRequestError, match="tokens"):
        api.sdk.responses.create(model="it", input=items)
    api.sdk.responses.create(model="it", input=items, truncation="auto")
    assert prompt(api).startswith("[system:Be kind.][user:6 word")
    with pytest.raises(openai.BadRequestError, match="tokens"):
        api.sdk.responses.create(model="it", input="word " * 3000, truncation="auto")
