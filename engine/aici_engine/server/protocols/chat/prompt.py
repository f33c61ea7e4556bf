"""Renders a conversation and its tools as prompt tokens."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aici_base.errors import UsageError
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.tools import Tool
from aici_engine.server.service.service import Service

__all__ = ["PromptMessage", "Rendering", "chat_prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How a request wants its messages rendered. `source`: a template instead of the model's. `options`: further
    variables of the template. `keep_last`: how many tokens at the end of the prompt are kept; None keeps all."""

    source: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    keep_last: int | None = None


async def chat_prompt(
    service: Service,
    messages: Sequence[PromptMessage],
    tools: Sequence[Tool] = (),
    *,
    answer: str = "",
    rendering: Rendering | None = None,
) -> list[int]:
    """Return the prompt tokens of a conversation. `answer`: the beginning of the assistant's answer.

    Raises UsageError if the template refuses the messages, or if the prompt leaves no room for an answer.
    """
    how = rendering or Rendering()
    plain = service.vocabulary.plain

    def text() -> str:
        template = _template(service, how.source)
        add = how.add_generation_prompt
        return conversation_text(template, plain, messages, tools, add_generation_prompt=add, options=how.options)

    # A template of the request's own may take long.
    rendered = text() if how.source is None else await asyncio.to_thread(text)
    # The template's text already contains the special tokens of the beginning.
    return await service.tokenize(rendered + plain(answer), add_special_tokens=False, room=1, keep_last=how.keep_last)


def _template(service: Service, source: str | None) -> ChatTemplate:
    if source is not None:
        name = "this request"
        model = service.template
        return ChatTemplate(source, {}, name=name) if model is None else model.with_source(source, name)
    if service.template is None:
        raise UsageError("this model has no chat template", hint="use /v1/completions")
    return service.template
