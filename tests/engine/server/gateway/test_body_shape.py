"""A body cannot hold the API process for long: what validation would take long over is refused before."""

from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from aici_base.errors import TooLargeError
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.body_shape import MAX_KEYS, MAX_MESSAGES, MAX_OBJECTS, check_shape
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over

MESSAGE = {"role": "user", "content": "a"}
TOO_MANY_KEYS = {f"k{number}": 1 for number in range(100_000)}
TOO_MANY_MESSAGES = [MESSAGE] * (MAX_MESSAGES + 1)


def check(document: object) -> None:
    check_shape(orjson.dumps(document), document)


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/chat/completions", {"messages": TOO_MANY_MESSAGES}, 400, f"at most {MAX_MESSAGES} items"),
        ("/tokenize", {"messages": TOO_MANY_MESSAGES}, 400, f"at most {MAX_MESSAGES} items"),
        ("/v1/responses", {"input": TOO_MANY_MESSAGES}, 400, f"at most {MAX_MESSAGES} items"),
        (
            "/v1/messages",
            {"messages": TOO_MANY_MESSAGES, "max_tokens": 1, "model": "default"},
            400,
            f"at most {MAX_MESSAGES} items",
        ),
        ("/v1/run", {"messages": TOO_MANY_MESSAGES, "controller": "none", "controller_arg": ""}, 400, "items"),
        ("/v1/chat/completions", {"messages": [MESSAGE], **TOO_MANY_KEYS}, 413, "100001 fields"),
        ("/v1/run", TOO_MANY_KEYS, 413, "100000 fields"),
        ("/v1/chat/completions", {"messages": [MESSAGE | TOO_MANY_KEYS]}, 400, f"at most {MAX_KEYS} are allowed"),
        (
            "/v1/messages",
            {"messages": [MESSAGE | TOO_MANY_KEYS], "max_tokens": 1, "model": "default"},
            400,
            f"at most {MAX_KEYS} are",
        ),
        ("/v1/completions", {"prompt": [{}] * (MAX_OBJECTS + 1)}, 413, f"more than {MAX_OBJECTS} objects"),
    ],
)
def test_a_body_of_too_many_parts_is_refused_in_a_short_answer(
    path: str, body: dict[str, Any], status: int, said: str
) -> None:
    answer = TestClient(create_app(service_over(FakeEngine()))).post(path, json=body)
    assert answer.status_code == status
    assert said in answer.text
    assert len(answer.content) < 2000


def test_objects_are_counted_and_braces_in_texts_are_not() -> None:
    check({"messages": [{"role": "user", "content": "{" * 10 * MAX_OBJECTS}]})
    check([{}] * MAX_OBJECTS)
    check({"logit_bias": dict.fromkeys(map(str, range(200_000)), 1)})
    deep: object = []
    for _ in range(100):
        deep = {"a": [deep]}
    check([deep] * 500)
    for document in ([{}] * (MAX_OBJECTS + 1), [deep] * 501):
        with pytest.raises(TooLargeError, match="objects"):
            check(document)
