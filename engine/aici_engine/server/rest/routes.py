"""The routes of AICI REST."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import StreamingResponse

from aici_controllers.catalog import guest_names
from aici_engine.server import sse
from aici_engine.server.admission import Principal
from aici_engine.server.engine_process import MAX_MODULE_BYTES
from aici_engine.server.errors import ParameterError, TooLargeError
from aici_engine.server.rest.request import NO_CONTROLLER, RunRequest, generation_of
from aici_engine.server.rest.run import run_events
from aici_engine.server.service import Service
from aici_engine.server.who import who as asker

_WASM = {"type": "string", "format": "binary"}
_UPLOAD = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _WASM}}}}

Who = Annotated[Principal, Depends(asker)]


class TagsRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    module_id: str
    tags: list[str]


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["aici"])

    @routes.post("/controllers", openapi_extra=_UPLOAD)
    async def upload(request: Request, who: Who) -> dict[str, Any]:
        """The body is a WebAssembly module. The same module again is no error: its id is the hash of its bytes."""
        who.check_upload()
        wasm = await request.body()
        if len(wasm) > MAX_MODULE_BYTES:
            raise TooLargeError(f"the module is larger than {MAX_MODULE_BYTES >> 20} MiB")
        if not wasm.startswith(b"\0asm"):
            raise ParameterError("body", "the body is no WebAssembly module", hint="send the bytes of a .wasm file")
        module = await service.client.call("add_module", wasm=wasm, user=who.name, is_admin=who.is_admin)
        return {"time": module.pop("time_ms"), **module}

    @routes.get("/controllers/tags")
    async def tags() -> dict[str, Any]:
        return {"tags": await service.client.call("get_tags")}

    @routes.post("/controllers/tags")
    async def set_tags(body: TagsRequest, who: Who) -> dict[str, Any]:
        """Answers with the tags that were set."""
        who.check_upload()
        if not body.tags:
            raise ParameterError("tags", "tags must name at least one")
        if taken := set(body.tags) & {NO_CONTROLLER, *guest_names()}:
            raise ParameterError("tags", f"{min(taken)} is a name of the server's own", hint="choose another one")
        tags = await service.client.call(
            "set_tags", module_id=body.module_id, tags=body.tags, user=who.name, is_admin=who.is_admin
        )
        return {"tags": tags}

    @routes.post("/run")
    async def run(request: Request, body: RunRequest, who: Who) -> StreamingResponse:
        """Server-sent events: an `initial-run`, then a `run` for each step, then `[DONE]`."""
        generation = await sse.unless_gone(request, generation_of(service, who, body))
        with_tokens = body.return_tokens or body.logprobs is not None
        return await sse.respond(request, run_events(service, who, generation, with_tokens=with_tokens))

    return routes
