"""`POST /admin/drain`: an administrator ends the server in order."""

from typing import Any

from fastapi import APIRouter

from aici_engine.server.gateway.caller import Administrator
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.models import Models


def router(models: Models) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.post("/admin/drain")
    @with_policy(RoutePolicy(is_counted=False))
    async def drain(_: Administrator) -> dict[str, Any]:
        """Refuse new requests, and end the server after the running requests or after `--drain-timeout`, as SIGTERM
        does. Needs an administrator's key, or without keys a caller on the server's machine. The answer comes at once
        and has the number of running sequences.
        """
        models.admission.drain_begun.set()
        return {"draining": True, "sequences": models.num_admitted}

    return routes
