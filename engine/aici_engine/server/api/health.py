"""The routes for operators: `/health`, `/ready`, `/stats`, `/stats/history` and `/metrics`."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from aici_base.errors import AiciError, UnavailableError
from aici_engine.server.api import replicas
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ModelState, ServedModel
from aici_engine.server.telemetry.history import INTERVAL_S

_PROBE = RoutePolicy(needs_key=False, is_counted=False, is_quiet=True)
"""Load balancers ask without a key."""
_ANSWER_S = 3.0
"""Of an engine. An engine that hangs is replaced soon after."""
_FIGURES_S = 1.0
_RETRY_AFTER_S = "2"
_STATISTICS = RoutePolicy(is_counted=False)
"""Not counted as requests: the load of a server must not lock out those who watch the server."""


def router(models: Models, *, problems: Sequence[str] = ()) -> APIRouter:
    """`problems`: of the start; empty texts are no problems."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/health")
    @with_policy(_PROBE)
    async def health() -> JSONResponse:
        """200 while a model can answer. 503 without a model: its engine has crashed, and a new one is starting, or
        its engine makes no progress ("hanging"), and is replaced soon.

        The status is "interrupted" while a stage of the pipeline is missing, and "degraded" while some models or
        replicas cannot answer: the server recovers by itself. A model that is loaded on demand can answer. `replicas`:
        the state of every replica, if models have several. `problems`: what the server does without until its next
        start, such as files on a full disk; left out without problems.
        """
        await _ping(models)
        able = [model for model in models.all if model.can_answer]
        complete = bool(able) and await _is_complete(models)
        status = "ok" if complete else "interrupted"
        fleets = {model.name: model.fleet for model in models.all if model.fleet is not None}
        if len(able) < len(models.all) or any(fleet.is_degraded for fleet in fleets.values()):
            status = "degraded" if able else "unavailable"
        states = {model.name: model.state for model in models.all}
        body: dict[str, Any] = {"status": status, "model_loaded": complete, "models": states}
        if fleets:
            body["replicas"] = {
                name: {str(each.number): each.state for each in fleet.replicas} for name, fleet in fleets.items()
            }
        if found := [*filter(None, problems), *_lacking(models)]:
            body["problems"] = found
        return _probed(body, is_well=bool(able))

    @routes.get("/ready")
    @with_policy(_PROBE)
    async def ready() -> JSONResponse:
        """200 if a model can answer. 503 without an engine, without a stage, or while the server drains."""
        await _ping(models)
        can_answer = any(model.can_answer for model in models.all)
        ready = can_answer and not models.admission.draining and await _is_complete(models)
        return _probed({"ready": ready}, is_well=ready)

    @routes.get("/stats")
    @with_policy(_STATISTICS)
    async def stats(caller: Caller, model: str | None = None) -> dict[str, int | float]:
        """Return the current figures of a model's engine and of the queue before it; by default of the first model.

        If no engine answers, return the figures of the queue and of the key only. The figures `key_...` are of the
        caller's key: the use since the server started, and the rest of the budgets of this minute.
        """
        return await _figures(models.find(model)) | await _of_key(models, caller)

    @routes.get("/stats/history")
    @with_policy(_STATISTICS)
    async def history(model: str | None = None) -> dict[str, Any]:
        """Return the last hour of a model, by default of the first model, in intervals of `interval_s` seconds.

        `time` is the begin of an interval, in seconds since 1970. `streams` and `waiting`: the most open streams, and
        the most streams without a first token, at a moment of the interval. Intervals without events are left out, and
        percentiles are right within 5 %.
        """
        found = models.find(model)
        intervals = list(models.metrics.history(found.name).intervals())
        return {"model": found.name, "interval_s": INTERVAL_S, "intervals": intervals}

    @routes.get("/metrics", response_class=PlainTextResponse)
    @with_policy(replace(_STATISTICS, is_quiet=True))
    async def metrics(caller: Caller) -> Response:
        """Return metrics in Prometheus's text format. Without an engine, the engine's figures are left out.

        The figures of keys are of the caller's key alone, but an administrator sees all.
        """
        of_models = {model.name: await _figures(model) for model in models.all}
        pipeline = None
        if (service := models.default.service) is not None:
            with contextlib.suppress(AiciError):
                pipeline = await service.client.call("cluster")
        budgets = models.admission.budgets
        keys = {name: budgets.used_by(name) for name in (list(budgets.used) if caller.is_admin else [caller.name])}
        page = models.metrics.page(of_models, pipeline, keys, await replicas.of_models(models))
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    return routes


def _lacking(models: Models) -> Iterator[str]:
    for model in models.all:
        if model.service is not None and (names := model.service.info.lacking.values()):
            yield f"{model.name}: controllers that could not be compiled: {', '.join(names)}"


def _probed(body: dict[str, Any], *, is_well: bool) -> JSONResponse:
    return JSONResponse(body) if is_well else JSONResponse(body, 503, headers={"Retry-After": _RETRY_AFTER_S})


async def _figures(model: ServedModel) -> dict[str, int | float]:
    """Return the figures of a model; without those of the engine if no engine answers."""
    figures = _of_server(model)
    if model.service is not None:
        with contextlib.suppress(AiciError, TimeoutError):
            async with asyncio.timeout(_FIGURES_S):
                figures |= await model.service.client.call("stats")
    return figures


async def _ping(models: Models) -> None:
    """Wait for a sign of life of every engine, or so long that a hanging engine is known."""
    services = [model.service for model in models.all if model.service is not None]
    await asyncio.gather(*(service.client.ping(_ANSWER_S) for service in services))


async def _is_complete(models: Models) -> bool:
    """Return whether no stage of the model is missing. Only a server with one model divides it into stages."""
    if len(models.all) > 1 or (service := models.default.service) is None:
        return True
    try:
        async with asyncio.timeout(_ANSWER_S):
            pipeline = await service.client.call("cluster")
    except (AiciError, TimeoutError):
        return False
    return pipeline is None or pipeline["state"] == "ready"


async def _of_key(models: Models, caller: Principal) -> dict[str, int | float]:
    """Return the figures of a key; without what is left if another server holds the shared counts."""
    budgets = models.admission.budgets
    figures = budgets.used_by(caller.name)
    with contextlib.suppress(UnavailableError):
        figures |= {f"{name}_left": left for name, left in (await budgets.left(caller.name)).items()}
    return {f"key_{name}": value for name, value in figures.items()}


def _of_server(model: ServedModel) -> dict[str, int | float]:
    return {
        "engine_up": int(model.state is ModelState.LOADED),
        "engine_restarts": model.num_restarts,
        "model_loads": model.num_loads,
        "model_memory_bytes": model.memory_bytes if model.service is not None else 0,
        "admitted_sequences": model.admission.num_admitted,
        "queue_capacity": model.admission.capacity,
    }
