"""Who sends a request: for routes, as `Depends(who)`. The gate has let them in."""

from starlette.requests import HTTPConnection

from aici_engine.server.service.admission import Principal


def who(connection: HTTPConnection) -> Principal:
    """Of an HTTP request or a WebSocket."""
    principal: Principal = connection.scope["state"]["who"]
    return principal
