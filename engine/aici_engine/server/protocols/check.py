"""`POST /v1/check`: checks a constraint without generating anything."""

from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict

from aici_base.errors import UsageError
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.constraint_fields import ConstraintFields, controller_call
from aici_engine.server.service.models import Models


class CheckRequest(ConstraintFields):
    """The constraint fields of any other request, one of them given."""

    model_config = ConfigDict(extra="forbid", strict=True)


def router(models: Models) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["aici"], route_class=JsonRoute)

    @routes.post("/check")
    @with_policy(RoutePolicy())
    async def check(body: CheckRequest, principal: Caller) -> dict[str, Any]:
        """Check a constraint: the warnings that a request with the constraint gets, or the error."""
        call = await controller_call(models, principal, body)
        if call is None:
            raise UsageError("there is no constraint", hint="give guided_json, for example", param="guided_json")
        return {"warnings": list(call.warnings)}

    return routes
