"""The outermost middleware: gives every request an id, and tells observers when the request has ended."""

import logging
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Protocol

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aici_base.errors import AiciError
from aici_engine.server.gateway.error_responses import refuse
from aici_engine.server.gateway.route_policy import RoutePolicies
from aici_engine.server.telemetry import request_record
from aici_engine.server.telemetry.request_record import Record

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Is called once for every request, after the response."""

    def ended(self, record: Record) -> None: ...


class AccessLogMiddleware:
    """Keeps a Record per request. An exception that reaches this middleware is a bug: log it, and answer with 500."""

    def __init__(self, app: ASGIApp, *, policies: RoutePolicies, observers: Sequence[Observer]) -> None:
        self._app = app
        self._policies = policies
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        this = request_record.begin(scope)
        policy = self._policies.of(scope)
        this.is_quiet = policy.is_quiet

        async def noted(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
                this.status = message.get("status", 101)
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = this.request_id  # the second is Anthropic's
                headers["date"] = formatdate(usegmt=True)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:  # noqa: BLE001  # the last of the HTTP error handlers
            _log.exception("a bug in aici")
            if not this.status:
                bug = AiciError("the server failed: this is a bug in aici", hint="the server's log has the traceback")
                await refuse(policy.errors, bug, scope, receive, noted)
        finally:
            this.route = getattr(scope.get("route"), "path", "")
            this.total_s = time.perf_counter() - this.started
            for observer in self._observers:
                observer.ended(this)
        return None


class AccessLog:
    """Writes one log line per request."""

    def ended(self, record: Record) -> None:
        quiet = record.is_quiet and record.status < 400
        _log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s %s %d",
            record.method,
            record.path,
            record.status,
            extra={"fields": _fields(record)},
        )


def _fields(record: Record) -> dict[str, object]:
    fields: dict[str, object] = {
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "who": record.key_name,
        "client": record.client,
        "total_s": round(record.total_s, 6),
    }
    if record.finishes:
        fields |= {
            "first_token_s": None if record.first_token_s is None else round(record.first_token_s, 6),
            "prompt_tokens": record.prompt_tokens,
            "output_tokens": record.output_tokens,
            "finishes": record.finishes,
        }
    return fields
