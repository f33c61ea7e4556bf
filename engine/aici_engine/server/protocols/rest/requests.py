"""`/v1/requests`: the running requests, and how to stop one. `/v1/key`: the rights of the caller's key."""

from typing import Any

from fastapi import APIRouter

from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.error_responses import REST
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.running_requests import RunningRequests

_POLICY = RoutePolicy(errors=REST, is_counted=False)
"""Not counted as requests: a key that has used up its requests can still stop one."""


def router(running: RunningRequests) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["aici"])

    @routes.get("/requests")
    @with_policy(_POLICY)
    async def requests(caller: Caller) -> dict[str, Any]:
        """List the requests of the key that wait or run now, oldest first; an administrator sees all.

        A request of several prompts, or with `n` above 1, is several entries with the same `request_id`, which is the
        header `x-request-id` of the HTTP request. `state` is waiting or running, `started` a time in seconds since
        1970.
        """
        return {"requests": [each.fields() for each in running.seen_by(caller)]}

    @routes.delete("/requests/{id}")
    @with_policy(_POLICY)
    async def stop(id: str, caller: Caller) -> dict[str, Any]:  # noqa: A002 the name in the path
        """Stop a running request of the key; an administrator may stop any. The client of the request gets the error
        `stopped` (status 410 where nothing was sent yet), and the request's pages are free before the next step."""
        return running.stop(id, caller).fields() | {"state": "stopped"}

    @routes.get("/key")
    @with_policy(_POLICY)
    async def key(caller: Caller) -> dict[str, Any]:
        """Return what the caller's key may do. A server without keys answers with all rights.

        `controllers`: regexes of the controller names that the key may use; null: all. `own_controllers`: other keys do
        not see this key's uploads, unless shared. A limit of null is no limit.
        """
        return {
            "name": caller.name,
            "admin": caller.is_admin,
            "upload": caller.may_upload,
            "templates": caller.may_template,
            "controllers": None if caller.controllers is None else [each.pattern for each in caller.controllers],
            "own_controllers": caller.has_own_controllers,
            "limits": {
                "requests_per_minute": caller.requests_per_minute,
                "max_concurrency": caller.max_concurrency,
                "tokens_per_minute": caller.tokens_per_minute,
                "guest_cpu_per_minute": caller.guest_cpu_per_minute,
                "cache_pages": caller.cache_pages,
                "uploads_per_hour": caller.uploads_per_hour,
            },
        }

    return routes
