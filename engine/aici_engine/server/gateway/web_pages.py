"""Pages of other sites, open in a browser on this machine, must not be able to use the server.

A browser lets every page send requests to every server, and names the page in `Origin`. By DNS rebinding, a page can
even become a page of this server's origin: its host name first means the page's own server, then this machine. The name
stays in `Host`, and a browser cannot be made to write another.
"""

import ipaddress
import socket
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from aici_base.errors import ForbiddenError
from aici_engine.server.gateway.error_responses import refuse
from aici_engine.server.gateway.route_policy import RoutePolicies

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing. A page can send them, and the browser keeps the answers from the page."""


def names_of_this_machine(host: str) -> frozenset[str]:
    """Return the host names under which a server that listens on `host` is asked for."""
    own = socket.gethostname().lower()
    return frozenset({"localhost", host.lower(), own, f"{own.partition('.')[0]}.local"})


class WebPagesMiddleware:
    """Refuses pages of origins other than `origins` and the server's own: WebSockets, and all requests that may change
    or cost something. `hosts`: the host names that are served besides addresses; None or "*" serves all names.
    """

    def __init__(
        self, app: ASGIApp, *, policies: RoutePolicies, origins: Collection[str], hosts: Collection[str] | None
    ) -> None:
        self._app = app
        self._policies = policies
        self._origins = origins
        self._hosts = None if hosts is not None and "*" in hosts else hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and (error := self._reason(scope)) is not None:
            return await refuse(self._policies.errors_of(scope), error, scope, receive, send)
        return await self._app(scope, receive, send)

    def _reason(self, scope: Scope) -> ForbiddenError | None:
        headers = Headers(scope=scope)
        host = headers.get("host")
        if host is not None and self._hosts is not None and not _is_served(host, self._hosts):
            return ForbiddenError(
                f"this server is not {host}", hint="--allow-host adds a name of this machine; API keys make it needless"
            )
        if scope["type"] == "http" and scope["method"] in _READING:
            return None
        origin = headers.get("origin")
        if origin is None:
            is_foreign = headers.get("sec-fetch-site") == "cross-site"
        else:
            is_foreign = origin.partition("//")[2] != host and origin not in self._origins and "*" not in self._origins
        if not is_foreign:
            return None
        return ForbiddenError("a web page of another site asks", hint="--cors-origin allows the pages of an origin")


def _is_served(host: str, hosts: Collection[str]) -> bool:
    """Whether the name of a `Host` header, with or without a port, is an address or one of `hosts`."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    name = name.rstrip(".").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in hosts or name.endswith(".localhost")
    return True
