"""`GET /replicas`, and the administrator's routes to drain a replica and let it rejoin."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter

from aici_base.errors import UsageError
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.fleet.replica import Replica
from aici_engine.server.gateway.caller import Administrator
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel

_POLICY: Final = RoutePolicy(is_counted=False)


def router(models: Models) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/replicas")
    @with_policy(_POLICY)
    async def all_replicas() -> dict[str, Any]:
        """Return the replicas of all models: state, processors, load, and the figures of the engine if it answers.

        `state` is standby, starting, up, hanging, restarting, draining, drained or failed. `open`: sequences that wait
        or run; `waiting`: those without a part of an answer. `expected_cached_tokens`: tokens of prompts that the
        router expected in the replica's cache. `node`: the machine, if not the server's. A model without `--replicas`
        has one replica.
        """
        of_models = await asyncio.gather(*(_of_model(model) for model in models.all))
        return {"replicas": [each for replicas in of_models for each in replicas]}

    @routes.post("/admin/replicas/{number}/drain")
    @with_policy(_POLICY)
    async def drain(_: Administrator, number: int, model: str | None = None) -> dict[str, Any]:
        """Send no more requests to a replica of a model, by default of the first, and end its engine after the last
        request. Needs an administrator's key, or without keys a caller on the server's machine.

        The answer comes at once: the replica is "draining", and "drained" when its engine has ended. 409 for the last
        replica that is up.
        """
        fleet = _fleet(models.find(model))
        fleet.drain(number)
        return _status(models.find(model).name, fleet.find(number))

    @routes.post("/admin/replicas/{number}/rejoin")
    @with_policy(_POLICY)
    async def rejoin(_: Administrator, number: int, model: str | None = None) -> dict[str, Any]:
        """Let a drained or failed replica take requests again, with a new engine. Needs an administrator's key, or
        without keys a caller on the server's machine.

        The answer comes at once: the replica is "starting", and "up" when its engine is loaded.
        """
        fleet = _fleet(models.find(model))
        fleet.rejoin(number)
        return _status(models.find(model).name, fleet.find(number))

    return routes


async def of_models(models: Models) -> dict[str, list[dict[str, Any]]]:
    """Return the replicas of every model that has several, with the figures of their engines."""
    fleets = [model for model in models.all if model.fleet is not None]
    found = await asyncio.gather(*(_of_model(model) for model in fleets))
    return {model.name: replicas for model, replicas in zip(fleets, found, strict=True)}


def _fleet(model: ServedModel) -> ReplicaFleet:
    if model.fleet is None:
        raise UsageError(f"the model {model.name} has no replicas now", hint="start the server with --replicas 2")
    return model.fleet


async def _of_model(model: ServedModel) -> list[dict[str, Any]]:
    if (fleet := model.fleet) is not None:
        return list(await asyncio.gather(*(_described(model.name, each) for each in fleet.replicas)))
    only = {"state": model.engine_state, "open": model.num_streams, "restarts": model.num_restarts}
    return [{"model": model.name, "replica": 1} | only]


async def _described(model: str, replica: Replica) -> dict[str, Any]:
    engine = await replica.stats() if replica.client.is_ready else None
    return _status(model, replica) | {"engine": engine}


def _status(model: str, replica: Replica) -> dict[str, Any]:
    status = replica.status()
    return {
        "model": model,
        "replica": status.replica,
        "state": status.state,
        "node": status.node,
        "cpus": status.cpus,
        "threads": status.num_threads,
        "open": status.num_open,
        "waiting": status.num_waiting,
        "oldest_wait_s": round(status.oldest_wait_s, 3),
        "restarts": status.num_restarts,
        "requests": status.num_requests,
        "prompt_tokens": status.prompt_tokens,
        "expected_cached_tokens": status.expected_tokens,
    }
