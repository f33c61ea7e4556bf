"""Every route declares a policy, and the middleware follows the policy."""

import pytest
from fastapi import APIRouter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from aici_engine.server.api.app import create_app
from aici_engine.server.config import RequestLimits
from aici_engine.server.gateway.error_responses import ANTHROPIC, OPENAI, REST
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.request_limits import RequestLimitsMiddleware
from aici_engine.server.gateway.route_policy import ELSEWHERE, RoutePolicies, RoutePolicy, with_policy
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over


@pytest.fixture
def policies() -> RoutePolicies:
    found = create_app(service_over(FakeEngine())).state.policies
    assert isinstance(found, RoutePolicies)
    return found


def test_every_route_has_a_policy(policies: RoutePolicies) -> None:
    assert len(policies.routes) >= 20
    pages = [(route.path, policy) for route, policy in policies.routes if isinstance(route, Route)]
    assert {path for path, policy in pages if not policy.needs_key} == {"/", "/health", "/ready"}
    assert {path for path, policy in pages if policy.needs_key and not policy.is_counted} == {
        "/stats",
        "/stats/events",
        "/stats/history",
        "/v1/key",
        "/v1/requests",
        "/v1/requests/{id}",
        "/metrics",
        "/cluster",
        "/replicas",
        "/admin/drain",
        "/admin/replicas/{number}/drain",
        "/admin/replicas/{number}/rejoin",
    }
    assert {path for path, policy in pages if policy.is_quiet} == {"/health", "/ready", "/metrics"}
    sockets = [policy for route, policy in policies.routes if not isinstance(route, Route)]
    assert sockets
    assert all(policy.needs_key and policy.is_counted for policy in sockets)


def test_every_json_body_is_parsed_beside_the_event_loop(policies: RoutePolicies) -> None:
    """The route of a body that FastAPI would parse is of the class that bounds bodies."""
    with_body = [route for route, _ in policies.routes if getattr(route, "body_field", None) is not None]
    assert len(with_body) >= 10
    assert all(isinstance(route, JsonRoute) for route in with_body)


def test_a_route_without_a_policy_is_an_error() -> None:
    routes = APIRouter()

    @routes.get("/bare")
    async def bare() -> None: ...

    with pytest.raises(LookupError, match="/bare"):
        RoutePolicies().read(routes.routes)


@pytest.mark.parametrize(
    ("path", "method", "errors"),
    [
        ("/v1/messages", "POST", ANTHROPIC),
        ("/v1/messages", "GET", ANTHROPIC),
        ("/v1/messages/batches", "POST", ANTHROPIC),
        ("/v1/run", "POST", REST),
        ("/v1/controllers/a/b/c", "GET", REST),
        ("/v1/controllers/tags", "GET", REST),
        ("/v1/runs", "GET", OPENAI),
        ("/v1/chat/completions", "POST", OPENAI),
        ("/nowhere", "GET", OPENAI),
    ],
)
def test_the_shape_of_errors(policies: RoutePolicies, path: str, method: str, errors: object) -> None:
    assert policies.of({"type": "http", "path": path, "method": method}).errors is errors


def test_an_unknown_path_needs_a_key(policies: RoutePolicies) -> None:
    assert policies.of({"type": "http", "path": "/health/more", "method": "GET"}).needs_key
    assert policies.of({"type": "http", "path": "/x", "method": "GET"}) is ELSEWHERE
    assert policies.of({"type": "websocket", "path": "/"}).needs_key
    assert not policies.of({"type": "http", "path": "/", "method": "GET"}).needs_key


def test_limits_of_a_route() -> None:
    @with_policy(RoutePolicy(max_body_bytes=3, errors=REST))
    async def small(request: Request) -> Response:
        return Response(await request.body())

    @with_policy(RoutePolicy())
    async def usual(request: Request) -> Response:
        return Response(await request.body())

    policies = RoutePolicies()
    app = Starlette(routes=[Route("/small", small, methods=["POST"]), Route("/usual", usual, methods=["POST"])])
    policies.read(app.routes)
    app.add_middleware(RequestLimitsMiddleware, policies=policies, limits=RequestLimits(max_body_bytes=5))
    http = TestClient(app)
    assert [http.post("/small", content=b"a" * size).status_code for size in (3, 4)] == [200, 413]
    assert [http.post("/usual", content=b"a" * size).status_code for size in (5, 6)] == [200, 413]
    assert http.post("/small", content=b"a" * 4).json()["code"] == "request_too_large"
