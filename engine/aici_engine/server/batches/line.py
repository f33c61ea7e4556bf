"""The lines of a batch: a request with its `custom_id`, and the result that answers the request.

{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
{"id": "batch_req_...", "custom_id": "a", "response": {"status_code": 200, "request_id": "...", "body": {...}},
 "error": null}
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aici_base.errors import TooLargeError, UsageError
from aici_engine.server.config import MAX_BODY_BYTES
from aici_engine.server.gateway.body_shape import check_shape

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
MAX_ID_CHARS: Final = 512
RESULT_HEAD: Final = b'{"id":"batch_req_'
"""The first bytes of every result."""

_FIELDS: Final = ("custom_id", "method", "url", "body")


class LineError(UsageError):
    """A line is no request. `error_code` names the problem, `param` the wrong field."""

    def __init__(self, error_code: str, message: str, *, param: str = "", hint: str = "") -> None:
        super().__init__(message, param=param, hint=hint)
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch."""

    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered to a line. `body`: JSON."""

    status: int
    body: bytes
    request_id: str = ""
    retry_after_s: float | None = None

    @property
    def is_error(self) -> bool:
        return self.status != 200


def read_line(text: bytes, endpoints: Collection[str] = ENDPOINTS, *, max_bytes: int = MAX_BODY_BYTES) -> Line:
    """Return the request of a line. Raises LineError. `max_bytes`: as many as a request's body may have."""
    if len(text) > max_bytes:
        raise LineError("line_too_large", f"the line is larger than {max_bytes >> 20} MiB")
    try:
        check_shape(text, "the line")
        found = orjson.loads(text)
    except TooLargeError as error:
        raise LineError("line_too_large", error.message) from error
    except orjson.JSONDecodeError as error:
        raise LineError("invalid_json_line", f"the line is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise LineError("invalid_json_line", "the line is not a JSON object")
    for name in _FIELDS:
        if name not in found:
            raise LineError("missing_required_parameter", f"the field {name} is missing", param=name)
    if unknown := sorted(set(found) - set(_FIELDS)):
        message = f"the field {unknown[0][:80]} is not known"
        raise LineError("unknown_parameter", message, param=unknown[0], hint=f"a line has {', '.join(_FIELDS)}")
    custom_id, method, url, body = (found[name] for name in _FIELDS)
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_ID_CHARS:
        message = f"custom_id is not a text of 1 to {MAX_ID_CHARS} characters"
        raise LineError("invalid_custom_id", message, param="custom_id")
    if method != "POST":
        raise LineError("invalid_method", "method is not POST", param="method")
    if url not in endpoints:
        message = f"the url {str(url)[:80]} is not {' or '.join(endpoints)}"
        raise LineError("invalid_url", message, param="url")
    if not isinstance(body, dict):
        raise LineError("invalid_body", "body is not a JSON object", param="body")
    return Line(custom_id, url, body)


def result(custom_id: str, answer: Answer) -> bytes:
    """Return the result of an answered line: one line, with its newline."""
    response = {"status_code": answer.status, "request_id": answer.request_id, "body": orjson.Fragment(answer.body)}
    return _result(custom_id, response, None)


def failure(custom_id: str, code: str, message: str) -> bytes:
    """Return the result of a line that was not answered."""
    return _result(custom_id, None, {"code": code, "message": message})


def _result(custom_id: str, response: dict[str, Any] | None, error: dict[str, Any] | None) -> bytes:
    shown = {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": custom_id, "response": response, "error": error}
    return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)
