"""The ASGI application: middleware that every request passes, then one router per protocol, over one Service.

To add an endpoint: write an `async def` with `@routes.post("/path")` in the `router` function of
`protocols/<protocol>/routes.py`. Its parameters are `who: Caller` (`gateway/caller.py`) and a pydantic
model with `extra="forbid"`. To add a protocol: write such a module with `router(service) -> APIRouter`, and include it
in `create_app`; the shape of its errors goes into `errors.py`.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from aici_engine.server import errors
from aici_engine.server.api import health, openapi
from aici_engine.server.gateway.access_log import AccessLog, AccessLogMiddleware, Observer
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.gateway.authentication import AuthenticationMiddleware
from aici_engine.server.gateway.request_limits import RequestLimitsMiddleware
from aici_engine.server.protocols.anthropic import routes as anthropic
from aici_engine.server.protocols.lmtp import routes as lmtp
from aici_engine.server.protocols.openai import routes as openai
from aici_engine.server.protocols.rest import controllers
from aici_engine.server.protocols.rest import routes as rest
from aici_engine.server.service.service import Service


def create_app(
    service: Service,
    *,
    keys: Keys | None = None,
    cors_origins: Sequence[str] = (),
    observers: Sequence[Observer] = (),
) -> FastAPI:
    """Return the application over `service`. Without `keys`, everybody has all rights.

    `observers` hear of every finished request, in addition to the access log and the metrics.
    """
    app = _App(title="aici", version=version("aici"), docs_url=None, redoc_url=None, redirect_slashes=False)
    # A request passes the middleware that was added last first.
    app.add_middleware(RequestLimitsMiddleware, limits=service.limits)
    app.add_middleware(AuthenticationMiddleware, keys=keys or Keys(), admission=service.admission)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(AccessLogMiddleware, observers=[AccessLog(), service.metrics, *observers])
    errors.install(app)
    app.include_router(health.router(service))
    app.include_router(controllers.router(service))
    app.include_router(rest.router(service))
    app.include_router(openai.router(service))
    app.include_router(lmtp.router(service, origins=cors_origins))
    app.include_router(anthropic.router(service))
    return app


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self)
        return self.openapi_schema
