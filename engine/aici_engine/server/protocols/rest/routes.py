"""`POST /v1/run`: runs a controller."""

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from aici_engine.server.gateway import sse
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.error_responses import REST
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.model_use import UseModel
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.rest.request import RunRequest, generation_of
from aici_engine.server.protocols.rest.run_events import run_events
from aici_engine.server.protocols.warnings import warning_headers


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["aici"], route_class=JsonRoute)

    @routes.post("/run")
    @with_policy(RoutePolicy(errors=REST, is_streamed=True))
    async def run(request: Request, body: RunRequest, principal: Caller, use: UseModel) -> StreamingResponse:
        """Run a controller. The response is server-sent events: an `initial-run`, a `run` per step, then `[DONE]`."""
        service = await use(body.model)
        generation = await sse.unless_gone(request, generation_of(service, principal, body))
        with_tokens = body.return_tokens or body.logprobs is not None or body.explain is not None
        warnings = generation.controller.warnings if generation.controller else ()
        events = run_events(service, principal, generation, with_tokens=with_tokens)
        return await sse.respond(request, events, warning_headers(warnings))

    return routes
