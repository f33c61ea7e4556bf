"""The routes of LMTP: WebSockets on `/` and `/lmtp`."""

from fastapi import APIRouter, WebSocket
from fastapi.responses import PlainTextResponse

from aici_engine.server.gateway.caller import caller
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.lmtp.connection import Connection
from aici_engine.server.service.models import Models

_NO_SOCKET = """\
LMTP (the Language Model Transport Protocol, as LMQL speaks it) needs a WebSocket, on / or /lmtp.
"""


def router(models: Models) -> APIRouter:
    routes = APIRouter()

    @routes.get("/lmtp", response_class=PlainTextResponse, status_code=426, tags=["lmtp"])
    @with_policy(RoutePolicy())
    async def no_socket() -> PlainTextResponse:
        """Answer a plain HTTP request with 426: LMTP needs a WebSocket."""
        return PlainTextResponse(_NO_SOCKET, 426, headers={"Upgrade": "websocket"})

    @routes.websocket("/")
    @routes.websocket("/lmtp")
    @with_policy(RoutePolicy())
    async def lmtp(socket: WebSocket) -> None:
        return await Connection(socket, models, caller(socket), is_greeted=_wants_greeting(socket)).serve()

    return routes


def _wants_greeting(socket: WebSocket) -> bool:
    """Return True for `?greeting=1`. Plain clients take a message that they did not ask for as an error."""
    return socket.query_params.get("greeting") in ("1", "true")
