"""Renders a conversation and its tools as prompt tokens."""

from collections.abc import Sequence

from aici_base.errors import UsageError
from aici_engine.chat.messages import PromptMessage, conversation_text
from aici_engine.chat.tools import Tool
from aici_engine.server.service.service import Service

__all__ = ["PromptMessage", "chat_prompt"]


async def chat_prompt(
    service: Service, messages: Sequence[PromptMessage], tools: Sequence[Tool] = (), *, answer: str = ""
) -> list[int]:
    """Return the prompt tokens of a conversation. `answer`: the beginning of the assistant's answer.

    Raises UsageError if the template refuses the messages, or if the prompt leaves no room for an answer.
    """
    if service.template is None:
        raise UsageError("this model has no chat template", hint="use /v1/completions")
    plain = service.vocabulary.plain
    text = conversation_text(service.template, plain, messages, tools) + plain(answer)
    # The template's text already contains the special tokens of the beginning.
    return await service.tokenize(text, add_special_tokens=False, room=1)
