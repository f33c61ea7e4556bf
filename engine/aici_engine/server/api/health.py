"""The routes for operators: `/health`, `/ready`, `/stats` and `/metrics`."""

import asyncio
import contextlib
from dataclasses import replace

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from aici_base.errors import AiciError
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.service import Service

_PROBE = RoutePolicy(needs_key=False, is_counted=False, is_quiet=True)
"""Load balancers ask without a key."""
_ANSWER_S = 5.0
_STATISTICS = RoutePolicy(is_counted=False)
"""Not counted as requests: the load of a server must not lock out those who watch the server."""


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/health")
    @with_policy(_PROBE)
    async def health() -> JSONResponse:
        """200 while an engine is up. 503 without an engine: the engine has crashed, and a new one is starting.

        The status is "interrupted" while a stage of the pipeline is missing: the server recovers by itself.
        """
        up = service.client.is_ready
        complete = up and await _is_complete(service)
        status = ("ok" if complete else "interrupted") if up else "unavailable"
        return JSONResponse({"status": status, "model_loaded": complete}, 200 if up else 503)

    @routes.get("/ready")
    @with_policy(_PROBE)
    async def ready() -> JSONResponse:
        """200 if the server can compute. 503 without an engine, without a stage, or while the server drains."""
        ready = service.client.is_ready and not service.admission.draining and await _is_complete(service)
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    @routes.get("/stats")
    @with_policy(_STATISTICS)
    async def stats() -> dict[str, int | float]:
        """Return the current figures of the engine and of the queue before it."""
        stats: dict[str, int | float] = await service.client.call("stats")
        return stats | _of_server(service)

    @routes.get("/metrics", response_class=PlainTextResponse)
    @with_policy(replace(_STATISTICS, is_quiet=True))
    async def metrics() -> Response:
        """Return metrics in Prometheus's text format. Without an engine, the engine's figures are left out."""
        stats, pipeline = _of_server(service), None
        with contextlib.suppress(AiciError):
            stats |= await service.client.call("stats")
            pipeline = await service.client.call("cluster")
        return Response(service.metrics.page(stats, pipeline), media_type=CONTENT_TYPE_LATEST)

    return routes


async def _is_complete(service: Service) -> bool:
    """Return whether no stage of the model is missing."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            pipeline = await service.client.call("cluster")
    except (AiciError, TimeoutError):
        return False
    return pipeline is None or pipeline["state"] == "ready"


def _of_server(service: Service) -> dict[str, int | float]:
    return {
        "engine_up": int(service.client.is_ready),
        "engine_restarts": max(0, service.client.num_engines - 1),
        "admitted_sequences": service.admission.num_admitted,
        "queue_capacity": service.admission.capacity,
    }
