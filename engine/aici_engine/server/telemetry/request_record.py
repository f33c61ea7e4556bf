"""What there is to tell of one request: logs, metrics and spans are made of it. Never its text, never a key."""

import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Scope

from aici_engine.server.telemetry import logs

_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


@dataclass(slots=True, kw_only=True)
class Record:
    """`route`: the path with the names of its parameters, empty if nothing is there. `status` 0: not answered.

    `started` is of the performance counter, `started_ns` of the clock on the wall.
    Tokens are of all sequences of the request, `finishes` of the first 64; `first_token_s` of the earliest.
    """

    request_id: str
    method: str
    path: str
    traceparent: str = ""
    started: float = field(default_factory=time.perf_counter)
    started_ns: int = field(default_factory=time.time_ns)
    who: str = ""
    route: str = ""
    status: int = 0
    total_s: float = 0.0
    first_token_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    finishes: list[str] = field(default_factory=list)


current: ContextVar[Record | None] = ContextVar("request", default=None)


def begin(scope: Scope) -> Record:
    """A request id that the client sent is kept if it is fit for a log."""
    headers = Headers(scope=scope)
    shown = headers.get("x-request-id", "")
    request_id = shown if _REQUEST_ID.fullmatch(shown) else uuid.uuid4().hex
    record = Record(
        request_id=request_id,
        method=scope.get("method", "WEBSOCKET"),
        path=scope["path"],
        traceparent=headers.get("traceparent", ""),
    )
    current.set(record)
    logs.request_id.set(request_id)
    return record
