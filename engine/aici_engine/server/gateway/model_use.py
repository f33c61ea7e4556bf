"""The models that a request uses stay loaded until its response has ended, also where the response is a stream.

A route with a parameter `use: UseModel` gets the service of a model by `await use(body.model)`.
"""

import contextlib
from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from aici_engine.server.gateway import sse
from aici_engine.server.service.models import Models
from aici_engine.server.service.service import Service

_IN_STATE = "model_leases"


class ModelUseMiddleware:
    """Gives back the models of a request when the response has ended."""

    def __init__(self, app: ASGIApp, *, models: Models) -> None:
        self._app = app
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        async with contextlib.AsyncExitStack() as leases:
            scope.setdefault("state", {})[_IN_STATE] = (self._models, leases)
            await self._app(scope, receive, send)
        return None


class ModelUse:
    """Finds and loads the models that one request names."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._models: Models
        self._leases: contextlib.AsyncExitStack
        self._models, self._leases = request.scope["state"][_IN_STATE]

    async def __call__(self, name: str | None) -> Service:
        """Return the service of a model, loaded until the response has ended. Raises as `Models.lease`, and
        ClientGoneError if the client leaves while the model is loading."""
        is_loaded = self._models.find(name).service is not None
        lease = self._leases.enter_async_context(self._models.lease(name))
        return await lease if is_loaded else await sse.unless_gone(self._request, lease)


UseModel: TypeAlias = Annotated[ModelUse, Depends(ModelUse)]
