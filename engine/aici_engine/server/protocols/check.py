"""`POST /v1/check` and `/v1/check/source` check a constraint or a script without generating anything."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from aici_base.errors import UsageError
from aici_controllers.source_check import Language
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.constraint_fields import ConstraintFields, controller_call
from aici_engine.server.service.models import Models


class CheckRequest(ConstraintFields):
    """The constraint fields of any other request, one of them given."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SourceRequest(BaseModel):
    """`text`: a script, declarative steps, a pattern, a grammar (yacc's notation, Lark or GBNF), or a JSON Schema."""

    model_config = ConfigDict(extra="forbid", strict=True)

    language: Language
    text: str


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

    @routes.post("/check/source")
    @with_policy(RoutePolicy())
    async def check_source(body: SourceRequest, principal: Caller) -> dict[str, Any]:
        """Check a text as an editor does: all problems, each with line, column (from 1; 0 without a place), severity
        and message. Nothing of a script runs: only its syntax is checked."""
        problems = await models.constraints.of(principal).problems(body.language, body.text)
        return {"problems": [asdict(problem) for problem in problems]}

    return routes
