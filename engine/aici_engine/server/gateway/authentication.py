"""The key of a request and the rate of the key, checked before a route sees the request."""

import functools

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from aici_base.errors import AiciError
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.gateway.error_responses import refuse
from aici_engine.server.gateway.route_policy import RoutePolicies
from aici_engine.server.service.admission import Admission
from aici_engine.server.telemetry import request_record


class AuthenticationMiddleware:
    """Stores the Principal for `gateway.caller`, with a way to ask for it again, and counts the request
    against the key's rate.

    A call inside this process (`batches/in_process.py`) brings its Principal; no client can.
    A WebSocket counts as one request here. The route counts the messages of a WebSocket.
    """

    def __init__(self, app: ASGIApp, *, policies: RoutePolicies, keys: Keys, admission: Admission) -> None:
        self._app = app
        self._policies = policies
        self._keys = keys
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        policy = self._policies.of(scope)
        if not policy.needs_key:
            return await self._app(scope, receive, send)
        state = scope.setdefault("state", {})
        try:
            principal = state.get("principal")
            is_inside = principal is not None
            if principal is None:
                principal = self._keys.principal_of(HTTPConnection(scope))
                if policy.is_counted:
                    await self._admission.count(principal)
        except AiciError as error:
            return await refuse(policy.errors, error, scope, receive, send)
        state["principal"] = principal
        if not is_inside:
            state["principal_now"] = functools.partial(self._keys.principal_of, HTTPConnection(scope))
        if (this := request_record.current.get()) is not None:
            this.key_name = principal.name
        return await self._app(scope, receive, send)
