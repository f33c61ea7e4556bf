"""`/v1/grammars`: the shipped grammars, as texts that a request's `guided_grammar` takes."""

import asyncio
from typing import Final

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from aici_controllers.catalog import grammar_names, grammar_path
from aici_engine.server.gateway.error_responses import REST
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy

_POLICY: Final = RoutePolicy(errors=REST)


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/grammars", tags=["aici"])

    @routes.get("")
    @with_policy(_POLICY)
    async def grammars() -> dict[str, list[str]]:
        """List the names of the shipped grammars."""
        return {"grammars": await asyncio.to_thread(grammar_names)}

    @routes.get("/{name}", response_class=PlainTextResponse)
    @with_policy(_POLICY)
    async def grammar(name: str) -> str:
        """Return the text of a shipped grammar, in the syntax `y`: a value for `guided_grammar`."""
        return await asyncio.to_thread(lambda: grammar_path(name).read_text())

    return routes
