"""The policy of a route: the work of the layers in front of the route. A route declares the policy at its definition.

    @routes.get("/health")
    @with_policy(RoutePolicy(needs_key=False, is_counted=False, is_quiet=True))
    async def health() -> JSONResponse: ...

A route without a policy is an error when the application is made.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import Scope

from aici_engine.server.gateway.error_responses import OPENAI, ErrorShape

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])

_ATTRIBUTE = "__aici_policy__"
_IN_SCOPE = "aici.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePolicy:
    """`needs_key`: only for callers with an API key, where the server has keys.
    `is_counted`: a request counts against `requests_per_minute` of the key.
    `is_quiet`: the access log shows a successful request at level DEBUG only.
    `errors`: the shape of error responses. `is_streamed`: the answer may be a stream of server-sent events.
    `max_body_bytes`, `timeout_s`: in place of the server's limits; None leaves the server's limits.
    `has_large_body`: the body is written to a file, `request_limits.body_file`, and the route's own body is empty.
    """

    needs_key: bool = True
    is_counted: bool = True
    is_quiet: bool = False
    errors: ErrorShape = OPENAI
    is_streamed: bool = False
    max_body_bytes: int | None = None
    timeout_s: float | None = None
    has_large_body: bool = False


ELSEWHERE: Final = RoutePolicy()
"""The policy of a request without a route: status 404 for a caller with a key, 401 without."""


def with_policy(policy: RoutePolicy) -> Callable[[_Endpoint], _Endpoint]:
    """Decorate an endpoint with a policy. The decorator stands below the decorator of the route."""

    def declare(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _ATTRIBUTE, policy)
        return endpoint

    return declare


class RoutePolicies:
    """The policies of an application's routes."""

    def __init__(self) -> None:
        self.routes: list[tuple[Route | WebSocketRoute, RoutePolicy]] = []
        self._found: dict[tuple[str, str, str], RoutePolicy] = {}

    def read(self, routes: Iterable[BaseRoute]) -> None:
        """Take in the routes of a router. Raises LookupError for a route without a policy."""
        for route in routes:
            assert isinstance(route, Route | WebSocketRoute)
            policy = getattr(route.endpoint, _ATTRIBUTE, None)
            if not isinstance(policy, RoutePolicy):
                raise LookupError(f"the route {route.path} has no policy: decorate its endpoint with `with_policy`")
            self.routes.append((route, policy))

    def of(self, scope: Scope) -> RoutePolicy:
        """Return the policy of a request's route, or `ELSEWHERE`.

        A request with the wrong method has the policy of the path. The errors of a path without a route have the shape
        of the route above the path.
        """
        if (known := scope.get(_IN_SCOPE)) is None:
            known = scope[_IN_SCOPE] = self._find(scope)
        policy: RoutePolicy = known
        return policy

    def errors_of(self, scope: Scope) -> ErrorShape:
        """Return the shape of a request's errors."""
        return self.of(scope).errors

    def _find(self, scope: Scope) -> RoutePolicy:
        asked = scope["type"], scope.get("method", ""), scope["path"]
        if (found := self._found.get(asked)) is not None:
            return found
        same_path = None
        for route, policy in self.routes:
            match, _ = route.matches(scope)
            if match is Match.FULL:
                if route.path == scope["path"]:
                    # The route has no parameters, so the cache has at most one entry per route and method.
                    self._found[asked] = policy
                return policy
            if match is Match.PARTIAL and same_path is None:
                same_path = policy
        if same_path is not None:
            return same_path
        above = [
            (len(route.path), policy.errors)
            for route, policy in self.routes
            if scope["path"].startswith(f"{route.path.rstrip('/')}/") and route.path != "/"
        ]
        return RoutePolicy(errors=max(above, key=lambda each: each[0])[1]) if above else ELSEWHERE
