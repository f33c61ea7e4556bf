"""The caller of a route: a parameter `caller: Caller` receives the Principal of the request's API key."""

from typing import Annotated, TypeAlias

from fastapi import Depends
from starlette.requests import HTTPConnection

from aici_engine.server.service.admission import Principal


def caller(connection: HTTPConnection) -> Principal:
    """Return the Principal that `AuthenticationMiddleware` found for an HTTP request or a WebSocket."""
    principal: Principal = connection.scope["state"]["principal"]
    return principal


Caller: TypeAlias = Annotated[Principal, Depends(caller)]
