"""The OpenAPI document against the application: requests allowed by the document, and invalid requests."""

import asyncio
import os
from collections.abc import Iterable

import httpx2 as httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from aici_engine.server.api.app import create_app
from aici_engine.server.link import wire
from tests.support.engine_stats import engine_stats
from tests.support.fake_engine import FakeEngine, says
from tests.support.fake_service import service_over

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
EXAMPLES = int(os.environ.get("AICI_API_EXAMPLES", "12"))
HEALTH = list(HealthCheck)
ENDS_THE_SERVER = "/admin/drain"  # test_drain.py
GOOD: dict[str, dict[str, object]] = {
    "/v1/run": {"controller": "none", "controller_arg": "Once"},
    "/v1/completions": {"model": "it", "prompt": "Once"},
    "/v1/chat/completions": {"model": "it", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"model": "it", "input": "Hi"},
    "/v1/messages": {"model": "it", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]},
}


@schemathesis.serializer("application/wasm")
def _wasm(_context: object, value: bytes) -> bytes:
    return value


@pytest.fixture(scope="module")
def app() -> FastAPI:
    engine = FakeEngine([answer], calls={"stats": engine_stats()})
    return create_app(service_over(engine))


def answer(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    return says('{"a"', ": 1}")(submit)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_operation_answers_as_documented(app: FastAPI, mode: GenerationMode) -> None:
    """Every operation, with allowed or with invalid values."""
    for result in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        operation = result.ok()
        if operation.path == ENDS_THE_SERVER:
            continue
        if mode.is_negative and not any(body.media_type == "application/json" for body in operation.body):
            continue  # no parameter, so no invalid request

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=HEALTH)
        def answers(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        answers()


@pytest.mark.parametrize("path", GOOD)
def test_a_good_answer_is_as_documented(app: FastAPI, path: str) -> None:
    for stream in (False, True):
        body = GOOD[path] | ({"stream": stream} if path != "/v1/run" else {})
        case = schemathesis.openapi.from_asgi("/openapi.json", app)[path]["POST"].Case(body=body)
        assert case.call_and_validate(checks=CHECKS).status_code == 200


def test_head_of_the_document(app: FastAPI) -> None:
    async def main() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://it") as http:
            return (await http.head("/openapi.json")).status_code

    assert asyncio.run(main()) == 200
