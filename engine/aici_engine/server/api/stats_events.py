"""`GET /stats/events`: the state of what serves, pushed."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from aici_engine.server.api.state_feed import MAX_S, StateFeed
from aici_engine.server.gateway import sse
from aici_engine.server.gateway.caller import AskCaller, Caller
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.models import Models


def router(models: Models) -> APIRouter:
    routes = APIRouter(tags=["operations"])
    feed = StateFeed(models)

    @routes.get("/stats/events", response_model=None)
    @with_policy(RoutePolicy(is_counted=False, is_streamed=True, timeout_s=MAX_S))
    async def stats_events(
        request: Request, caller: Caller, ask_caller: AskCaller, accept: Annotated[str, Header()] = ""
    ) -> Response:
        """Return the state of the server. With `Accept: text/event-stream`, events: one at once, then one at each
        change, at most two a second, until the server drains or the key is revoked, or for an hour.

        A state has `time` (seconds since 1970), `draining`, `models`, and of the requests that the key sees
        `num_requests` and the first 100 as `requests` (as in `GET /v1/requests`). A model has its `state`, the
        sequences `admitted` of `queue_capacity`, `engines`, and `pipeline` (as in `GET /cluster`). An engine has
        `state` (standby, starting, up, hanging, restarting, draining, drained or failed), `restarts`, `open` (streams),
        `memory_bytes` (weights and a full cache), and `figures`, null until the engine answers: sequences `running` and
        `waiting`, `pages_used` of `pages`, `tokens_per_s` over the last two seconds, and the mean time of a step
        (`step_s`) and of its forward pass (`forward_s`). 429 if 16 streams of a key, or 64 of all, are open.
        """
        if "text/event-stream" in accept:
            return await sse.respond(request, feed.events(ask_caller))
        return JSONResponse(await feed.state(caller))

    return routes
