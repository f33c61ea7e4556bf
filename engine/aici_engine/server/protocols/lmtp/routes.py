"""The routes of LMTP: WebSockets on `/` and `/lmtp`. A browser gets a text page instead."""

from fastapi import APIRouter, WebSocket
from fastapi.responses import PlainTextResponse

from aici_engine.server.gateway.caller import caller
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.lmtp.connection import Connection
from aici_engine.server.service.models import Models

_PAGE = """\
aici serves {models} here.

OpenAI       /v1/chat/completions, /v1/completions, /v1/models
Anthropic    /v1/messages
AICI         /v1/run, /v1/controllers
LMTP         a WebSocket on / or /lmtp (the Language Model Transport Protocol, as LMQL speaks it)
Operations   /health, /ready, /stats, /metrics

/openapi.json describes all but LMTP.
"""


def router(models: Models) -> APIRouter:
    routes = APIRouter()

    @routes.get("/", response_class=PlainTextResponse, tags=["operations"])
    @with_policy(RoutePolicy(needs_key=False))
    async def page() -> str:
        """List the protocols and paths of this server, as text."""
        return _PAGE.format(models=", ".join(model.name for model in models.all))

    @routes.get("/lmtp", response_class=PlainTextResponse, status_code=426, tags=["lmtp"])
    @with_policy(RoutePolicy())
    async def no_socket() -> PlainTextResponse:
        """Answer a plain HTTP request with 426: LMTP needs a WebSocket."""
        return PlainTextResponse(
            _PAGE.format(models=", ".join(model.name for model in models.all)), 426, headers={"Upgrade": "websocket"}
        )

    @routes.websocket("/")
    @routes.websocket("/lmtp")
    @with_policy(RoutePolicy())
    async def lmtp(socket: WebSocket) -> None:
        return await Connection(socket, models, caller(socket), is_greeted=_wants_greeting(socket)).serve()

    return routes


def _wants_greeting(socket: WebSocket) -> bool:
    """Return True for `?greeting=1`. Plain clients take a message that they did not ask for as an error."""
    return socket.query_params.get("greeting") in ("1", "true")
