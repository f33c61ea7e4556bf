"""Our OpenAPI document against the app: requests that it allows, and some that it does not."""

import os
from collections import defaultdict
from collections.abc import Iterable

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

from aici_engine.server import wire
from aici_engine.server.admission import Admission
from aici_engine.server.app import create_app
from aici_engine.server.service import Service
from tests.support.fake_engine import FakeEngine, says
from tests.support.model import default_model_dir

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
EXAMPLES = int(os.environ.get("AICI_API_EXAMPLES", "12"))
HEALTH = list(HealthCheck)
MODULE = {"module_id": "0" * 64, "wasm_size": 1, "time": 1}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    calls = {"stats": {"active_requests": 0}, "add_module": MODULE, "set_tags": [], "get_tags": []}
    engine = FakeEngine([answer], calls=dict(calls))
    return create_app(Service(engine.client, model_dir=default_model_dir(), name="it", admission=Admission(8)))


def answer(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    return says('{"a"', ": 1}")(submit)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_operation_answers_as_documented(app: FastAPI, mode: GenerationMode) -> None:
    """Each, with what it allows or with what it does not allow."""
    statuses: dict[str, set[int]] = defaultdict(set)
    for result in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        operation = result.ok()
        if mode.is_negative and not any(body.media_type == "application/json" for body in operation.body):
            continue  # there is nothing to get wrong

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=HEALTH)
        def answers(case: schemathesis.Case) -> None:
            if mode.is_positive and isinstance(case.body, dict) and "model" in case.body:
                case.body["model"] = "it"
            statuses[case.path].add(case.call_and_validate(checks=CHECKS).status_code)

        answers()
    if mode.is_positive:
        assert all(200 in statuses[path] for path in ("/health", "/v1/run", "/v1/messages", "/v1/completions"))
