"""Lines of a batch are requests, or are refused with the field that is wrong."""

import json
from typing import Any

import pytest

from aici_engine.server.batches.line import MAX_ID_CHARS, RESULT_HEAD, Answer, LineError, failure, read_line, result
from aici_engine.server.config import MAX_BODY_BYTES
from aici_engine.server.gateway.body_shape import MAX_VALUES
from tests.support.batch_lines import chat_line


def test_a_line_is_a_request() -> None:
    line = read_line(json.dumps(chat_line("a")).encode())
    assert (line.custom_id, line.url) == ("a", "/v1/chat/completions")
    assert line.body["messages"] == [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"custom_id": None}, "invalid_custom_id", "custom_id"),
        ({"custom_id": ""}, "invalid_custom_id", "custom_id"),
        ({"custom_id": 7}, "invalid_custom_id", "custom_id"),
        ({"custom_id": "x" * (MAX_ID_CHARS + 1)}, "invalid_custom_id", "custom_id"),
        ({"method": "GET"}, "invalid_method", "method"),
        ({"url": "/v1/models"}, "invalid_url", "url"),
        ({"url": ["/v1/completions"]}, "invalid_url", "url"),
        ({"body": "text"}, "invalid_body", "body"),
        ({"more": 1}, "unknown_parameter", "more"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(LineError) as refused:
        read_line(json.dumps({**chat_line("a"), **change}).encode())
    assert (refused.value.error_code, refused.value.param) == (code, param)


@pytest.mark.parametrize("name", ["custom_id", "method", "url", "body"])
def test_a_missing_field_is_named(name: str) -> None:
    line = chat_line("a")
    del line[name]
    with pytest.raises(LineError) as refused:
        read_line(json.dumps(line).encode())
    assert (refused.value.error_code, refused.value.param) == ("missing_required_parameter", name)


@pytest.mark.parametrize("text", [b"{", b"[]", b"7", b'{"a": NaN}', b"\xff", b'{"custom_id": "\\ud800"}'])
def test_a_line_is_one_object_of_strict_json(text: bytes) -> None:
    with pytest.raises(LineError) as refused:
        read_line(text)
    assert refused.value.error_code == "invalid_json_line"


def test_results_are_whole_lines_with_one_beginning() -> None:
    for text in (result("ä\n", Answer(200, b'{"a":1}', "r1")), failure("ä\n", "batch_expired", "too late")):
        assert text.startswith(RESULT_HEAD)
        assert text.endswith(b"\n")
        assert text.count(b"\n") == 1
        assert json.loads(text)["custom_id"] == "ä\n"
    assert json.loads(result("a", Answer(404, b'{"a":1}', "r1")))["response"] == {
        "status_code": 404,
        "request_id": "r1",
        "body": {"a": 1},
    }
    assert json.loads(failure("a", "x", "y"))["error"] == {"code": "x", "message": "y"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b" " * (MAX_BODY_BYTES + 1), "larger than 8 MiB"),
        (json.dumps(chat_line("a") | {"body": {"prompt": [1] * MAX_VALUES}}).encode(), "values"),
    ],
)
def test_a_line_has_the_bounds_of_a_body(text: bytes, said: str) -> None:
    with pytest.raises(LineError, match=said) as refused:
        read_line(text)
    assert refused.value.error_code == "line_too_large"
