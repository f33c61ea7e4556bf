"""The ASGI application: middleware that every request passes, then one router per protocol, over the models.

To add an endpoint: write an `async def` with `@routes.post("/path")` and `@with_policy(RoutePolicy(...))` in the
`router` function of `protocols/<protocol>/routes.py`. Its parameters are `principal: Caller` (`gateway/caller.py`),
`use: UseModel` (`gateway/model_use.py`), which gives the service of a model, and a pydantic model with
`extra="forbid"`. To add a protocol: write such a module with `router() -> APIRouter`, and include the router in
`create_app`; the shape of its errors goes into `gateway/error_responses.py`.
"""

from collections.abc import Collection, Sequence
from importlib.metadata import version

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from aici_engine.server.api import cluster, drain, health, openapi, replicas, root, stats_events
from aici_engine.server.batches import batch_routes, file_routes
from aici_engine.server.console import routes as console
from aici_engine.server.gateway import error_responses
from aici_engine.server.gateway.access_log import AccessLog, AccessLogMiddleware, Observer
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.gateway.authentication import AuthenticationMiddleware
from aici_engine.server.gateway.model_use import ModelUseMiddleware
from aici_engine.server.gateway.request_limits import RequestLimitsMiddleware
from aici_engine.server.gateway.route_policy import RoutePolicies
from aici_engine.server.gateway.web_pages import WebPagesMiddleware
from aici_engine.server.protocols import check, model_list
from aici_engine.server.protocols.anthropic import routes as anthropic
from aici_engine.server.protocols.lmtp import routes as lmtp
from aici_engine.server.protocols.openai import embedding_routes, tokenizer_routes
from aici_engine.server.protocols.openai import routes as openai
from aici_engine.server.protocols.responses import routes as responses
from aici_engine.server.protocols.rest import controllers, grammars, requests
from aici_engine.server.protocols.rest import routes as rest
from aici_engine.server.service.batch_store import BatchStore
from aici_engine.server.service.models import Models
from aici_engine.server.service.response_store import ResponseStore
from aici_engine.server.service.service import Service


def create_app(
    models: Models | Service,
    *,
    keys: Keys | None = None,
    kept_responses: ResponseStore | None = None,
    batches: BatchStore | None = None,
    cors_origins: Sequence[str] = (),
    hosts: Collection[str] | None = None,
    observers: Sequence[Observer] = (),
    has_console: bool = False,
) -> FastAPI:
    """Return the application over `models`, or over the service of an only model. Without `keys`, everybody has all
    rights. Without `kept_responses`, responses are kept in memory; without `batches`, files and batches. A BatchRunner
    runs the batches.
    `hosts`: the host names that are served besides addresses; None serves all. `has_console`: serve the web page.

    `observers` hear of every finished request, in addition to the access log and the metrics. `app.state.policies`
    holds the policies of the routes. Raises LookupError for a route without a policy.
    """
    if isinstance(models, Service):
        models = Models.of(models)
    app = FastAPI(title="aici", version=version("aici"), openapi_url=None, redirect_slashes=False)
    policies = app.state.policies = RoutePolicies()
    # A request passes the middleware that was added last first.
    app.add_middleware(ModelUseMiddleware, models=models)
    app.add_middleware(RequestLimitsMiddleware, policies=policies, limits=models.limits)
    app.add_middleware(AuthenticationMiddleware, policies=policies, keys=keys or Keys(), admission=models.admission)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after", "aici-warnings"],
        )
    app.add_middleware(WebPagesMiddleware, policies=policies, origins=cors_origins, hosts=hosts)
    app.add_middleware(AccessLogMiddleware, policies=policies, observers=[AccessLog(), models.metrics, *observers])
    error_responses.install(app, policies.errors_of)
    kept_responses, batches = kept_responses or ResponseStore(), batches or BatchStore()
    for router in (
        openapi.router(),
        root.router(models, has_console=has_console),
        health.router(models, problems=(kept_responses.problem, batches.problem)),
        stats_events.router(models),
        cluster.router(models),
        replicas.router(models),
        drain.router(models),
        controllers.router(models.store),
        rest.router(),
        requests.router(models.admission.running),
        check.router(models),
        grammars.router(),
        openai.router(),
        model_list.router(models),
        tokenizer_routes.router(),
        embedding_routes.router(),
        responses.router(kept_responses),
        file_routes.router(batches),
        batch_routes.router(batches),
        lmtp.router(models),
        anthropic.router(),
        *([console.router()] if has_console else ()),
    ):
        policies.read(router.routes)
        # `include_router` would work every route out a second time, during the first request. Without it, FastAPI's
        # `dependency_overrides` have no effect.
        app.router.routes.extend(router.routes)
    return app
