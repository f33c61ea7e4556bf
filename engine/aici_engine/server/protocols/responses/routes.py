"""The routes of the Responses protocol."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from aici_base.errors import AiciError, UsageError
from aici_engine.server.gateway import sse
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.model_use import UseModel
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.chat.prompt import chat_format
from aici_engine.server.protocols.chat.turn import TurnRequest, run_turn
from aici_engine.server.protocols.responses.items import Item
from aici_engine.server.protocols.responses.output import ResponseOutput
from aici_engine.server.protocols.responses.request import (
    Conversation,
    Includable,
    PromptFields,
    ResponseRequest,
    conversation_of,
    prompt_of,
)
from aici_engine.server.protocols.responses.response import Json, opening
from aici_engine.server.protocols.warnings import warning_headers
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.response_store import KeptResponse, ResponseStore
from aici_engine.server.service.service import Service


class _Query(BaseModel):
    """`include` has no effect: a kept response has what its request asked for. The SDK writes `include[]`."""

    model_config = ConfigDict(extra="forbid")

    include: list[Includable] = []
    include_items: Annotated[list[Includable], Field(alias="include[]")] = []


class RetrieveQuery(_Query):
    stream: bool = False
    include_obfuscation: bool = False


class ListQuery(_Query):
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


def router(store: ResponseStore) -> APIRouter:
    routes = APIRouter(prefix="/v1/responses", tags=["openai"], route_class=JsonRoute)

    @routes.post("")
    @with_policy(RoutePolicy(is_streamed=True))
    async def create(request: Request, body: ResponseRequest, principal: Caller, use: UseModel) -> Response:
        """Answer a conversation of items. With `stream`, the response is server-sent events."""
        service = await use(body.model)
        conversation = await conversation_of(store, principal, body)
        turn = await sse.unless_gone(request, body.turn(service, principal, conversation))
        answering = _Answering(service, store, principal, body, conversation, turn)
        headers = warning_headers(turn.warnings)
        if body.stream:
            return await sse.respond(request, answering.events(), headers)
        return JSONResponse(await sse.unless_gone(request, answering.whole()), headers=headers)

    @routes.post("/input_tokens")
    @with_policy(RoutePolicy())
    async def input_tokens(body: PromptFields, principal: Caller, use: UseModel) -> dict[str, Any]:
        """Return the number of input tokens that `/v1/responses` would count for the same body."""
        service = await use(body.model)
        conversation = await conversation_of(store, principal, body)
        prompt = await prompt_of(service, body, conversation, await chat_format(service))
        return {"object": "response.input_tokens", "input_tokens": len(prompt.tokens)}

    @routes.get("/{response_id}")
    @with_policy(RoutePolicy())
    async def retrieve(response_id: str, principal: Caller, query: Annotated[RetrieveQuery, Query()]) -> dict[str, Any]:
        """Return a kept response."""
        if query.stream:
            raise UsageError("stream is not supported here", hint="create the response with stream", param="stream")
        return await store.response(principal.name, response_id)

    @routes.delete("/{response_id}")
    @with_policy(RoutePolicy())
    async def delete(response_id: str, principal: Caller) -> dict[str, Any]:
        """Delete a kept response."""
        await store.delete(principal.name, response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    @routes.post("/{response_id}/cancel")
    @with_policy(RoutePolicy())
    async def cancel(response_id: str, principal: Caller) -> dict[str, Any]:
        """Refuse: only responses in the background can be cancelled, and this server has none."""
        await store.response(principal.name, response_id)
        raise UsageError(
            f"the response {response_id} has ended: only a response in the background can be cancelled",
            hint="close the connection to cancel a response that is being generated",
        )

    @routes.get("/{response_id}/input_items")
    @with_policy(RoutePolicy())
    async def input_items(response_id: str, principal: Caller, query: Annotated[ListQuery, Query()]) -> dict[str, Any]:
        """List the items before a kept response's answer, those of earlier responses included."""
        items = await store.input_items(principal.name, response_id)
        # The SDK's type of a listed item has a status, also where the type of an output item has none.
        listed = [{"status": "completed", **item} for item in items]
        return _page(listed if query.order == "asc" else listed[::-1], query.limit, query.after)

    return routes


def _page(items: list[Item], limit: int, after: str) -> dict[str, Any]:
    start = 0
    if after:
        start = next((i + 1 for i, item in enumerate(items) if item["id"] == after), -1)
        if start < 0:
            raise UsageError(f"after: there is no item {after}", param="after")
    page = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": start + limit < len(items),
    }


class _Answering:
    """Runs the turn of a request, and keeps the response."""

    def __init__(
        self,
        service: Service,
        store: ResponseStore,
        principal: Principal,
        body: ResponseRequest,
        conversation: Conversation,
        turn: TurnRequest,
    ) -> None:
        self._service = service
        self._store = store
        self._principal = principal
        self._body = body
        self._conversation = conversation
        self._turn = turn
        self._output = ResponseOutput(
            opening(body, service.name),
            service.vocabulary,
            custom_tools=body.custom_tools,
            with_logprobs=body.wants_logprobs,
            warnings=turn.warnings,
        )

    async def whole(self) -> Json:
        """Return the response, once it has ended."""
        async with contextlib.aclosing(self._run()) as events:
            async for _ in events:
                pass
        return self._output.response

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events. A failure before the first event is raised; a later failure is the last event."""
        begun = False
        try:
            async with contextlib.aclosing(self._run()) as events:
                async for event in events:
                    begun = True
                    yield sse.event(event, name=event["type"])
        except AiciError as error:
            if not begun:
                raise
            failed = self._output.failed(error)
            yield sse.event(failed, name=failed["type"])

    async def _run(self) -> AsyncGenerator[Json, None]:
        """Yield events. The response is kept before the last event, so the client can refer to it at once."""
        begun = False
        async with (
            self._service.admit(self._principal, 1),
            contextlib.aclosing(run_turn(self._service, self._principal, self._turn)) as deltas,
        ):
            async for delta in deltas:
                events = list(self._output.of(delta)) if begun else [*self._output.begin(), *self._output.of(delta)]
                begun = True
                if self._output.response["status"] != "in_progress":
                    await self._keep()
                for event in events:
                    yield event

    async def _keep(self) -> None:
        if self._body.store:
            kept = KeptResponse(self._output.response, self._conversation.own, self._body.previous_response_id)
            await self._store.keep(self._principal.name, kept)
