"""Converts a request's messages to prompt tokens. Consecutive messages of one role become one, joined by newlines."""

import itertools
from collections.abc import Iterator, Sequence

from aici_base.errors import UsageError
from aici_engine.chat.thinking import thinking_options
from aici_engine.chat.tools import PastCall, Tool
from aici_engine.server.protocols.anthropic.schema import (
    CountRequest,
    MessageParam,
    MessagesRequest,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aici_engine.server.protocols.chat.prompt import (
    ChatFormat,
    ChatPrompt,
    PromptMessage,
    Rendering,
    chat_format,
    chat_prompt,
)
from aici_engine.server.protocols.chat.turn import Named, ToolChoice
from aici_engine.server.service.service import Service


async def format_of(service: Service, body: CountRequest) -> ChatFormat:
    """Return the format of a request's conversation and answer."""
    if isinstance(body, MessagesRequest):
        has_constraint = bool(body.asked())
    else:
        has_constraint = bool(body.output_config and body.output_config.format)
    has_document = has_constraint and choice_of(body) == "auto"
    return await chat_format(service, has_document=has_document)


async def prompt_of(service: Service, body: CountRequest, form: ChatFormat) -> ChatPrompt:
    """Return the prompt of a request. If the last message is the assistant's, the answer continues that text."""
    said = [PromptMessage(role="system", content=_joined(body.system))] if body.system else []
    for number, message in enumerate(body.messages):
        said.extend(_said(message, f"messages.{number}"))
    messages = list(_in_turn(said))
    answer = ""
    if messages[-1].role == "assistant":
        last = messages.pop()
        if last.calls:
            raise UsageError(
                "messages: the last message calls tools", hint="add a message with the results", param="messages"
            )
        answer = last.content
    tools = [] if choice_of(body) == "none" else tools_of(body)
    thinking = body.thinking
    rendering = Rendering() if thinking is None else Rendering(options=thinking_options(thinking.is_wanted))
    budget = None if thinking is None else thinking.budget
    return await chat_prompt(service, form, messages, tools, answer=answer, rendering=rendering, budget=budget)


def tools_of(body: CountRequest) -> list[Tool]:
    tools = {tool.name: Tool(tool.name, tool.description, tool.input_schema) for tool in body.tools}
    if len(tools) < len(body.tools):
        raise UsageError("tools: two tools have the same name", param="tools")
    return list(tools.values())


def choice_of(body: CountRequest) -> ToolChoice:
    """Return the tool choice of a request. With "none", the prompt does not show the tools."""
    choice = body.tool_choice
    if choice is None:
        return "auto" if body.tools else "none"
    if choice.type == "tool":
        if choice.name not in {tool.name for tool in body.tools}:
            raise UsageError(f"tool_choice: tools has no tool {choice.name}", param="tool_choice")
        return Named(choice.name)
    if choice.type == "any" and not body.tools:
        raise UsageError("tool_choice any requires tools", param="tool_choice")
    return "required" if choice.type == "any" else choice.type


def _said(message: MessageParam, where: str) -> Iterator[PromptMessage]:
    for number, block in enumerate(message.content or [TextBlock(type="text", text="")]):
        match block:
            case TextBlock():
                yield PromptMessage(role=message.role, content=block.text)
            case ThinkingBlock() if message.role == "assistant":
                yield PromptMessage(role="assistant", reasoning=block.thinking)
            case RedactedThinkingBlock() if message.role == "assistant":
                yield PromptMessage(role="assistant")
            case ToolUseBlock() if message.role == "assistant":
                yield PromptMessage(role="assistant", calls=[PastCall(block.id, block.name, block.input)])
            case ToolResultBlock() if message.role == "user":
                text = _joined(block.content)
                yield PromptMessage(
                    role="tool", content=f"Error: {text}" if block.is_error else text, call_id=block.tool_use_id
                )
            case _:
                field = f"{where}.content.{number}"
                raise UsageError(f"{field}: a {message.role} message cannot have a {block.type} block", param=field)


def _in_turn(said: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    for role, group in itertools.groupby(said, key=lambda message: message.role):
        if role == "tool":
            yield from group
        else:
            parts = list(group)
            content = "\n".join(part.content for part in parts if part.content)
            reasoning = "\n".join(part.reasoning for part in parts if part.reasoning)
            calls = [call for part in parts for call in part.calls]
            yield PromptMessage(role=role, content=content, calls=calls, reasoning=reasoning)


def _joined(texts: Sequence[TextBlock]) -> str:
    return "\n".join(block.text for block in texts)
