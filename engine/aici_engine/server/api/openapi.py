"""The OpenAPI document: FastAPI's description of the routes, plus the error responses of every route."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from aici_engine.server.gateway.route_policy import RoutePolicies, RoutePolicy, with_policy

_STATUSES = (400, 401, 403, 404, 405, 408, 409, 413, 422, 429, 500, 503)
_FASTAPIS_OWN = ("HTTPValidationError", "ValidationError")


def router() -> APIRouter:
    routes = APIRouter()
    made: list[dict[str, Any]] = []

    @routes.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    @with_policy(RoutePolicy())
    async def openapi(request: Request) -> JSONResponse:
        if not made:
            made.append(document(request.app))
        return JSONResponse(made[0])

    return routes


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document. Error responses documented by a route are not changed."""
    policies: RoutePolicies = app.state.policies
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path, operations in document.get("paths", {}).items():
        for method, operation in operations.items():
            policy = policies.of({"type": "http", "path": path, "method": method.upper()})
            responses = operation["responses"]
            if "HTTPValidationError" in str(responses.get("422")):
                del responses["422"]
            for status in _STATUSES:
                content = {"application/json": {"schema": policy.errors.schema}}
                responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": content})
            if policy.is_streamed:
                responses["200"]["content"]["text/event-stream"] = {}
    components = document.setdefault("components", {})
    for name in _FASTAPIS_OWN:
        components.get("schemas", {}).pop(name, None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        "api-key": {"type": "apiKey", "in": "header", "name": "api-key"},
    }
    # A request needs one of the schemes, or none if the server has no API keys.
    document["security"] = [{}, *({name: []} for name in components["securitySchemes"])]
    return document
