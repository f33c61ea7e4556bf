"""The OpenAPI document: FastAPI's description of the routes, plus the error responses of every route."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from aici_engine.server import errors
from aici_engine.server.errors import Shape

_STATUSES = (400, 401, 403, 404, 405, 408, 409, 413, 422, 429, 500, 503)
_STREAMED = ("/v1/run", "/v1/chat/completions", "/v1/completions", "/v1/messages")
_TEXT = {"type": "string"}
_FASTAPIS_OWN = ("HTTPValidationError", "ValidationError")


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of `app`. An error response that a route documents itself is kept."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path, operations in document.get("paths", {}).items():
        schema = _SCHEMAS[errors.shape_of(path)]
        for operation in operations.values():
            responses = operation["responses"]
            if "HTTPValidationError" in str(responses.get("422")):
                del responses["422"]
            for status in _STATUSES:
                content = {"application/json": {"schema": schema}}
                responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": content})
    for path in _STREAMED:
        if path in document["paths"]:
            document["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"] = {}
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


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_SCHEMAS: Mapping[Shape, object] = {
    errors.openai_body: _object(
        error=_object(message=_TEXT, type=_TEXT, param={"type": ["string", "null"]}, code={"type": "integer"})
    ),
    errors.anthropic_body: _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)),
    errors.rest_body: _object(message=_TEXT, hint=_TEXT, code=_TEXT),
}
