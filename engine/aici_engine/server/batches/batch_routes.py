"""`/v1/batches`: files of requests, answered when there is nothing else to compute."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from aici_base.errors import UsageError
from aici_engine.server.batches.file_routes import page
from aici_engine.server.batches.line import ENDPOINTS
from aici_engine.server.gateway.body_shape import checked_keys
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.batch_store import BatchStore, KeptBatch

_Text = Annotated[str, Field(max_length=512)]
_Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], _Text], Field(max_length=16), BeforeValidator(checked_keys)
]
_TIMES: Final = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


class ExpiresAfter(StrictBody):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2592000)]


class BatchRequest(StrictBody):
    """`output_expires_after`: when the files of results are forgotten, counted from the end of the batch."""

    input_file_id: Annotated[str, Field(max_length=80)]
    endpoint: str
    completion_window: Literal["24h"]
    metadata: _Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: str = ""


def router(store: BatchStore) -> APIRouter:
    routes = APIRouter(prefix="/v1/batches", tags=["openai"], route_class=JsonRoute)

    @routes.post("")
    @with_policy(RoutePolicy())
    def create(body: BatchRequest, principal: Caller) -> dict[str, Any]:
        """Answer each line of a file, at low priority, within a day."""
        if body.endpoint not in ENDPOINTS:
            hint = f"use {' or '.join(ENDPOINTS)}"
            raise UsageError(f"the endpoint {body.endpoint[:80]} has no batches", hint=hint, param="endpoint")
        if store.file(principal.name, body.input_file_id).purpose != "batch":
            raise UsageError(f"{body.input_file_id} was not uploaded for a batch", param="input_file_id")
        kept = {
            "endpoint": body.endpoint,
            "completion_window": body.completion_window,
            "metadata": body.metadata,
        }
        expiry = body.output_expires_after
        made = store.add_batch(
            principal.name, body.input_file_id, kept, output_ttl_s=None if expiry is None else expiry.seconds
        )
        return _shown(made)

    @routes.get("")
    @with_policy(RoutePolicy())
    def batches(principal: Caller, query: Annotated[BatchesQuery, Query()]) -> dict[str, Any]:
        """List the batches of the key, newest first."""
        found, has_more = store.batches(principal.name, after=query.after, limit=query.limit)
        return page([_shown(batch) for batch in found], has_more=has_more)

    @routes.get("/{batch_id}")
    @with_policy(RoutePolicy())
    def retrieve(batch_id: str, principal: Caller) -> dict[str, Any]:
        """Return a batch: status, counts, and the files of the results."""
        return _shown(store.batch(principal.name, batch_id))

    @routes.post("/{batch_id}/cancel")
    @with_policy(RoutePolicy())
    def cancel(batch_id: str, principal: Caller) -> dict[str, Any]:
        """End a batch. Results so far become files."""
        return _shown(store.cancel(principal.name, batch_id))

    return routes


def _shown(batch: KeptBatch) -> dict[str, Any]:
    body = batch.body
    counts = {
        "total": body.get("num_lines", 0),
        "completed": batch.num_completed,
        "failed": batch.num_failed,
    }
    return {
        "id": batch.batch_id,
        "object": "batch",
        "endpoint": body["endpoint"],
        "errors": body.get("errors"),
        "input_file_id": batch.input_file,
        "completion_window": body["completion_window"],
        "status": batch.status,
        "output_file_id": body.get("output_file_id"),
        "error_file_id": body.get("error_file_id"),
        "created_at": body["created_at"],
        "expires_at": batch.expires_at,
        **{f"{name}_at": body.get(f"{name}_at") for name in _TIMES},
        "request_counts": counts,
        "usage": body.get("usage"),
        "metadata": body["metadata"],
    }
