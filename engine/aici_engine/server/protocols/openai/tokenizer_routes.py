"""`/tokenize`, `/detokenize` and `/tokenizer_info`, as vLLM has them."""

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from aici_base.errors import UsageError
from aici_engine.prompt_check import check_prompt_tokens
from aici_engine.server.errors import LongPromptError, about
from aici_engine.server.gateway.body_shape import MAX_MESSAGES
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.model_use import UseModel
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.chat.prompt import chat_format, chat_prompt
from aici_engine.server.protocols.openai.messages import ChatMessage, ToolSpec, neutral_tools
from aici_engine.server.protocols.openai.prompt_fields import ConversationFields
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Service

_MAX_CHARS = 1 << 20
"""More than any context; a longer text would keep a processor busy for long."""


class TokenizeRequest(ConversationFields):
    """`prompt` or `messages`. `add_special_tokens`: of a prompt, by default true; a chat template writes its own."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    tools: list[ToolSpec] = Field(default_factory=list)
    add_special_tokens: bool | None = None
    return_token_strs: bool = False

    async def tokens(self, service: Service, principal: Principal) -> list[int]:
        if (self.prompt is None) == (self.messages is None):
            raise UsageError("a request has a prompt or messages", param="prompt")
        if self.prompt is not None:
            if len(self.prompt) > _MAX_CHARS:
                problem = f"the prompt has {len(self.prompt)} characters: at most {_MAX_CHARS} are read"
                raise LongPromptError(problem, param="prompt")
            special = self.add_special_tokens is not False
            with about("prompt"):
                return await asyncio.to_thread(service.vocabulary.encode, self.prompt, add_special_tokens=special)
        if self.add_special_tokens:
            raise UsageError(
                "add_special_tokens and messages together", hint="leave it out", param="add_special_tokens"
            )
        with about("messages"):
            messages, answer, rendering = self.conversation(principal, self.messages or [])
            tools = neutral_tools(self.tools)
            form = await chat_format(service, self.chat_template, owner=principal.name)
            prompt = await chat_prompt(service, form, messages, tools, answer=answer, rendering=rendering)
            return prompt.tokens


class DetokenizeRequest(StrictBody):
    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]


def router() -> APIRouter:
    routes = APIRouter(tags=["openai"], route_class=JsonRoute)

    @routes.post("/tokenize")
    @with_policy(RoutePolicy())
    async def tokenize(body: TokenizeRequest, principal: Caller, use: UseModel) -> Response:
        """Return the tokens of a text, or of a conversation as the model sees it.

        A text may be longer than the context.
        """
        service = await use(body.model)
        tokens = await body.tokens(service, principal)
        answer: dict[str, Any] = {"count": len(tokens), "max_model_len": service.info.max_len, "tokens": tokens}
        answer["token_strs"] = None
        if body.return_token_strs:
            answer["token_strs"] = await asyncio.to_thread(lambda: list(map(service.vocabulary.name_of, tokens)))
        return Response(orjson.dumps(answer), media_type="application/json")

    @routes.post("/detokenize")
    @with_policy(RoutePolicy())
    async def detokenize(body: DetokenizeRequest, use: UseModel) -> dict[str, str]:
        """Return the text of tokens. Special tokens are written by their names."""
        service = await use(body.model)
        vocab_size = service.info.vocab_size

        def text() -> str:
            check_prompt_tokens(body.tokens, vocab_size, param="tokens")
            return service.vocabulary.decode_with_names(body.tokens)

        return {"prompt": await asyncio.to_thread(text)}

    @routes.get("/tokenizer_info")
    @with_policy(RoutePolicy())
    async def tokenizer_info(use: UseModel, model: str | None = None) -> dict[str, Any]:
        """Return the settings of a model's tokenizer, with its chat template; by default of the first model."""
        service = await use(model)
        template = {} if service.template is None else {"chat_template": service.template.source}
        return {"tokenizer_class": "PreTrainedTokenizerFast", **service.vocabulary.settings, **template}

    return routes
