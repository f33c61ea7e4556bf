"""The parameters of the Anthropic protocol: each of the official SDK is honoured, or refused by name."""

import re
import typing
from collections.abc import Mapping

import pytest
from anthropic.types import message_count_tokens_params, message_create_params

from aici_engine.events import FinishReason
from aici_engine.server.protocols.anthropic.schema import CountRequest, MessagesRequest
from tests.support.anthropic_api import HELLO, PLACE, USER, WEATHER, Api, Json
from tests.support.fake_engine import says


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
