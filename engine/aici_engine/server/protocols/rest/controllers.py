"""`/v1/controllers`: upload, list, tag, download and delete controllers. Disk access and compiling run in threads."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict

from aici_base.errors import UsageError
from aici_controllers.store import Store
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.error_responses import REST
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.admission import Principal
from aici_runtime.channels.envelope import Auth
from aici_runtime.modules.wasm_bytes import check_wasm

_WASM = {"type": "string", "format": "binary"}
_UPLOAD = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _WASM}}}}
_MODULE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The module", "content": {"application/wasm": {"schema": _WASM}}},
    304: {"description": "The client has the module already: If-None-Match names its id"},
}
_COMPILERS = 2
_POLICY = RoutePolicy(errors=REST)


class TagsRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    module_id: str
    tags: list[str]


class WasmResponse(Response):
    media_type = "application/wasm"


def router(store: Store) -> APIRouter:
    routes = APIRouter(prefix="/v1/controllers", tags=["aici"], route_class=JsonRoute)
    compilers = asyncio.Semaphore(_COMPILERS)

    @routes.post("", openapi_extra=_UPLOAD)
    @with_policy(_POLICY)
    async def upload(request: Request, principal: Caller) -> dict[str, Any]:
        """Upload and compile a controller. The body is the bytes of a WebAssembly module.

        The module id is the sha256 of the bytes. Uploading the same module again is not an error.
        """
        principal.check_upload()
        wasm = await request.body()
        try:
            check_wasm(wasm, "the body", hint="send the bytes of a .wasm file")
        except UsageError as error:
            raise UsageError(error.message, hint=error.hint, param="body") from error
        async with compilers:
            module = asdict(await asyncio.to_thread(store.upload, wasm, _auth(principal)))
        return {"time": module.pop("time_ms"), **module}

    @routes.get("")
    @with_policy(_POLICY)
    async def modules() -> dict[str, Any]:
        """List the controllers: the server's own first, then the newest. `compiled_size` is null before compilation."""
        return {"controllers": [asdict(module) for module in await asyncio.to_thread(store.modules)]}

    @routes.get("/tags")
    @with_policy(_POLICY)
    async def tags() -> dict[str, Any]:
        """List all tags, newest first, including the names of the server's own controllers."""
        return {"tags": [asdict(tag) for tag in await asyncio.to_thread(store.tags)]}

    @routes.post("/tags")
    @with_policy(_POLICY)
    async def set_tags(body: TagsRequest, principal: Caller) -> dict[str, Any]:
        """Set tags of a module: all of them, or none and an error. The response lists the tags that were set."""
        principal.check_upload()
        if not body.tags:
            raise UsageError("tags must have at least one tag", param="tags")
        async with compilers:
            infos = await asyncio.to_thread(store.set_tags, body.module_id, body.tags, _auth(principal))
        return {"tags": [asdict(info) for info in infos]}

    @routes.delete("/tags/{tag}")
    @with_policy(_POLICY)
    async def remove_tag(tag: str, principal: Caller) -> dict[str, Any]:
        """Remove a tag. The module stays."""
        principal.check_upload()
        await asyncio.to_thread(store.remove_tag, tag, _auth(principal))
        return {"tag": tag}

    @routes.get("/{name}", response_class=WasmResponse, responses=_MODULE)
    @with_policy(_POLICY)
    async def module(name: str, principal: Caller, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """Download the module with this id or tag. The header ETag is the module id."""
        principal.check_controller(name)
        module_id = await asyncio.to_thread(store.resolve, name)
        headers = {"ETag": f'"{module_id}"'}
        if if_none_match == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return WasmResponse(await asyncio.to_thread(store.read, module_id), headers=headers)

    @routes.delete("/{module_id}")
    @with_policy(_POLICY)
    async def remove(module_id: str, principal: Caller, force: bool = False) -> dict[str, Any]:
        """Delete a module. Only the uploader or an admin may do so.

        A module with tags is kept (409), unless `force` is true: then the tags are removed, too.
        """
        principal.check_upload()
        removed = await asyncio.to_thread(store.remove, module_id, _auth(principal), force=force)
        return {"module_id": module_id, "tags": removed}

    return routes


def _auth(principal: Principal) -> Auth:
    return Auth(principal.name, is_admin=principal.is_admin)
