"""The record of one request. Logs, metrics and spans are made from it. Texts and keys are never recorded."""

import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Scope

from aici_engine.server.telemetry import logs

_MAX_ADDRESS = 64  # characters: a trusted proxy may write anything
_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


@dataclass(slots=True, kw_only=True)
class Record:
    """`client`: the address; behind a trusted proxy, that of the proxy's client.

    `route`: the path pattern, such as `/v1/controllers/{name}`; empty for an unknown path. `status` 0: no answer.

    `started` is a time of the performance counter, `started_ns` of the wall clock. Token counts are sums over all
    sequences of the request. `finishes`: the finish reasons of the first 64 sequences. `first_token_s`: the earliest.
    `is_quiet`: the log shows the request at level DEBUG only, if it succeeds.
    """

    request_id: str
    method: str
    path: str
    client: str = ""
    traceparent: str = ""
    started: float = field(default_factory=time.perf_counter)
    started_ns: int = field(default_factory=time.time_ns)
    key_name: str = ""
    route: str = ""
    status: int = 0
    total_s: float = 0.0
    first_token_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    finishes: list[str] = field(default_factory=list)
    is_quiet: bool = False


current: ContextVar[Record | None] = ContextVar("request", default=None)


def begin(scope: Scope) -> Record:
    """Start the record of a request. Keep the client's `x-request-id` if it is fit for a log, else make a new id."""
    headers = Headers(scope=scope)
    shown = headers.get("x-request-id", "")
    request_id = shown if _REQUEST_ID.fullmatch(shown) else uuid.uuid4().hex
    record = Record(
        request_id=request_id,
        method=scope.get("method", "WEBSOCKET"),
        path=scope["path"],
        client=str((scope.get("client") or ("",))[0])[:_MAX_ADDRESS],
        traceparent=headers.get("traceparent", ""),
    )
    current.set(record)
    logs.request_id.set(request_id)
    return record
