"""Every protocol honours its parameters of the table, and refuses a value out of range by the parameter's name."""

import json
from typing import Any

import pytest

from aici_engine.parameter import Api, ApiField, Parameter
from aici_engine.sampling_params import PARAMETERS
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import ServiceClient, service_over

VALUES: dict[str, Any] = {
    "number": 0.75,
    "whole number": 7,
    "flag": True,
    "texts": ["a", "b"],
    "biases": {"5": -5.5},
    "tokens": [3, 4],
    "token runs": [[3, 4]],
}
CHAT = {"model": "it", "messages": [{"role": "user", "content": "Hi"}]}
PATHS = {
    Api.OPENAI_CHAT: "/v1/chat/completions",
    Api.OPENAI_COMPLETIONS: "/v1/completions",
    Api.OPENAI_RESPONSES: "/v1/responses",
    Api.ANTHROPIC: "/v1/messages",
    Api.REST: "/v1/run",
}
BODIES: dict[Api, dict[str, Any]] = {
    Api.OPENAI_CHAT: CHAT,
    Api.OPENAI_COMPLETIONS: {"prompt": "Hi"},
    Api.OPENAI_RESPONSES: {"input": "Hi"},
    Api.ANTHROPIC: {**CHAT, "max_tokens": 8},
    Api.REST: {"controller": "none", "controller_arg": "Hi", "temperature": 0.5},
    Api.LMTP: {"stream_id": 1, "model": "it", "prompt": [5]},
}
EVERY = [
    pytest.param(api, parameter, id=f"{api}-{parameter.name}")
    for api in Api
    for parameter in PARAMETERS.values()
    if parameter.field(api) is not None
]


def send(engine: FakeEngine, api: Api, fields: dict[str, Any]) -> tuple[int, str]:
    """Return the HTTP status (400 for an LMTP error) and the text of the answer."""
    body = BODIES[api] | fields
    if api is Api.OPENAI_CHAT and "top_logprobs" in fields:
        body["logprobs"] = True
    http = ServiceClient(service_over(engine))
    if api is not Api.LMTP:
        answer = http.post(PATHS[api], json=body)
        return answer.status_code, answer.text
    with http.websocket_connect("/lmtp") as socket:
        socket.send_text(f"GENERATE {json.dumps(body)}")
        while not (text := socket.receive_text()).startswith("TOKEN"):
            pass
        return 400 if '"error"' in text else 200, text


def out_of_range(parameter: Parameter, field: ApiField) -> Any:
    if parameter.kind == "texts":
        return ["a"] * ((field.max_items or 0) + 1)
    if parameter.kind == "biases":
        return {"5": (field.le or 0) * 2}
    if field.ge is not None:
        return field.ge - 1
    return field.gt if field.gt is not None else None if field.le is None else field.le + 1


@pytest.mark.parametrize(("api", "parameter"), EVERY)
def test_a_value_reaches_the_sampler(api: Api, parameter: Parameter) -> None:
    field = parameter.field(api)
    assert field is not None
    for name in field.names:
        engine = FakeEngine()
        value = VALUES[parameter.kind]
        _, text = send(engine, api, {name: value})
        assert engine.submitted, text
        told = getattr(engine.submitted[0].sampling, parameter.name)
        assert told == {"texts": ("a", "b"), "biases": {5: -5.5}, "tokens": (3, 4), "token runs": ((3, 4),)}.get(
            parameter.kind, value
        )


@pytest.mark.parametrize(("api", "parameter"), EVERY)
def test_a_value_out_of_range_is_refused_by_name(api: Api, parameter: Parameter) -> None:
    field = parameter.field(api)
    assert field is not None
    if (value := out_of_range(parameter, field)) is not None:
        engine = FakeEngine()
        status, text = send(engine, api, {field.name: value})
        assert (status, field.name in text, engine.submitted) == (400, True, []), text
    status, text = send(FakeEngine(), api, {field.name: {"not": "a value"}})
    assert field.name in text, text
    assert status in (400, 422)


@pytest.mark.parametrize("api", Api)
def test_a_parameter_that_a_protocol_lacks_is_refused_by_name(api: Api) -> None:
    for parameter in PARAMETERS.values():
        if parameter.field(api) is None:
            status, text = send(FakeEngine(), api, {parameter.name: VALUES[parameter.kind]})
            assert (status, parameter.name in text) == (400, True)
