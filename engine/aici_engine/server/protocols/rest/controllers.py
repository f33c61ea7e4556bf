"""`/v1/controllers`: upload, list, tag, download and delete controllers. Disk access and compiling run in threads."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict

from aici_base.errors import QuotaError, UsageError
from aici_controllers.store import Store
from aici_engine.server.errors import StorageFullError, WrongMediaTypeError
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.error_responses import REST
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.turns import Turns
from aici_engine.server.service.upload_rate import UploadRate
from aici_runtime.modules.wasm_bytes import check_wasm

_WASM = {"type": "string", "format": "binary"}
_UPLOAD = {"requestBody": {"required": True, "content": {"application/wasm": {"schema": _WASM}}}}
_MODULE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The module", "content": {"application/wasm": {"schema": _WASM}}},
    304: {"description": "The client has the module already: If-None-Match names its id"},
}
_COMPILERS = 2
_POLICY = RoutePolicy(errors=REST)
_MEDIA_TYPES = frozenset({"application/wasm", "application/octet-stream"})
"""A web page of another site cannot send these without being asked (`gateway/web_pages.py`)."""
MAX_UPLOAD_BYTES = 32 << 20


class TagsRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    module_id: str
    tags: list[str]
    share: bool = False


class WasmResponse(Response):
    media_type = "application/wasm"


class MarkdownResponse(Response):
    media_type = "text/markdown"


def router(store: Store) -> APIRouter:
    routes = APIRouter(prefix="/v1/controllers", tags=["aici"], route_class=JsonRoute)
    compilers, rate = Turns(_COMPILERS, most_per_key=1), UploadRate()

    @routes.post("", openapi_extra=_UPLOAD)
    @with_policy(RoutePolicy(errors=REST, max_body_bytes=MAX_UPLOAD_BYTES))
    async def upload(request: Request, principal: Caller, share: bool = False) -> dict[str, Any]:
        """Upload and compile a controller. The body is the bytes of a WebAssembly module.

        The module id is the sha256 of the bytes. Uploading the same module again is not an error. With API keys, other
        keys see the module if `share` is true.
        """
        principal.check_upload()
        _check_media_type(request)
        wasm = await request.body()
        try:
            check_wasm(wasm, "the body", hint="send the bytes of a .wasm file")
        except UsageError as error:
            raise UsageError(error.message, hint=error.hint, param="body") from error
        rate.count(principal)
        shared = share or not principal.has_own_controllers
        try:
            module = await compilers.in_thread(
                principal.name, lambda: store.upload(wasm, principal.auth, shared=shared, limits=principal.storage)
            )
        except QuotaError as error:
            raise StorageFullError(error.message, hint=error.hint) from error
        told = asdict(module)
        return {"time": told.pop("time_ms"), **told}

    @routes.get("")
    @with_policy(_POLICY)
    async def modules(principal: Caller) -> dict[str, Any]:
        """List the controllers that the key sees: the server's own first, then the newest. `compiled_size` is null
        before compilation."""
        return {"controllers": [asdict(module) for module in await asyncio.to_thread(store.modules, principal.auth)]}

    @routes.get("/tags")
    @with_policy(_POLICY)
    async def tags(principal: Caller) -> dict[str, Any]:
        """List the tags of all controllers that the key sees, newest first, with the names of the server's own."""
        return {"tags": [asdict(tag) for tag in await asyncio.to_thread(store.tags, principal.auth)]}

    @routes.post("/tags")
    @with_policy(_POLICY)
    async def set_tags(body: TagsRequest, principal: Caller) -> dict[str, Any]:
        """Set tags of a module: all of them, or none and an error. The response lists the tags that were set.

        With API keys, other keys see the module and its tags if `share` is true.
        """
        principal.check_upload()
        if not body.tags:
            raise UsageError("tags must have at least one tag", param="tags")
        infos = await compilers.in_thread(
            principal.name, lambda: store.set_tags(body.module_id, body.tags, principal.auth, share=body.share)
        )
        return {"tags": [asdict(info) for info in infos]}

    @routes.delete("/tags/{tag}")
    @with_policy(_POLICY)
    async def remove_tag(tag: str, principal: Caller) -> dict[str, Any]:
        """Remove a tag. The module stays."""
        principal.check_upload()
        await asyncio.to_thread(store.remove_tag, tag, principal.auth)
        return {"tag": tag}

    @routes.get("/{name}", response_class=WasmResponse, responses=_MODULE)
    @with_policy(_POLICY)
    async def module(name: str, principal: Caller, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """Download the module with this id or tag. The header ETag is the module id."""
        principal.check_controller(name)
        module_id = await asyncio.to_thread(store.resolve, name, principal.auth)
        headers = {"ETag": f'"{module_id}"'}
        if if_none_match == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return WasmResponse(await asyncio.to_thread(store.read, module_id), headers=headers)

    @routes.get("/{name}/readme", response_class=MarkdownResponse)
    @with_policy(_POLICY)
    async def readme(name: str, principal: Caller) -> Response:
        """Return the README of the module with this id or tag, as Markdown: of a controller of the server, or the
        module's custom section `aici.readme`, which `aici ctrl build` makes of a project's README.md. 404 without one.
        """
        principal.check_controller(name)
        module_id = await asyncio.to_thread(store.resolve, name, principal.auth)
        return MarkdownResponse(await asyncio.to_thread(store.readme, module_id))

    @routes.delete("/{module_id}")
    @with_policy(_POLICY)
    async def remove(module_id: str, principal: Caller, force: bool = False) -> dict[str, Any]:
        """Delete a module. Only an uploader or an admin may do so. A module that other keys have uploaded stays theirs.

        A module with tags is kept (409), unless `force` is true: then the tags are removed, too.
        """
        principal.check_upload()
        removed = await asyncio.to_thread(store.remove, module_id, principal.auth, force=force)
        return {"module_id": module_id, "tags": removed}

    return routes


def _check_media_type(request: Request) -> None:
    """Raise WrongMediaTypeError unless the body is said to be a module.

    Upstream AICI's client names no type. A browser can be made to name none, too; but a browser names an origin.
    """
    named = request.headers.get("content-type")
    if named is None and "origin" not in request.headers:
        return
    if named is None or named.partition(";")[0].strip().lower() not in _MEDIA_TYPES:
        shown = f"Content-Type {named[:80]}" if named else "no Content-Type"
        raise WrongMediaTypeError(
            f"the body has {shown}, and a controller is application/wasm",
            hint="send the header Content-Type: application/wasm",
            param="body",
        )
