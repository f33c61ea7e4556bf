"""The caller of a route: a parameter `caller: Caller` receives the Principal of the request's API key.

`administrator: Administrator` does so for the routes that end engines, and refuses all others.
`ask_caller: AskCaller` is for answers that go on for long: a function that returns the Principal of the key as the key
file now says, and raises UnauthorizedError if the key is gone.
"""

import ipaddress
from collections.abc import Callable
from typing import Annotated, TypeAlias

from fastapi import Depends
from starlette.requests import HTTPConnection

from aici_base.errors import ForbiddenError
from aici_engine.server.service.admission import Principal


def caller(connection: HTTPConnection) -> Principal:
    """Return the Principal that `AuthenticationMiddleware` found for an HTTP request or a WebSocket."""
    principal: Principal = connection.scope["state"]["principal"]
    return principal


def administrator(connection: HTTPConnection) -> Principal:
    """Return the Principal of an administrator's key. A server without keys takes every caller on the server's own
    machine for an administrator. Raises ForbiddenError for other callers."""
    principal = caller(connection)
    if not principal.is_admin:
        raise ForbiddenError(f"the key {principal.name} may not do this", hint="use an administrator's key")
    if not principal.has_key and not _is_this_machine(connection):
        raise ForbiddenError(
            "a server without API keys does this for callers on its own machine only",
            hint="ask under 127.0.0.1, or start the server with --api-key-file",
        )
    return principal


def _is_this_machine(connection: HTTPConnection) -> bool:
    if connection.client is None:
        return False
    try:
        address = ipaddress.ip_address(connection.client.host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def ask_caller(connection: HTTPConnection) -> Callable[[], Principal]:
    """Return the function that looks the request's key up again. A call inside this process keeps its Principal."""
    state = connection.scope["state"]
    ask: Callable[[], Principal] = state.get("principal_now", lambda: state["principal"])
    return ask


Caller: TypeAlias = Annotated[Principal, Depends(caller)]
Administrator: TypeAlias = Annotated[Principal, Depends(administrator)]
AskCaller: TypeAlias = Annotated[Callable[[], Principal], Depends(ask_caller)]
