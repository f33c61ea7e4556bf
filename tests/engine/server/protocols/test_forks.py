"""A controller that forks, in protocols without forks: the answer is the root."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from aici_engine.server.api.app import create_app
from tests.support.fake_engine import forked
from tests.support.fake_service import fake_service

MESSAGES = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}


@pytest.mark.parametrize(
    ("path", "request_", "where"),
    [
        ("completions", {"prompt": "Hi"}, ("choices", 0, "text")),
        ("chat/completions", MESSAGES, ("choices", 0, "message", "content")),
        ("messages", MESSAGES, ("content", 0, "text")),
    ],
)
def test_the_root_is_the_answer(path: str, request_: dict[str, Any], where: tuple[str | int, ...]) -> None:
    service, _ = fake_service(forked)
    api = TestClient(create_app(service))
    answer: Any = api.post(f"/v1/{path}", json={"model": "it", "controller": "mine", **request_}).json()
    for key in where:
        answer = answer[key]
    assert answer == "ab"
    assert service.admission.num_admitted == 0
