"""`/v1/run` over a scripted engine: refused requests, and the events of a run."""

import asyncio
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from aici_base.errors import AiciError, ControllerError, NotFoundError, RuntimeDiedError
from aici_base.ids import TokenId
from aici_engine.events import Explanation, FinishReason, LikelyToken
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.link import wire
from aici_engine.server.service.constraints import module_id
from tests.engine.server.gateway.test_api_keys import key_file
from tests.support.fake_engine import FakeEngine, fails, forked, says, silent
from tests.support.fake_service import ServiceClient, service_over
from tests.support.http import listening

JSON = {"Content-Type": "application/json"}
HEX = "0123456789abcdef" * 4

BODY = b'{"controller": "none", "controller_arg": "Hello"}'
HEAD = b"POST /v1/run HTTP/1.1\r\nHost: it\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY


def client(engine: FakeEngine) -> TestClient:
    return ServiceClient(service_over(engine))


def run(engine: FakeEngine, **fields: object) -> tuple[int, list[dict[str, Any]]]:
    """The status, and the events of the stream, or the error alone."""
    request = {"controller": "none", "controller_arg": "", "prompt": "Hello"} | fields
    # Python's json: it also writes invalid JSON, such as NaN.
    answer = client(engine).post("/v1/run", content=json.dumps(request), headers=JSON)
    if answer.status_code != 200:
        return answer.status_code, [answer.json()]
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done, nothing = answer.text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    return 200, [json.loads(event.removeprefix("data: ")) for event in events]


def test_a_run_from_its_first_event_to_its_last() -> None:
    engine = FakeEngine([says("Hello", " there")])
    status, [start, *runs] = run(engine)
    assert status == 200
    assert start["object"] == "initial-run"
    assert start["id"].startswith("run-")
    assert start["model"] == "it"
    assert isinstance(start["created"], int)
    # A step per sampled token; the end arrives with the last token.
    first, last = runs
    prompt_len = len(engine.submitted[0].prompt)
    assert first == {
        "object": "run",
        "forks": [{"index": 0, "text": "Hello", "error": "", "logs": "", "storage": []}],
        "usage": {
            "prompt_tokens": prompt_len,
            "sampled_tokens": 1,
            "ff_tokens": prompt_len,
            "cost": 2 + prompt_len,
            "forced_tokens": 0,
        },
    }
    fork = {"index": 0, "finish_reason": "eos", "text": " there", "error": "", "logs": "", "storage": []}
    assert last["forks"] == [fork]
    assert last["usage"]["sampled_tokens"] == 2
    assert last["usage"]["ff_tokens"] == prompt_len + 1
    assert last["usage"]["cost"] == 4 + prompt_len + 1
    assert last["timings"]["total_s"] == 0.0


@pytest.mark.parametrize("guest", ["jsctrl", "pyctrl", "declctrl"])
def test_upstreams_names_are_the_guests_that_ship(guest: str) -> None:
    """The original command line sends these names if it is given a script."""
    argument = '{"steps": [{"Fixed": {"text": {"String": {"str": "a"}}}}]}' if guest == "declctrl" else "1"
    engine = FakeEngine([says("a")])
    run(engine, controller=f"gh:microsoft/aici/{guest}", controller_arg=argument)
    assert [submit.controller for submit in engine.submitted] == [module_id(guest)]
    status, [error] = run(FakeEngine(), controller="gh:someone/else", controller_arg="")
    assert (status, "controller" in error["message"]) == (400, True)


