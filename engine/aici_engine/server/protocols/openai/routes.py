"""The routes of the OpenAI protocol."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from aici_engine.server.gateway import sse
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.model_use import UseModel
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.openai.chat_request import ChatRequest
from aici_engine.server.protocols.openai.chat_response import chat_chunks, chat_completion
from aici_engine.server.protocols.openai.completion_request import CompletionRequest
from aici_engine.server.protocols.openai.completion_response import completion, completion_chunks
from aici_engine.server.protocols.openai.response import events
from aici_engine.server.protocols.warnings import warning_headers

_STREAMED = RoutePolicy(is_streamed=True)


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["openai"], route_class=JsonRoute)

    @routes.post("/chat/completions")
    @with_policy(_STREAMED)
    async def chat(request: Request, body: ChatRequest, principal: Caller, use: UseModel) -> Response:
        """Answer a chat. With `stream`, the response is server-sent events: chunks, then `[DONE]`."""
        service = await use(body.model)
        turns = await sse.unless_gone(request, body.turns(service, principal))
        headers = warning_headers(turns[0].warnings)
        if body.stream:
            chunks = chat_chunks(service, principal, body, turns)
            return await sse.respond(request, events(chunks), headers)
        answer = await sse.unless_gone(request, chat_completion(service, principal, body, turns))
        return JSONResponse(answer, headers=headers)

    @routes.post("/completions")
    @with_policy(_STREAMED)
    async def complete(request: Request, body: CompletionRequest, principal: Caller, use: UseModel) -> Response:
        """Continue each prompt. With `stream`, the response is server-sent events: chunks, then `[DONE]`."""
        service = await use(body.model)
        prompts = await sse.unless_gone(request, body.prompts(service))
        turns = await sse.unless_gone(request, body.turns(service, principal, prompts))
        headers = warning_headers(turns[0].warnings)
        if body.stream:
            chunks = completion_chunks(service, principal, body, prompts, turns)
            return await sse.respond(request, events(chunks), headers)
        answer = await sse.unless_gone(request, completion(service, principal, body, prompts, turns))
        return JSONResponse(answer, headers=headers)

    return routes
