"""What every request passes before a route sees it: its key, and the rate of the key."""

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from aici_base.errors import AiciError
from aici_engine.server import errors
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.service.admission import Admission
from aici_engine.server.telemetry import request_record

_OPEN = {"/", "/health", "/ready"}
"""For everybody: a page that says what this is, and what load balancers ask. WebSockets need a key everywhere."""
_FREE = {"/stats", "/metrics"}
"""Not counted as requests: who watches a server must not be locked out by those who use it."""
_POLICY_VIOLATION = 1008


class AuthenticationMiddleware:
    """Puts the Principal where `who` finds it. A WebSocket counts as one request here; its messages are its route's."""

    def __init__(self, app: ASGIApp, *, keys: Keys, admission: Admission) -> None:
        self._app = app
        self._keys = keys
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in _OPEN):
            return await self._app(scope, receive, send)
        try:
            principal = self._keys.who(HTTPConnection(scope))
            if scope["path"] not in _FREE:
                self._admission.count(principal)
        except AiciError as error:
            return await refuse(error, scope, receive, send)
        scope.setdefault("state", {})["who"] = principal
        if (this := request_record.current.get()) is not None:
            this.who = principal.name
        return await self._app(scope, receive, send)


async def refuse(error: AiciError, scope: Scope, receive: Receive, send: Send) -> None:
    """An HTTP response, to a WebSocket before it is accepted too."""
    response = errors.response(scope["path"], error)
    if scope["type"] == "http":
        await response(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.message})