def test_a_schema_is_read_leniently() -> None:
    schema = {"not": {"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}}}
    fields = {"controller": "json_schema", "controller_arg": {"schema": schema}}
    assert run(FakeEngine([says("1")]), **fields)[0] == 400
    engine = FakeEngine([says("1")])
    assert run(engine, **fields, schema_options={"lenient": True})[0] == 200
    assert json.loads(str(engine.submitted[0].argument))["lenient"] is True
    status, [error] = run(FakeEngine(), controller="regex", controller_arg="a", schema_options={})
    assert (status, "schema_options" in error["message"]) == (400, True)


def controlled(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    """A controller that forces tokens, logs, writes variables and removes tokens."""
    number = submit.stream
    write = {"WriteVar": {"name": "x", "value": "ff", "op": "Set", "when_version_is": None}}
    yield wire.AcceptedOut(number)
    yield wire.ControlOut(number, "one\n", [write])
    yield wire.TokenOut(number, 1, b"a", "a", True, None, [])
    yield wire.TokenOut(number, 2, b"b", "b", True, None, [])
    yield wire.TokenOut(number, 3, b"c", "c", False, None, [])
    yield wire.ControlOut(number, "two\n", [])
    yield wire.BacktrackOut(number, 2)
    yield wire.TokenOut(number, 4, b"d", " ↩ d", True, None, [])
    yield wire.FinishOut(number, FinishReason.STOP, "", wire.UsageOut(len(submit.prompt), 1, 3))


def test_a_run_reports_tokens_logs_and_storage_as_they_arrive() -> None:
    status, [_, *runs] = run(FakeEngine([controlled]), controller=HEX, return_tokens=True)
    assert status == 200
    forks = [run["forks"][0] for run in runs]
    assert "".join(fork["text"] for fork in forks) == "abc ↩ d"
    assert "".join(fork["logs"] for fork in forks) == "one\ntwo\n"
    assert forks[0]["storage"][0]["WriteVar"]["value"] == "ff"
    assert [entry.get("id", entry.get("backtrack")) for fork in forks for entry in fork["tokens"]] == [1, 2, 3, 2, 4]
    assert [fork.get("finish_reason") for fork in forks] == [None] * (len(forks) - 1) + ["aici-stop"]
    assert runs[-1]["usage"]["sampled_tokens"] == 1
    # The model computed the prompt and all appended tokens, including removed tokens.
    assert runs[-1]["usage"]["ff_tokens"] == runs[-1]["usage"]["prompt_tokens"] + 4


def test_each_object_lists_every_fork() -> None:
    _, [_, *runs] = run(FakeEngine([forked]), controller=HEX, return_tokens=True)
    rows = [[fork["text"] for fork in each["forks"]] for each in runs]
    assert rows == [["a", "a", "a"], ["b", "c", "d"], ["", "e", "f"]]
    assert [fork.get("parent") for fork in runs[-1]["forks"]] == [None, 0, 0]
    assert [fork.get("finish_reason") for fork in runs[1]["forks"]] == ["aici-stop", None, None]
    assert [fork["finish_reason"] for fork in runs[2]["forks"]] == ["aici-stop", "fail", "eos"]
    assert [fork["error"] for fork in runs[2]["forks"]] == ["", "trap", ""]
    assert runs[1]["forks"][1]["logs"] == "log\n"
    assert [token["id"] for each in runs for token in each["forks"][1]["tokens"]] == [1, 3, 5]
    inherited = [[fork.get("inherited_tokens") for fork in each["forks"]] for each in runs]
    assert inherited == [[None, 1, 1], [None] * 3, [None] * 3]
    usage = runs[-1]["usage"]
    assert (usage["sampled_tokens"], usage["ff_tokens"]) == (6, usage["prompt_tokens"] + 3)
    assert "timings" in runs[-1]
    assert not any("timings" in each for each in runs[:-1])


def test_a_run_ended_by_the_server_ends_all_forks() -> None:
    _, [_, *_, last] = run(FakeEngine([forked]), controller=HEX, seed=1)
    assert [fork["finish_reason"] for fork in last["forks"]] == ["aici-stop", "fail", "fail"]
    assert [fork["error"] for fork in last["forks"]] == ["", "trap", "too long"]


def test_log_probabilities_come_with_the_tokens() -> None:
    _, [_, first, *_] = run(FakeEngine([says("a")]), logprobs=1)
    (token,) = first["forks"][0]["tokens"]
    likeliest = [{"id": 0, "logprob": -0.5}]
    assert token == {"id": 0, "bytes": "61", "origin": "sampled", "logprob": -0.5, "top_logprobs": likeliest}


def test_explanations_and_suspensions_come_with_the_tokens() -> None:
    why = Explanation(2, 0.25, 0.5, (LikelyToken(TokenId(5), "the", 0.5, allowed=False),), 0.125, None)

    def script(submit: wire.Submit) -> list[wire.StreamOut]:
        token = wire.TokenOut(submit.stream, 0, b"a", "a", False, None, [], why)
        *_, finish = says("a")(submit)
        return [wire.SuspendedOut(submit.stream), token, finish]

    engine = FakeEngine([script])
    _, [_, *events] = run(engine, explain=1)
    assert engine.submitted[0].sampling.explain == 1
    suspended, token = (each for event in events for each in event["forks"][0]["tokens"])
    assert suspended == {"suspended": True}
    assert token["explanation"] == {
        "num_allowed": 2,
        "probability": 0.25,
        "masked_probability": 0.5,
        "likeliest": [{"id": 5, "text": "the", "probability": 0.5, "allowed": False}],
        "forward_s": 0.125,
        "guest_s": None,
    }


def test_the_request_to_the_engine() -> None:
    engine = FakeEngine()
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "max_tokens": 5, "seed": 3, "min_p": 0.1}
    more = {"stop": ["x"], "logit_bias": {"5": 1.5}, "ignore_eos": True, "presence_penalty": 0.5}
    assert run(engine, controller=HEX, controller_arg={"a": 1}, **fields, **more)[0] == 200
    submit = engine.submitted[0]
    assert submit.controller == HEX
    assert submit.argument == '{"a":1}'
    sampling = submit.sampling
    assert {name: getattr(sampling, name) for name in fields} == fields
    assert sampling.stop == ("x",)
    assert sampling.logit_bias == {5: 1.5}
    assert sampling.ignore_eos
    assert sampling.presence_penalty == 0.5


def test_defaults_are_greedy_to_the_end_of_the_context() -> None:
    engine = FakeEngine()
    run(engine)
    sampling = engine.submitted[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.0, 1.0, -1, None)


@pytest.mark.parametrize(
    ("fields", "same_as"),
    [
        ({"controller_arg": "Hello", "prompt": ""}, {"prompt": "Hello"}),
        ({"controller_arg": "Hello", "prompt": None}, {"prompt": "Hello"}),
        ({"controller_arg": None}, {"prompt": "Hello"}),
        ({"controller_arg": {}}, {"prompt": "Hello"}),
        (
            {"messages": [{"role": "user", "content": "Hi"}], "prompt": None},
            {
                "prompt": "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
                "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
            },
        ),
    ],
)
def test_ways_to_give_the_prompt(fields: dict[str, object], same_as: dict[str, object]) -> None:
    engine = FakeEngine()
    assert run(engine, **fields)[0] == 200
    assert run(engine, **same_as)[0] == 200
    first, second = engine.submitted
    assert first.prompt == second.prompt


def test_an_empty_prompt_is_the_start_symbol() -> None:
    engine = FakeEngine()
    run(engine, prompt="", controller=HEX)
    assert len(engine.submitted[0].prompt) == 1


def test_a_tag_cannot_replace_a_shipped_controller() -> None:
    engine = FakeEngine()
    run(engine, controller="choices", controller_arg=["yes", "no"])
    assert engine.submitted[0].controller == module_id("choices")
    assert engine.submitted[0].argument == '["yes","no"]'


@pytest.mark.parametrize(
    ("status", "fields", "said"),
    [
        (400, {"temperature": -0.5}, "temperature: Input should be greater than or equal to 0"),
        (400, {"temperature": 1, "top_p": 0}, "top_p: Input should be greater than 0"),
        (400, {"temperature": 1, "top_k": 0}, "top_k must be -1 (disable), or at least 1, got 0."),
        (400, {"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        (400, {"top_p": 0.5}, "top_p must be 1 when using greedy sampling."),
        (400, {"top_k": 5}, "top_k must be -1 when using greedy sampling."),
        (400, {"max_tokens": 2048}, "This model's maximum context length is 2048 tokens. However, you requested"),
        (400, {"controller": "no tag"}, "'controller' must be a 64-char hex string or tag name, got no tag."),
        (400, {"controller": "gh:a/b"}, "'controller' must be a 64-char hex string or tag name, got gh:a/b."),
        (400, {"controller_arg": "a", "prompt": "b"}, "controller_arg and another prompt exclude each other"),
        (400, {"controller_arg": 5}, "controller_arg must be the prompt, a string"),
        (400, {"messages": [{"role": "user", "content": "b"}]}, "messages and prompt exclude each other"),
        (400, {"n": 2}, "the parameter n is not supported"),
        (400, {"min_p": 2}, "min_p"),
        (400, {"prompt": "\ud800"}, "not valid JSON"),
        (400, {"controller": HEX, "controller_arg": math.nan}, "not valid JSON"),
        (400, {"controller": "regex", "controller_arg": "a" * (4 << 20) + "b"}, "larger than 4 MiB"),
        (400, {"stop": [""]}, "stop"),
        (400, {"logit_bias": {"x": 1}}, "logit_bias"),
        (400, {"controller": "regex", "controller_arg": "a("}, "missing ')'"),
        (400, {"controller": "json_schema", "controller_arg": {"schema": {"type": "x"}}}, "#/type"),
        (404, {"model": "another"}, "another"),
        (422, {"temperature": "hot"}, "temperature"),
        (422, {"stop": "x"}, "stop"),
    ],
)
def test_an_invalid_field_is_refused_by_name(status: int, fields: dict[str, object], said: str) -> None:
    engine = FakeEngine()
    given, [error] = run(engine, **fields)
    assert given == status, error
    assert said in error["message"]
    assert not engine.submitted


def test_controller_and_its_argument_are_required() -> None:
    api = client(FakeEngine())
    for field in ("controller", "controller_arg"):
        request: dict[str, object] = {"controller": "none", "controller_arg": "x"}
        del request[field]
        answer = api.post("/v1/run", json=request)
        assert answer.status_code == 400
        assert field in answer.json()["message"]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (NotFoundError("no module under the tag x"), 400, "While executing instantiate:\nno module under the tag x"),
        (ControllerError("it trapped"), 400, "While executing instantiate:\nit trapped"),
        (RuntimeDiedError("it died"), 503, "it died"),
    ],
)
def test_a_controller_that_does_not_start_gets_a_status(error: AiciError, status: int, said: str) -> None:
    given, [body] = run(FakeEngine([fails(wire.Failure.of(error))]), controller="x")
    assert given == status
    assert body["message"] == said
    assert body["code"] == error.code


def test_the_stop_string_is_reported() -> None:
    _, [_, *runs] = run(FakeEngine([says("a", reason=FinishReason.STOP_STRING, stop="b")]), stop=["b"])
    fork = runs[-1]["forks"][0]
    assert (fork["finish_reason"], fork["stop"]) == ("stop", "b")


def test_a_controller_that_fails_later_ends_the_stream() -> None:
    failure = wire.Failure.of(ControllerError("it trapped"))
    status, [_, *runs] = run(FakeEngine([fails(failure, "Hel")]), controller="x")
    assert status == 200
    assert runs[-1]["forks"][0]["finish_reason"] == "fail"
    assert runs[-1]["forks"][0]["error"] == "it trapped"
    assert "".join(run["forks"][0]["text"] for run in runs) == "Hel"


def test_the_answer_begins_before_the_turn_of_the_run_and_its_end_is_noticed() -> None:
    engine = FakeEngine([lambda submit: [wire.AcceptedOut(submit.stream)]])
    service = service_over(engine)

    async def talk() -> None:
        async with listening(create_app(service)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            head = await reader.readuntil(b"initial-run")
            assert head.startswith(b"HTTP/1.1 200")
            assert service.admission.num_admitted == 1
            writer.close()
            while service.admission.num_admitted:
                await asyncio.sleep(0)
            assert engine.aborted == [1]

    asyncio.run(asyncio.wait_for(talk(), 20))


def test_a_client_that_leaves_before_the_answer_begins_ends_its_run() -> None:
    engine = FakeEngine([silent])
    service = service_over(engine)

    async def talk() -> None:
        async with listening(create_app(service)) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            while not engine.submitted:
                await asyncio.sleep(0)
            writer.close()
            while service.admission.num_admitted:
                await asyncio.sleep(0)
            assert engine.aborted == [1]

    asyncio.run(asyncio.wait_for(talk(), 20))


KEYS = """
[keys.alice]
key = "a-key"
controllers = ["regex"]

[keys.bob]
key = "b-key"
"""


def test_rights_of_keys(tmp_path: Path) -> None:
    service = service_over(FakeEngine())
    api = TestClient(create_app(service, keys=Keys(key_file(tmp_path, KEYS))))

    def run(key: str, controller: str) -> int:
        request = {"controller": controller, "controller_arg": "a"}
        return api.post("/v1/run", json=request, headers={"api-key": key}).status_code

    assert run("no-key", "regex") == 401
    assert run("a-key", HEX) == 403
    assert run("a-key", "regex") == run("a-key", "none") == 200
    assert run("b-key", HEX) == 404  # it may use all controllers, and this one is not there
