"""Every protocol takes `schema_options`, and says which parts of a schema are not enforced: header and body."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from aici_engine.events import FinishReason
from aici_engine.server.protocols.warnings import warning_headers
from tests.support.fake_engine import Script, says
from tests.support.lmtp import connected, run, tokens
from tests.support.openai_api import Api, Json

ODD: Json = {"type": "object", "properties": {"a": {"type": "integer", "maxlength": 3}}}
PLAIN: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
UNIQUE: Json = {"type": "object", "properties": {"a": {"pattern": "(a)\\1"}}}
WARNING = "not enforced: #/properties/a/maxlength: unknown keyword, one letter from maxLength"
CHAT: Json = {"model": "it", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
RESPONSES = "/v1/responses"


def tool(schema: Json, *, strict: bool = False) -> Json:
    return {"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}}


def form(schema: Json, *, strict: bool = False) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": strict}}


def chat(schema: Json) -> tuple[str, Json]:
    return "/v1/chat/completions", {**CHAT, "response_format": form(schema)}


def tools(schema: Json) -> tuple[str, Json]:
    return "/v1/chat/completions", {**CHAT, "tools": [tool(schema)], "tool_choice": "required"}


def completion(schema: Json) -> tuple[str, Json]:
    return "/v1/completions", {"prompt": "Hi", "guided_json": schema}


def message(schema: Json) -> tuple[str, Json]:
    return "/v1/messages", {**CHAT, "output_config": {"format": {"type": "json_schema", "schema": schema}}}


def message_tools(schema: Json) -> tuple[str, Json]:
    tools = [{"name": "f", "input_schema": schema}]
    return "/v1/messages", {**CHAT, "tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}


def response(schema: Json) -> tuple[str, Json]:
    return RESPONSES, {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}


def response_tools(schema: Json) -> tuple[str, Json]:
    tools = [{"type": "function", "name": "f", "parameters": schema, "strict": False}]
    return RESPONSES, {"input": "Hi", "tools": tools, "tool_choice": "required"}


def check(schema: Json) -> tuple[str, Json]:
    return "/v1/check", {"guided_json": schema}


REQUESTS: Mapping[str, Any] = {
    each.__name__: each for each in (chat, tools, completion, message, message_tools, response, response_tools, check)
}
CALL = says('{"name":"f",', '"arguments":{}', "}")


def scripts(kind: str) -> list[Script]:
    return [CALL, says("")] if "tools" in kind else []


def about(kind: str) -> str:
    return f"tool f: {WARNING}" if "tools" in kind else WARNING


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_is_not_enforced_is_in_the_header_and_in_the_body(kind: str) -> None:
    path, body = REQUESTS[kind](ODD)
    answer = Api(*scripts(kind)).post(path, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["warnings"] == [about(kind)]
    if kind != "check":
        assert json.loads(answer.headers["aici-warnings"]) == [about(kind)]
    path, body = REQUESTS[kind](PLAIN)
    plain = Api(*scripts(kind)).post(path, body)
    assert "aici-warnings" not in plain.headers
    assert plain.json().get("warnings", []) == []


@pytest.mark.parametrize("kind", [kind for kind in REQUESTS if kind != "check"])
@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True}}, {"n": 2}])
def test_a_stream_says_it_in_its_header_and_in_one_event_at_the_end(kind: str, more: Json) -> None:
    path, body = REQUESTS[kind](ODD)
    if more and path in ("/v1/messages", RESPONSES):
        return
    answer = Api(*(scripts(kind) * 2)).post(path, {**body, "stream": True, **more})
    assert json.loads(answer.headers["aici-warnings"]) == [about(kind)]
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    said = [event.get("response", event).get("warnings") for event in events]
    assert [each for each in said if each] == [[about(kind)]]
    assert said.index([about(kind)]) >= len(said) - 2  # Anthropic's last event is empty


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_strict_schema_refuses_and_lenient_drops(kind: str) -> None:
    path, body = REQUESTS[kind](ODD)
    refused = Api().post(path, {**body, "schema_options": {"strict_schema": True}})
    assert refused.status_code == 400
    assert "#/properties/a/maxlength" in refused.text
    path, body = REQUESTS[kind](UNIQUE)
    refused = Api().post(path, body)
    assert refused.status_code == 400
    assert "#/properties/a/pattern" in refused.text
    assert "schema_options" in refused.text
    dropped = Api(*scripts(kind)).post(path, {**body, "schema_options": {"lenient": True}})
    assert dropped.status_code == 200, dropped.text
    assert "#/properties/a/pattern" in dropped.json()["warnings"][0]


@pytest.mark.parametrize("kind", [kind for kind in REQUESTS if kind != "check"])
def test_every_option_reaches_the_guest(kind: str) -> None:
    path, body = REQUESTS[kind](PLAIN)
    options = {
        "whitespace": "none",
        "lenient": True,
        "strict_schema": True,
        "objects": "open",
        "property_order": "any",
    }
    api = Api(*scripts(kind))
    api.post(path, {**body, "schema_options": options})
    argument = json.loads(str(api.engine.submitted[0].argument))
    argument.pop("schema")
    assert argument == options
    api = Api(*scripts(kind))
    api.post(path, body)
    argument = json.loads(str(api.engine.submitted[0].argument))
    assert (argument["whitespace"], argument["objects"], argument["property_order"]) == ("spaced", "closed", "declared")


@pytest.mark.parametrize(
    "body",
    [{"response_format": form(PLAIN, strict=True)}, {"tools": [tool(PLAIN, strict=True)], "tool_choice": "required"}],
)
def test_strict_closes_objects(body: Json) -> None:
    api = Api(CALL, says(""))
    api.post("/v1/chat/completions", {**CHAT, **body, "schema_options": {"objects": "open"}})
    assert json.loads(str(api.engine.submitted[0].argument))["objects"] == "closed"


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("wrong", [{"lenint": True}, {"objects": "shut"}, {"lenient": "yes"}, 7])
def test_wrong_options_are_refused_by_name(kind: str, wrong: object) -> None:
    path, body = REQUESTS[kind](PLAIN)
    api = Api()
    answer = api.post(path, {**body, "schema_options": wrong})
    assert answer.status_code in (400, 422)
    assert "schema_options" in answer.text
    assert api.engine.submitted == []


def test_a_check_of_a_wrong_constraint_and_of_none() -> None:
    assert Api().post("/v1/check", {"guided_regex": "a("}).status_code == 400
    assert Api().post("/v1/check", {}).status_code == 400
    assert Api().answer("/v1/check", {"guided_regex": "a"}) == {"warnings": []}


def test_a_run_says_the_warnings_of_its_argument_in_its_last_event() -> None:
    body = {"controller": "json_schema", "controller_arg": {"schema": ODD}, "prompt": "Hi"}
    answer = Api(says("{}", reason=FinishReason.STOP)).post("/v1/run", body)
    assert json.loads(answer.headers["aici-warnings"]) == [WARNING]
    runs = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert [run.get("warnings") for run in runs][-1] == [WARNING]
    assert not any("warnings" in run for run in runs[:-1])


@run
async def test_lmtp_says_it_in_the_last_item_of_a_stream() -> None:
    async with connected(tokens(11, 9), tokens(11)) as client:
        await client.generate(1, guided_json=ODD, max_tokens=2)
        items = await client.stream(1)
        assert [item.get("warnings") for item in items] == [None, [WARNING]]
        await client.generate(2, guided_json=ODD, schema_options={"strict_schema": True})
        [refused] = await client.stream(2)
        assert "#/properties/a/maxlength" in refused["error"]
        await client.generate(3, guided_json=ODD, schema_options={"lenint": True})
        [refused] = await client.stream(3)
        assert "schema_options.lenint" in refused["error"]


def test_a_header_is_ascii_and_bounded() -> None:
    assert warning_headers([]) == {}
    assert warning_headers(["é\n"]) == {"aici-warnings": '["\\u00e9\\n"]'}
    many = warning_headers([f"{number} " + "x" * 100 for number in range(100)])["aici-warnings"]
    assert len(many) <= 4096
    assert json.loads(many)[-1] == "62 more: see the field `warnings` of the body"
    assert json.loads(warning_headers(["x" * 9999])["aici-warnings"]) == [
        "1 more: see the field `warnings` of the body"
    ]
