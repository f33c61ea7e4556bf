"""`GET /cluster`: the pipeline of stages, once or as a stream."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from aici_base.errors import AiciError
from aici_engine.server.gateway import sse
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ModelState

_EVENT_S = 1.0
_SILENCE_S = 15.0
"""After so long without an event, a comment tells proxies that the stream lives."""
_ALIVE = b": alive\n\n"


def router(models: Models) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/cluster", response_model=None)
    @with_policy(RoutePolicy(is_counted=False, is_streamed=True))
    async def cluster(request: Request, accept: Annotated[str, Header()] = "") -> Response:
        """Return the pipeline of stages: ranges, epoch, pages, times; `pipeline` is null where one process runs the
        whole model. With `Accept: text/event-stream`, events at changes, at most one a second."""
        if "text/event-stream" in accept:
            return await sse.respond(request, _events(models))
        return JSONResponse(await _document(models))

    return routes


async def _document(models: Models) -> dict[str, Any]:
    """Only a server with one model divides it. Raises UnavailableError without an engine."""
    if len(models.all) > 1:
        return {"engine_up": any(model.state is ModelState.LOADED for model in models.all), "pipeline": None}
    async with models.lease(None) as service:
        return {"engine_up": True, "pipeline": await service.client.call("cluster")}


async def _events(models: Models) -> AsyncGenerator[bytes, None]:
    """Yield an event now and after changes, until the server stops. Without an engine, the event says so."""
    last: dict[str, Any] | None = None
    silent_s = 0.0
    while not models.admission.draining:
        try:
            document = await _document(models)
        except AiciError:
            document = {"engine_up": False, "pipeline": None}
        if document != last:
            yield sse.event(document)
            last, silent_s = document, 0.0
        elif silent_s >= _SILENCE_S:
            yield _ALIVE
            silent_s = 0.0
        silent_s += _EVENT_S
        with contextlib.suppress(TimeoutError):
            # asyncio.wait_for would lose a cancellation that comes with the event.
            async with asyncio.timeout(_EVENT_S):
                await models.admission.drain_begun.wait()
