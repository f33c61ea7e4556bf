"""`/v1/chat/completions`: shapes, finish reasons, tools, log-probabilities, streamed and at once."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from starlette.testclient import TestClient

from aici_controllers.constraints import SPACED
from aici_controllers.schema_check import schema_argument
from aici_engine.events import FinishReason
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.link import wire
from aici_engine.server.protocols.openai.messages import ToolSpec, neutral_tools
from aici_engine.server.service.constraints import module_id
from tests.engine.server.gateway.test_api_keys import key_file
from tests.support.fake_engine import Script, fails, says, silent
from tests.support.fake_service import TOOL_TEMPLATE, fake_service, vocabulary
from tests.support.openai_api import Api, Json, events, samples

PATH = "/v1/chat/completions"
HELLO: Json = {"model": "it", "messages": [{"role": "user", "content": "Hi"}]}
CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}},
    {"type": "function", "function": {"name": "time", "strict": True}},
]
NAMED: Json = {"type": "function", "function": {"name": "weather"}}
CALL = says('{"name":"weather",', '"arguments":{"ci', 'ty":"Bonn"}', "}")
MARK = says("Wait. ", reason=FinishReason.STOP_STRING, stop="<tool_call>")
MORE, NO_MORE = says("\n<tool_call>\n"), says("")


def prompt_of(api: Api) -> str:
    names = vocabulary()
    tokens = api.engine.submitted[0].prompt
    return "".join(names.decode([token]) or names.name_of(token) for token in tokens)


def test_an_answer() -> None:
    answer = Api().answer(PATH, HELLO)
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    prompt_tokens = answer["usage"]["prompt_tokens"]
    assert answer == {
        "object": "chat.completion",
        "model": "it",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello there", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 2,
            "total_tokens": prompt_tokens + 2,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_the_events_of_a_stream() -> None:
    api = Api()
    answer = api.post(PATH, {**HELLO, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    assert len({(chunk.pop("id"), chunk.pop("created")) for chunk in parsed}) == 1
    deltas = [{"role": "assistant", "content": ""}, {"content": "Hello"}, {"content": " there"}, {}]
    assert parsed == [
        {
            "object": "chat.completion.chunk",
            "model": "it",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None if delta else "stop"}],
        }
        for delta in deltas
    ]


def test_usage_comes_last_if_it_is_asked_for() -> None:
    *chunks, last = Api().chunks(PATH, {**HELLO, "n": 2, "stream_options": {"include_usage": True}})
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == Api().answer(PATH, {**HELLO, "n": 2})["usage"]
    assert last["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(
    ("script", "reason", "text"),
    [
        (says("a", "b"), "stop", "ab"),
        (says("a", "b", reason=FinishReason.STOP), "stop", "ab"),
        (says("a", reason=FinishReason.STOP_STRING, stop="b"), "stop", "a"),
        (says("a", "b", reason=FinishReason.LENGTH), "length", "ab"),
        (says(), "stop", ""),
    ],
)
def test_how_an_answer_ends(script: Script, reason: str, text: str) -> None:
    [choice] = Api(script).answer(PATH, HELLO)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, reason)
    chunks = Api(script).chunks(PATH, HELLO)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    assert chunks[-1]["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(
    ("scripts", "asked", "content", "calls", "reason"),
    [
        ([says("No need.")], {}, "No need.", [], "stop"),
        ([MARK, CALL, NO_MORE], {}, "Wait. ", ["weather"], "tool_calls"),
        ([MARK, CALL, MORE, CALL, NO_MORE], {}, "Wait. ", ["weather", "weather"], "tool_calls"),
        ([MARK, CALL], {"parallel_tool_calls": False}, "Wait. ", ["weather"], "tool_calls"),
        ([CALL, NO_MORE], {"tool_choice": "required"}, None, ["weather"], "tool_calls"),
        ([CALL], {"tool_choice": NAMED}, None, ["weather"], "tool_calls"),
        ([says("text")], {"tool_choice": "none"}, "text", [], "stop"),
    ],
)
def test_tools_streamed_and_at_once(
    scripts: list[Script], asked: Json, content: str | None, calls: list[str], reason: str
) -> None:
    body: Any = {**HELLO, "tools": TOOLS, **asked}
    choice = Api(*scripts).sdk.chat.completions.create(**body).choices[0]
    with Api(*scripts).sdk.chat.completions.stream(**body) as stream:
        streamed = stream.get_final_completion().choices[0]
    for each in (choice, streamed):
        assert (each.message.content, each.finish_reason) == (content, reason)
        made = each.message.tool_calls or []
        assert [call.function.name for call in made if call.type == "function"] == calls
        assert {call.function.arguments for call in made if call.type == "function"} <= {'{"city":"Bonn"}'}
        assert len({call.id for call in made}) == len(calls)


def test_the_deltas_of_a_call() -> None:
    chunks = Api(CALL, NO_MORE).chunks(PATH, {**HELLO, "tools": TOOLS, "tool_choice": "required"})
    first, *rest = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert first.pop("id").startswith("call_")
    assert first == {"index": 0, "type": "function", "function": {"name": "weather", "arguments": ""}}
    assert "".join(call["function"]["arguments"] for call in rest) == '{"city":"Bonn"}'
    assert all(call.keys() == {"index", "function"} for call in rest)


def test_several_answers_each_have_their_index_and_their_seed() -> None:
    scripts = (says("a"), says("b", "c"), says("d"))
    api = Api(*scripts)
    choices = api.answer(PATH, {**HELLO, "n": 3, "seed": 7})["choices"]
    assert [(choice["index"], choice["message"]["content"]) for choice in choices] == [(0, "a"), (1, "bc"), (2, "d")]
    assert [submit.sampling.seed for submit in api.engine.submitted] == [7, 8, 9]
    texts = {0: "", 1: "", 2: ""}
    roles = []
    for chunk in Api(*scripts).chunks(PATH, {**HELLO, "n": 3}):
        [choice] = chunk["choices"]
        roles += [choice["index"]] if "role" in choice["delta"] else []
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert (sorted(roles), texts) == ([0, 1, 2], {0: "a", 1: "bc", 2: "d"})


def test_log_probabilities_are_of_tokens_whatever_their_bytes_are() -> None:
    vocab = vocabulary()
    arrow = vocab.encode("↩")
    assert len(arrow) > 1
    tokens = [*vocab.encode("Hi"), *arrow, vocab.eos_token]
    script = samples(*tokens, logprobs=[-0.25] * len(tokens), top=[[(tokens[0], -0.125)]] * len(tokens))
    body = {**HELLO, "logprobs": True, "top_logprobs": 1}
    api = Api(script)
    content = api.answer(PATH, body)["choices"][0]["logprobs"]["content"]
    assert api.engine.submitted[0].sampling.logprobs == 1
    # EOS is no content.
    assert b"".join(bytes(entry["bytes"]) for entry in content) == "Hi↩".encode()
    assert [entry["logprob"] for entry in content] == [-0.25] * (len(tokens) - 1)
    assert content[0]["token"] == "Hi"
    assert content[1]["token"] == "".join(f"\\x{byte:02x}" for byte in vocab.bytes_of(arrow[0]))
    assert content[1]["top_logprobs"] == [{"token": "Hi", "logprob": -0.125, "bytes": [72, 105]}]
    streamed = [
        entry
        for chunk in Api(script).chunks(PATH, body)
        if (logprobs := chunk["choices"][0]["logprobs"]) is not None
        for entry in logprobs["content"]
    ]
    assert streamed == content


@pytest.mark.parametrize(
    ("code", "status"),
    [("invalid_request_error", 400), ("not_found_error", 404), ("controller_error", 400), ("runtime_died", 503),
     ("timeout_error", 408), ("unavailable", 503), ("internal_error", 500)],
)  # fmt: skip
def test_a_failure_before_the_first_token_has_its_status(code: str, status: int) -> None:
    for stream in (False, True):
        answer = Api(fails(wire.Failure(code, "so it is", "do that"))).post(PATH, {**HELLO, "stream": stream})
        assert answer.status_code == status
        assert answer.json()["error"]["message"] == "so it is (do that)"


def test_a_failure_in_the_middle_is_an_event_and_the_end() -> None:
    api = Api(fails(wire.Failure("runtime_died", "it died"), "Hel", "lo"))
    answer = api.post(PATH, {**HELLO, "stream": True})
    assert answer.status_code == 200
    *chunks, last = map(json.loads, events(answer.text))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello"
    assert last == {
        "error": {"message": "it died", "type": "runtime_died", "param": None, "code": "server_is_overloaded"}
    }
    with pytest.raises(openai.APIError, match="it died"):
        list(api.sdk.chat.completions.create(**{**HELLO, "stream": True}))


def test_one_failing_answer_ends_all_answers() -> None:
    api = Api(silent, fails(wire.Failure("controller_error", "it trapped")))
    answer = api.post(PATH, {**HELLO, "n": 2})
    assert (answer.status_code, api.engine.aborted) == (400, [1])
    assert api.service.admission.num_admitted == 0


def test_a_full_queue_is_reported() -> None:
    for stream in (False, True):
        api = Api()
        answer = api.post(PATH, {**HELLO, "n": 9, "stream": stream})
        assert (answer.status_code, api.engine.submitted) == (400, [])
        api.service.admission.num_admitted = 8
        answer = api.post(PATH, {**HELLO, "stream": stream})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert api.service.admission.num_admitted == 8


# The client's history → the prompt that the model gets.
TALKS: dict[str, tuple[list[Json], str]] = {
    "roles": (
        [{"role": "developer", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
         {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}],
        "[system:S][user:a][assistant:b][user:cd]",
    ),
    "calls": (
        [{"role": "user", "content": "a"},
         {"role": "assistant", "tool_calls": [
             {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}]},
         {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "rain"}],
        "[user:a][assistant:weather(Bonn)][tool:rain<-weather]",
    ),
    "nulls": (
        [{"role": "user", "content": "a", "name": None},
         ChatCompletionMessage(role="assistant", content="b").model_dump(), {"role": "user", "content": ""}],
        "[user:a][assistant:b][user:]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TALKS)
def test_messages_as_the_model_sees_them(name: str) -> None:
    messages, seen = TALKS[name]
    api = Api(template=TOOL_TEMPLATE)
    api.answer(PATH, {"messages": messages})
    assert prompt_of(api) == seen + "[assistant:"


def test_the_models_answer_can_be_sent_back() -> None:
    sdk = Api(CALL, NO_MORE).sdk
    ask: Any = {**HELLO, "tools": TOOLS, "tool_choice": "required"}
    message = sdk.chat.completions.create(**ask).choices[0].message
    assert message.tool_calls is not None
    api = Api(template=TOOL_TEMPLATE)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
    again: Any = [*HELLO["messages"], message, result]
    api.sdk.chat.completions.create(model="it", messages=again)
    assert prompt_of(api) == "[user:Hi][assistant:weather(Bonn)][tool:sun<-weather][assistant:"


def test_tools_are_told_to_the_model_unless_it_may_not_use_them() -> None:
    for choice, told in (("auto", True), ("required", True), ("none", False)):
        api = Api(CALL, NO_MORE, template=TOOL_TEMPLATE)
        api.answer(PATH, {**HELLO, "tools": TOOLS, "tool_choice": choice})
        assert ("<tools>" in prompt_of(api)) is told


def schema(text: str) -> str:
    return schema_argument(text, SPACED).decode()


INTEGER: Json = {"type": "integer"}


@pytest.mark.parametrize(
    ("fields", "guest", "argument"),
    [
        ({"guided_regex": "a+"}, "regex", "a+"),
        ({"guided_choice": ["a", "b"]}, "choices", '["a","b"]'),
        ({"guided_json": INTEGER}, "json_schema", schema('{"type": "integer"}')),
        ({"guided_json": '{"type":"integer"}'}, "json_schema", schema('{"type":"integer"}')),
        ({"response_format": {"type": "json_object"}}, "json_schema", schema('{"type":"object"}')),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": INTEGER}}},
            "json_schema",
            schema('{"type": "integer"}'),
        ),
        ({"controller": "regex", "controller_arg": "a+"}, "regex", "a+"),
    ],
)
def test_constraints_of_the_text(fields: Json, guest: str, argument: str) -> None:
    api = Api()
    api.answer(PATH, {**HELLO, **fields})
    [submit] = api.engine.submitted
    assert (submit.controller, submit.argument) == (module_id(guest), argument)


def test_a_key_may_not_use_every_controller(tmp_path: Path) -> None:
    keys = Keys(key_file(tmp_path, '[keys.eve]\nkey = "secret"\ncontrollers = ["regex"]\n'))
    http = TestClient(create_app(fake_service()[0], keys=keys), headers={"authorization": "Bearer secret"})
    answer = http.post(PATH, json={**HELLO, "controller": "other"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
    assert http.post(PATH, json={**HELLO, "controller": "regex", "controller_arg": "a"}).status_code == 200


def test_a_grammar_and_a_controller_of_the_users_own() -> None:
    api = Api()
    api.answer(PATH, {**HELLO, "guided_grammar": "%start s\n%%\ns : 'a' ;\n"})
    api.answer(PATH, {**HELLO, "controller": "mine", "controller_arg": {"a": 1}})
    api.answer(PATH, {**HELLO, "response_format": {"type": "text"}})
    submits = api.engine.submitted
    assert [submit.controller for submit in submits] == [module_id("grammar"), "mine", None]
    assert submits[1].argument == '{"a":1}'


def test_a_function_without_parameters_has_none() -> None:
    bare = {"type": "function", "function": {"name": "stop"}}
    empty = {"type": "function", "function": {"name": "halt", "parameters": {}}}
    for tool in neutral_tools([ToolSpec.model_validate(spec) for spec in (bare, empty)]):
        assert tool.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
