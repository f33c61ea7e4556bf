"""`GET /`: a browser is sent to the console; everything else gets a text about the paths of this server."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.models import Models

_TEXT = """\
aici serves {models} here.

OpenAI       /v1/chat/completions, /v1/completions, /v1/models
Anthropic    /v1/messages
AICI         /v1/run, /v1/controllers
LMTP         a WebSocket on / or /lmtp (the Language Model Transport Protocol, as LMQL speaks it)
Operations   /health, /ready, /stats, /metrics
{console}/openapi.json describes all but LMTP.
"""

_CONSOLE = "Console      /console/, a web page\n\n"


def router(models: Models, *, has_console: bool) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/", response_class=PlainTextResponse)
    @with_policy(RoutePolicy(needs_key=False))
    async def root(request: Request) -> Response:
        """List the protocols and paths of this server, as text. A browser is redirected to the console."""
        headers = {"Vary": "Accept", "Cache-Control": "no-store"}
        if has_console and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/console/", 307, headers=headers)
        names = ", ".join(model.name for model in models.all)
        return PlainTextResponse(_TEXT.format(models=names, console=_CONSOLE if has_console else "\n"), headers=headers)

    return routes
