"""`GET /v1/models`: the models of the server, as OpenAI's and Anthropic's clients read them."""

import time
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter

from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel


def router(models: Models) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["openai"])
    started = int(time.time())

    def described(model: ServedModel) -> dict[str, Any]:
        return {
            "id": model.name,
            "object": "model",
            "created": started,
            "owned_by": "aici",
            "max_model_len": model.max_len,
            "state": model.state,
            "aliases": list(model.aliases),
            **({} if model.parent is None else {"parent": model.parent}),
            "type": "model",
            "display_name": model.name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
        }

    @routes.get("")
    @with_policy(RoutePolicy())
    async def list_models() -> dict[str, Any]:
        """List the models of this server, with their state. A model that was never loaded has no `max_model_len`."""
        found = [described(model) for model in models.all]
        pages = {"has_more": False, "first_id": found[0]["id"], "last_id": found[-1]["id"]}
        return {"object": "list", "data": found, **pages}

    @routes.get("/{name:path}")
    @with_policy(RoutePolicy())
    async def one_model(name: str) -> dict[str, Any]:
        """Describe a model, by its name or an alias."""
        return described(models.find(name))

    return routes
