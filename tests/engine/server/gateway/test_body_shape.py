"""A body cannot hold the API process for long: what validation would take long over is refused before."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from aici_base.errors import TooLargeError
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.body_shape import (
    MAX_CONTAINERS,
    MAX_KEYS,
    MAX_MEMBERS,
    MAX_MESSAGES,
    MAX_VALUES,
    check_shape,
)
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over

MESSAGE = {"role": "user", "content": "a"}
MANY_KEYS = {f"k{number}": 1 for number in range(40_000)}
TOO_MANY_KEYS = {f"k{number}": 1 for number in range(60_000)}
TOO_MANY_MESSAGES = [MESSAGE] * (MAX_MESSAGES + 1)


def check(document: object) -> None:
    check_shape(orjson.dumps(document))


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
        ("/v1/chat/completions", {"messages": [MESSAGE], **MANY_KEYS}, 413, "40001 fields"),
        ("/v1/run", MANY_KEYS, 413, "40000 fields"),
        ("/v1/run", {"controller": "none", "controller_arg": TOO_MANY_KEYS}, 413, f"more than {MAX_MEMBERS} keys"),
        ("/v1/completions", {"prompt": [1] * MAX_VALUES}, 413, f"more than {MAX_VALUES} values"),
        ("/v1/chat/completions", {"messages": [MESSAGE | MANY_KEYS]}, 400, f"at most {MAX_KEYS} are allowed"),
        (
            "/v1/messages",
            {"messages": [MESSAGE | MANY_KEYS], "max_tokens": 1, "model": "default"},
            400,
            f"at most {MAX_KEYS} are",
        ),
        ("/v1/completions", {"prompt": [{}] * MAX_CONTAINERS}, 413, f"more than {MAX_CONTAINERS} objects"),
    ],
)
def test_a_body_of_too_many_parts_is_refused_in_a_short_answer(
    path: str, body: dict[str, Any], status: int, said: str
) -> None:
    answer = TestClient(create_app(service_over(FakeEngine()))).post(path, json=body)
    assert answer.status_code == status
    assert said in answer.text
    assert len(answer.content) < 2000


def test_what_texts_hold_is_not_counted() -> None:
    for text in ("{", ",", '"', "\\", '\\"', ':"[', '"\\', "\n"):
        check({"messages": [{"role": "user", "content": text * 10 * MAX_CONTAINERS}]})
        check([text] * 10_000)


@pytest.mark.parametrize(
    ("most", "named", "document"),
    [
        (MAX_CONTAINERS, "objects and lists", lambda number: [{}] * (number - 1)),
        (MAX_CONTAINERS, "objects and lists", lambda number: [[[]] * (number // 2 - 1), [[]] * (number // 2 - 1)]),
        (MAX_MEMBERS, "keys", lambda number: {f'k\\"{key}': "," for key in range(number)}),
        (MAX_VALUES, "values", lambda number: [1] * number),
        (MAX_VALUES, "values", lambda number: ["a,b"] * number),
    ],
)
def test_values_are_counted(most: int, named: str, document: Callable[[int], object]) -> None:
    check(document(most - 2))
    with pytest.raises(TooLargeError, match=f"more than {most} {named}"):
        check(document(most + 4))
    with pytest.raises(TooLargeError):
        check(document(10 * most))


@settings(max_examples=30)
@given(st.text(), st.binary(max_size=100))
def test_any_bytes_are_counted(text: str, other: bytes) -> None:
    """Without escapes, a document of many such texts has as many values as texts."""
    check_shape(orjson.dumps([text] * 2) + other)
    check([text] * (MAX_CONTAINERS + 1))
