"""Renders a conversation and its tools as prompt tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aici_base.errors import UsageError
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.thinking import Thinking, ThinkingTags, thinking_of_prompt
from aici_engine.chat.tool_syntax import GENERIC, ToolSyntax
from aici_engine.chat.tools import Tool
from aici_engine.server.service.service import Service

__all__ = ["ChatFormat", "ChatPrompt", "PromptMessage", "Rendering", "chat_format", "chat_prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How a request wants its messages rendered. `source`: a template instead of the model's. `owner`: the key that
    sends the template. `options`: further variables of the template. `keep_last`: how many tokens at the end of the
    prompt are kept; None keeps all."""

    source: str | None = None
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    keep_last: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """How the conversations of a request are written. `syntax`: of tool calls. `tags`: around thoughts, if any."""

    template: ChatTemplate
    syntax: ToolSyntax
    tags: ThinkingTags | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """The tokens before an answer, and the thought that the answer may begin with."""

    tokens: list[int]
    thinking: Thinking | None


async def chat_format(
    service: Service, source: str | None = None, *, owner: str = "", has_document: bool = False
) -> ChatFormat:
    """Return the format of the model's template, or of the template `source` of the key `owner`.

    `has_document`: the answer is a JSON document or calls. Such an answer tells a call by a mark in ordinary text; for
    a syntax without such a mark, the generic syntax takes its place.
    """
    settings = service.chat_settings

    def found() -> ChatFormat:
        template = _template(service, source)
        syntax = settings.syntax_of(template)
        if has_document and (syntax.is_whole_answer or service.vocabulary.special_token(syntax.mark) is not None):
            syntax = GENERIC
        return ChatFormat(template=template, syntax=syntax, tags=settings.tags_of(template))

    if source is not None:
        return await service.templates.with_request(owner, found)
    is_known = service.template is None or service.template.with_tools.is_probed
    return found() if is_known else await service.templates.with_own(found)


async def chat_prompt(
    service: Service,
    form: ChatFormat,
    messages: Sequence[PromptMessage],
    tools: Sequence[Tool] = (),
    *,
    answer: str = "",
    rendering: Rendering | None = None,
    budget: int | None = None,
) -> ChatPrompt:
    """Return the prompt of a conversation. `answer`: the beginning of the assistant's answer. `budget`: of the thought.

    Raises UsageError if the template refuses the messages, or if the prompt leaves no room for an answer.
    """
    how = rendering or Rendering()
    plain = service.vocabulary.plain

    def text() -> str:
        add = how.add_generation_prompt
        return conversation_text(
            form.template, plain, messages, tools, add_generation_prompt=add, options=how.options, syntax=form.syntax
        )

    templates = service.templates
    rendered = await (templates.with_own(text) if how.source is None else templates.with_request(how.owner, text))
    thinking = None
    if form.tags is not None and how.add_generation_prompt:
        thinking = thinking_of_prompt(form.tags, rendered, budget)
        if thinking is not None and answer:
            # An answer that has begun has no thought before it any more.
            rendered += form.tags.end + form.tags.after_end if thinking.is_open else ""
            thinking = None
    # The template's text already contains the special tokens of the beginning.
    text_and_answer = rendered + plain(answer)
    tokens = await service.tokenize(text_and_answer, add_special_tokens=False, room=1, keep_last=how.keep_last)
    return ChatPrompt(tokens=tokens, thinking=thinking)


def _template(service: Service, source: str | None) -> ChatTemplate:
    if source is not None:
        name = "this request"
        model = service.template
        render = service.templates.of_requests
        if model is None:
            return ChatTemplate(source, {}, name=name, render=render)
        return model.with_source(source, name, render)
    if service.template is None:
        raise UsageError("this model has no chat template", hint="use /v1/completions")
    return service.template
