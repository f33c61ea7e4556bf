"""A request's messages as a conversation. Turns of one role in a row are one, their texts joined by newlines."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aici_engine.server.anthropic.schema import CountRequest, TextBlock, ToolResultBlock, ToolUseBlock
from aici_engine.server.anthropic.schema import Message as MessageParam
from aici_engine.server.chat.prompt import Message, chat_prompt
from aici_engine.server.chat.tools import Call, Tool
from aici_engine.server.chat.turn import Named, ToolChoice
from aici_engine.server.errors import ParameterError
from aici_engine.server.service import Service


async def prompt_of(service: Service, body: CountRequest) -> list[int]:
    """If the last message is the assistant's, the answer goes on from there."""
    messages = [Message(role="system", content=_joined(body.system))] if body.system else []
    for number, message in enumerate(body.messages):
        for said in _said(message, f"messages.{number}"):
            _add(messages, said)
    answer = ""
    if messages[-1].role == "assistant":
        last = messages.pop()
        if last.calls:
            raise ParameterError("messages", "the last message calls tools", hint="their results must follow")
        answer = last.content
    tools = [] if choice_of(body) == "none" else tools_of(body)
    return await chat_prompt(service, messages, tools, answer=answer)


def tools_of(body: CountRequest) -> list[Tool]:
    tools = {tool.name: Tool(tool.name, tool.description, tool.input_schema) for tool in body.tools}
    if len(tools) < len(body.tools):
        raise ParameterError("tools", "two tools have the same name")
    return list(tools.values())


def choice_of(body: CountRequest) -> ToolChoice:
    """Tools that must not be used are not shown to the model either."""
    choice = body.tool_choice
    if choice is None:
        return "auto" if body.tools else "none"
    if choice.type == "tool":
        if choice.name not in {tool.name for tool in body.tools}:
            raise ParameterError("tool_choice", f"there is no tool {choice.name} in tools")
        return Named(choice.name)
    if choice.type == "any" and not body.tools:
        raise ParameterError("tool_choice", "a tool is to be used, but there are no tools")
    return "required" if choice.type == "any" else choice.type


def _said(message: MessageParam, where: str) -> Iterator[Message]:
    for number, block in enumerate(message.content):
        match block:
            case TextBlock():
                yield Message(role=message.role, content=block.text)
            case ToolUseBlock() if message.role == "assistant":
                yield Message(role="assistant", calls=[Call(block.id, block.name, block.input)])
            case ToolResultBlock() if message.role == "user":
                text = _joined(block.content)
                yield Message(
                    role="tool", content=f"Error: {text}" if block.is_error else text, call_id=block.tool_use_id
                )
            case _:
                field = f"{where}.content.{number}"
                raise ParameterError(field, f"{field}: a {message.role} message has no blocks of type {block.type}")


def _add(messages: list[Message], said: Message) -> None:
    last = messages[-1] if messages else None
    if last is None or last.role != said.role or said.role == "tool":
        messages.append(said)
    else:
        content = "\n".join(filter(None, (last.content, said.content)))
        messages[-1] = replace(last, content=content, calls=[*last.calls, *said.calls])


def _joined(texts: Sequence[TextBlock]) -> str:
    return "\n".join(block.text for block in texts)
