"""The routes of the Anthropic protocol."""

import contextlib
from collections.abc import AsyncGenerator

import orjson
from fastapi import APIRouter, Request, Response

from aici_engine.parameter import Api
from aici_engine.sampling_params import from_request
from aici_engine.server.gateway import sse
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.error_responses import ANTHROPIC
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.model_use import UseModel
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.anthropic.conversation import choice_of, format_of, prompt_of, tools_of
from aici_engine.server.protocols.anthropic.response import MessageEnding, opening, streamed, whole
from aici_engine.server.protocols.anthropic.schema import CountRequest, MessagesRequest
from aici_engine.server.protocols.chat.turn import Delta, TurnRequest, constraints_of_tools, run_turn
from aici_engine.server.protocols.constraint_fields import answer_constraint
from aici_engine.server.protocols.warnings import warning_headers
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Service


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/messages", tags=["anthropic"], route_class=JsonRoute)

    @routes.post("")
    @with_policy(RoutePolicy(errors=ANTHROPIC, is_streamed=True))
    async def create(request: Request, body: MessagesRequest, principal: Caller, use: UseModel) -> Response:
        """Generate the next message of a conversation. With `stream`, the response is server-sent events."""
        service = await use(body.model)
        turn = await sse.unless_gone(request, _turn_request(service, principal, body))
        deltas = _admitted(service, principal, turn)
        message = opening(service.name, len(turn.prompt))
        if body.context_management is not None:
            message["context_management"] = {"applied_edits": []}
        headers = warning_headers(turn.warnings)
        is_omitted = body.thinking is not None and body.thinking.display == "omitted"
        ending = MessageEnding(max_tokens=body.max_tokens, warnings=turn.warnings, hides_thoughts=is_omitted)
        if body.stream:
            return await sse.respond(request, streamed(deltas, message, ending), headers)
        answer = await sse.unless_gone(request, whole(deltas, message, ending))
        return Response(orjson.dumps(answer), media_type="application/json", headers=headers)

    @routes.post("/count_tokens")
    @with_policy(RoutePolicy(errors=ANTHROPIC))
    async def count_tokens(body: CountRequest, use: UseModel) -> dict[str, int]:
        """Return the number of input tokens that `/v1/messages` would count for the same body."""
        service = await use(body.model)
        prompt = await prompt_of(service, body, await format_of(service, body))
        return {"input_tokens": len(prompt.tokens)}

    return routes


async def _turn_request(service: Service, principal: Principal, body: MessagesRequest) -> TurnRequest:
    choice, tools = choice_of(body), tools_of(body)
    strict = any(tool.strict for tool in body.tools)
    form = await format_of(service, body)
    constraint = await answer_constraint(service, principal, body, choice, form.syntax)
    prompt = await prompt_of(service, body, form)
    constraints = await constraints_of_tools(
        service.constraints.of(principal), tools, choice, body.options(strict=strict), form.syntax
    )
    return TurnRequest(
        prompt=prompt.tokens,
        thinking=prompt.thinking,
        sampling=from_request(Api.ANTHROPIC, body),
        controller=constraint.controller,
        document=constraint.document,
        tools=tools,
        tool_choice=choice,
        parallel=not (body.tool_choice and body.tool_choice.disable_parallel_tool_use),
        syntax=form.syntax,
        calls=constraints.calls,
        arguments=constraints.arguments,
        is_whole=not body.stream,
    )


async def _admitted(service: Service, principal: Principal, turn: TurnRequest) -> AsyncGenerator[Delta, None]:
    async with service.admit(principal, 1), contextlib.aclosing(run_turn(service, principal, turn)) as deltas:
        async for delta in deltas:
            yield delta
