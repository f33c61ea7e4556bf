"""Renders a conversation and its tools as the text of a prompt.

If the model's chat template shows tools and calls in the wanted syntax, the template gets them in the usual shape
(OpenAI's). If not, the system message describes the tools and the syntax, the assistant's text contains the calls, and
user messages contain the results.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from aici_base.errors import UsageError
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.tool_detection import TemplateTools
from aici_engine.chat.tool_syntax import GENERIC, ToolSyntax
from aici_engine.chat.tools import PastCall, Tool, compact_json


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """A message of a conversation, the same for every protocol.

    `calls`: the tool calls of an assistant message, after the `content`. In a tool message, `content` is the result of
    the call `call_id`. `name`: who speaks. `reasoning`: the assistant's thought before the `content`.
    A template without a place for names or reasonings leaves them out.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    calls: Sequence[PastCall] = ()
    call_id: str = ""
    name: str = ""
    reasoning: str = ""


def plain_messages(plain: Callable[[str], str], messages: Any) -> Any:
    """Return messages, or any part of a message, with names of special tokens marked as plain text."""
    if isinstance(messages, str):
        return plain(messages)
    if isinstance(messages, list):
        return [plain_messages(plain, part) for part in messages]
    if isinstance(messages, Mapping):
        return {name: plain_messages(plain, part) for name, part in messages.items()}
    return messages


def conversation_text(
    template: ChatTemplate,
    plain: Callable[[str], str],
    messages: Sequence[PromptMessage],
    tools: Sequence[Tool] = (),
    *,
    add_generation_prompt: bool = True,
    options: Mapping[str, Any] | None = None,
    syntax: ToolSyntax = GENERIC,
) -> str:
    """Return the text of a conversation up to where the assistant's answer begins.

    Without `add_generation_prompt`, the text ends with the last message. `options`: further variables of the template.
    `syntax`: how the calls of the answer are written.

    `plain` marks names of special tokens in messages as text. Raises UsageError if there are no messages, or if the
    template refuses the messages.
    """
    if not messages:
        raise UsageError("there are no messages", hint="give at least one")
    marked = [_marked(message, plain) for message in messages]
    variables = {"add_generation_prompt": add_generation_prompt, "options": plain_messages(plain, options or {})}
    names = _names_of_calls(marked)
    template = template.with_tools if tools else template
    known = template.tools
    if known is not None and known.syntax.name == syntax.name:
        shaped = [_known(message, names, known) for message in marked]
        return template.render(shaped, tools=[_wrapped(tool) for tool in tools] or None, **variables)
    return template.render(_plain(marked, tools, syntax), **variables)


def _marked(message: PromptMessage, plain: Callable[[str], str]) -> PromptMessage:
    content, name, reasoning = map(plain, (message.content, message.name, message.reasoning))
    return replace(message, content=content, name=name, reasoning=reasoning)


def _names_of_calls(messages: Sequence[PromptMessage]) -> Mapping[str, str]:
    """Return call id → tool name. Raises UsageError for a result without an earlier call."""
    names: dict[str, str] = {}
    for message in messages:
        names.update({call.call_id: call.name for call in message.calls})
        if message.role == "tool" and message.call_id not in names:
            raise UsageError(
                f"a message has the result of the call {message.call_id!r}, but no message before it has that call",
                hint="put the assistant's message with the call before the result",
            )
    return names


def _known(message: PromptMessage, names: Mapping[str, str], known: TemplateTools) -> dict[str, Any]:
    shaped: dict[str, Any] = {"role": message.role, "content": message.content, **_annotations(message)}
    id_len = known.syntax.id_len
    if message.calls and known.hides_calls:
        shaped["content"] += known.syntax.written(message.calls)
    elif message.calls:
        shaped["tool_calls"] = [
            {"id": _fitting_id(call.call_id, id_len), "type": "function", "function": _function(call, known)}
            for call in message.calls
        ]
    if message.role == "tool":
        shaped |= {"tool_call_id": _fitting_id(message.call_id, id_len), "name": names[message.call_id]}
    return shaped


def _function(call: PastCall, known: TemplateTools) -> dict[str, Any]:
    arguments = compact_json(call.arguments) if known.has_text_arguments else call.arguments
    return {"name": call.name, "arguments": arguments}


def _fitting_id(call_id: str, id_len: int | None) -> str:
    """Return the id of a call for a template with ids of a fixed length: an id of another length becomes a digest."""
    if id_len is None or (len(call_id) == id_len and call_id.isascii() and call_id.isalnum()):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:id_len]


def _annotations(message: PromptMessage) -> dict[str, str]:
    """Return a message's name and reasoning, as templates call them; without an empty one."""
    named = {"name": message.name, "reasoning_content": message.reasoning}
    return {key: text for key, text in named.items() if text}


def _wrapped(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": _described(tool)}


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _plain(messages: Sequence[PromptMessage], tools: Sequence[Tool], syntax: ToolSyntax) -> list[dict[str, str]]:
    shaped: list[dict[str, str]] = []
    after_result = False
    for message in messages:
        role, text = message.role, message.content
        if role == "tool":
            role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
        text = "\n".join([text] * bool(text) + [syntax.written(message.calls)] * bool(message.calls))
        if after_result and role == "user":
            # Many templates require alternating user and assistant messages.
            shaped[-1]["content"] += f"\n{text}"
        else:
            shaped.append({"role": role, "content": text, **_annotations(message)})
        after_result = message.role == "tool"
    if tools:
        if shaped[0]["role"] != "system":
            shaped.insert(0, {"role": "system", "content": ""})
        system = shaped[0]
        system["content"] = f"{system['content']}\n\n{_taught(tools, syntax)}".lstrip("\n")
    return shaped


def _taught(tools: Sequence[Tool], syntax: ToolSyntax) -> str:
    described = "\n".join(json.dumps(_described(tool), ensure_ascii=False) for tool in tools)
    return f"""\
You can call tools. These are their names, what they do, and the JSON Schemas of their arguments:
{described}

To call a tool, write its name and its arguments as JSON {_form(syntax)}, and nothing after that:
{syntax.opening}{_example(syntax)}{syntax.closing}
What it returns comes back between <tool_response> and </tool_response>. Call a tool only if it helps."""


def _form(syntax: ToolSyntax) -> str:
    return "between two marks" if syntax.opening and syntax.closing else "in this form"


def _example(syntax: ToolSyntax) -> str:
    if syntax.header is None:
        return f'{{"name":"...","{syntax.key}":{{...}}}}'
    return syntax.head("...", "0" * (syntax.id_len or 1)) + "{...}" + syntax.tail
