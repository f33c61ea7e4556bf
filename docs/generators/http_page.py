"""The HTTP interface, from the OpenAPI document of the server."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx2

from docs.generators.markdown import NOTE, one_line, table


def document() -> dict[str, Any]:
    """Return the OpenAPI document. No engine is needed: the routes look up the service when called."""
    from aici_engine.server.api.app import create_app
    from aici_engine.server.config import RequestLimits
    from aici_engine.server.service.admission import Admission
    from aici_engine.server.telemetry.metrics import Metrics

    service: Any = SimpleNamespace(limits=RequestLimits(), metrics=Metrics(), admission=Admission(1), store=None)
    return asyncio.run(_fetch(create_app(service)))


async def _fetch(app: Any) -> dict[str, Any]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://server") as client:
        made: dict[str, Any] = (await client.get("/openapi.json")).json()
    return made


def http_page() -> str:
    made = document()
    intro = (
        "The server describes itself at `/openapi.json`; this page is made from the same document. The pages of the\n"
        "protocols explain: [OpenAI](../../engine/aici_engine/server/protocols/openai/README.md),\n"
        "[Responses](../../engine/aici_engine/server/protocols/responses/README.md),\n"
        "[Anthropic](../../engine/aici_engine/server/protocols/anthropic/README.md),\n"
        "[AICI REST](../../engine/aici_engine/server/protocols/rest/README.md),\n"
        "[LMTP](../../engine/aici_engine/server/protocols/lmtp/README.md), a WebSocket.\n"
    )
    head = [NOTE.format(source="the OpenAPI document"), "# HTTP\n\n", intro, "\n## Endpoints\n"]
    return "".join([*head, table(("endpoint", "meaning", "body"), _endpoints(made)), *_models(made)])


def _endpoints(made: dict[str, Any]) -> Iterator[list[str]]:
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            name = body.get("$ref", "").rpartition("/")[2]
            link = f"[{name}](#{name.lower()})" if name else ""
            yield [f"`{method.upper()} {path}`", one_line(operation.get("description") or operation["summary"]), link]


def _models(made: dict[str, Any]) -> Iterator[str]:
    """The bodies of requests, in the order of the endpoints."""
    for operations in made["paths"].values():
        for operation in operations.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if name := body.get("$ref", "").rpartition("/")[2]:
                model = made["components"]["schemas"][name]
                yield f"\n## {name}\n"
                required = model.get("required", [])
                rows = (
                    [f"`{key}`", _kind(field), _default(key, field, required)]
                    for key, field in model["properties"].items()
                )
                yield table(("field", "type", "default"), rows)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(kind for kind in map(_kind, alternatives) if kind != "null"))
    if "const" in schema:
        return f"`{schema['const']!r}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[key]:g}" for key, sign in _BOUNDS.items() if key in schema]
    return ", ".join([kind, *bounds])


_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


def _default(key: str, field: dict[str, Any], required: list[str]) -> str:
    if key in required:
        return "required"
    default = field.get("default")
    return "" if default is None else f"`{default}`"
