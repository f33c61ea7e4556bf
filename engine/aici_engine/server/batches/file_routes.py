"""`/v1/files`: the files of requests and results, as OpenAI's clients upload and read them."""

import asyncio
from collections.abc import Iterator
from typing import IO, Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from aici_base.errors import UsageError
from aici_engine.server.errors import MissingFieldError, UnknownFieldError
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.multipart import FormField, read_form
from aici_engine.server.gateway.request_limits import body_file
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.service.batch_store import BatchStore, KeptFile, Order

MAX_FILE_BYTES: Final = 200 << 20
_FIELDS: Final = ("file", "purpose", "expires_after[anchor]", "expires_after[seconds]")
_TEXT: Final = {"type": "string"}
_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"const": "batch"},
        "expires_after[anchor]": {"const": "created_at"},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
    },
    "required": ["file", "purpose"],
    "additionalProperties": False,
}
_UPLOAD: Final = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
_CONTENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The bytes", "content": {"application/octet-stream": {"schema": _TEXT | {"format": "binary"}}}}
}


class FilesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    purpose: Literal["batch", "batch_output"] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Order = "desc"
    after: str = ""


class _Bytes(StreamingResponse):
    media_type = "application/octet-stream"


def router(store: BatchStore) -> APIRouter:
    routes = APIRouter(prefix="/v1/files", tags=["openai"])

    @routes.post("", openapi_extra=_UPLOAD)
    @with_policy(RoutePolicy(max_body_bytes=MAX_FILE_BYTES + (1 << 20), has_large_body=True))
    async def upload(request: Request, principal: Caller) -> dict[str, Any]:
        """Keep a file of requests for `/v1/batches`."""
        kind, body = request.headers.get("content-type", ""), body_file(request.scope)
        return await asyncio.to_thread(_upload, store, principal.name, kind, body)

    @routes.get("")
    @with_policy(RoutePolicy())
    def files(principal: Caller, query: Annotated[FilesQuery, Query()]) -> dict[str, Any]:
        """List the files of the key."""
        found, has_more = store.files(
            principal.name, purpose=query.purpose, after=query.after, limit=query.limit, order=query.order
        )
        return page([_shown(file) for file in found], has_more=has_more)

    @routes.get("/{file_id}")
    @with_policy(RoutePolicy())
    def retrieve(file_id: str, principal: Caller) -> dict[str, Any]:
        """Describe a file."""
        return _shown(store.file(principal.name, file_id))

    @routes.get("/{file_id}/content", response_class=_Bytes, responses=_CONTENT)
    @with_policy(RoutePolicy())
    def content(file_id: str, principal: Caller) -> StreamingResponse:
        """Return the bytes of a file."""
        file = store.file(principal.name, file_id)
        return _Bytes(_chunks(store, file_id), headers={"Content-Length": str(file.size_bytes)})

    @routes.delete("/{file_id}")
    @with_policy(RoutePolicy())
    def delete(file_id: str, principal: Caller) -> dict[str, Any]:
        """Delete a file. A file that a running batch reads is kept (409)."""
        store.delete_file(principal.name, file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    return routes


def page(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a page of a list."""
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **ends, "has_more": has_more}


def _upload(store: BatchStore, owner: str, content_type: str, body: IO[bytes]) -> dict[str, Any]:
    form = read_form(content_type, body)
    if unknown := [name for name in form if name not in _FIELDS]:
        name = unknown[0][:80]
        raise UnknownFieldError(f"the parameter {name} is not supported", hint=f"leave {name} out", param=name)
    for name in ("file", "purpose"):
        if name not in form:
            raise MissingFieldError(f"the parameter {name} is missing", param=name)
    if (purpose := _text(form, "purpose")) != "batch":
        raise UsageError(f"the purpose {purpose[:80]!r} is not supported", hint="use batch", param="purpose")
    file = form["file"]
    if not 0 < file.size_bytes <= MAX_FILE_BYTES:
        what = f"is larger than {MAX_FILE_BYTES >> 20} MiB" if file.size_bytes else "is empty"
        raise UsageError(f"the file {what}", param="file")
    filename = (file.filename or "upload.jsonl")[:255]
    kept = store.add_file(owner, filename=filename, purpose="batch", content=file, ttl_s=_ttl_s(form))
    return _shown(kept)


def _ttl_s(form: dict[str, FormField]) -> int | None:
    anchor, seconds = (_text(form, f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if not anchor and not seconds:
        return None
    if anchor != "created_at":
        raise UsageError("expires_after[anchor] must be created_at", param="expires_after[anchor]")
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) < 9 and 3600 <= int(seconds) <= 2592000):
        raise UsageError("expires_after[seconds] must be 3600 to 2592000", param="expires_after[seconds]")
    return int(seconds)


def _text(form: dict[str, FormField], name: str) -> str:
    return form[name].text() if name in form else ""


def _shown(file: KeptFile) -> dict[str, Any]:
    return {
        "id": file.file_id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def _chunks(store: BatchStore, file_id: str) -> Iterator[bytes]:
    number = 0
    while (piece := store.chunk(file_id, number)) is not None:
        yield piece
        number += 1
