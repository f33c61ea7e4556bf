"""Kept items as messages of a prompt.

Adjacent system messages become one message, because many templates take only one. An assistant's reasoning, the
following text and the following calls are one message. A template without a place for a reasoning leaves it out.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from aici_base.errors import UsageError
from aici_engine.chat.past_arguments import read_arguments
from aici_engine.chat.tools import PastCall
from aici_engine.server.protocols.chat.prompt import PromptMessage
from aici_engine.server.protocols.responses.items import Item

_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}


def messages_of(instructions: str | None, items: Sequence[Item]) -> list[PromptMessage]:
    """Return the messages of a conversation. Raises UsageError for a call whose arguments are no JSON object."""
    said = [PromptMessage(role="system", content=instructions)] if instructions is not None else []
    return list(_joined([*said, *(message for item in items if (message := _message(item)) is not None)]))


def _message(item: Item) -> PromptMessage | None:
    match item:
        case {"type": "message", "content": parts}:
            text = "".join(part.get("text", part.get("refusal")) for part in parts)
            return PromptMessage(role=_ROLES[item["role"]], content=text)
        case {"type": "reasoning", "content": parts}:
            return PromptMessage(role="assistant", reasoning="\n".join(part["text"] for part in parts))
        case {"type": "function_call", "call_id": call_id, "name": name}:
            return PromptMessage(role="assistant", calls=[PastCall(call_id, name, _arguments(item))])
        case {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text}:
            return PromptMessage(role="assistant", calls=[PastCall(call_id, name, {"input": text})])
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": call_id, "output": output}:
            text = output if isinstance(output, str) else "".join(part["text"] for part in output)
            return PromptMessage(role="tool", content=text, call_id=call_id)
    return None


def _arguments(item: Item) -> dict[str, object]:
    arguments = read_arguments(item["arguments"])
    if arguments is None:
        raise UsageError(
            f"the arguments of the call {item['call_id']} are not a JSON object",
            hint="send the arguments as the answer had them",
        )
    return arguments


def _joined(messages: Iterable[PromptMessage]) -> Iterator[PromptMessage]:
    for role, group in itertools.groupby(messages, key=lambda message: message.role):
        if role == "system":
            yield PromptMessage(role="system", content="\n\n".join(message.content for message in group))
        elif role == "assistant":
            yield from _of_the_assistant(list(group))
        else:
            yield from group


def _of_the_assistant(group: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    """A reasoning, or a text without one, begins a message. Calls belong to the message before them."""
    while group:
        num_begin = 2 if group[0].reasoning and len(group) > 1 and group[1].content else 1
        num = next((i for i, each in enumerate(group) if i >= num_begin and not each.calls), len(group))
        calls = [call for message in group[:num] for call in message.calls]
        content = "".join(message.content for message in group[:num_begin])
        yield PromptMessage(role="assistant", content=content, calls=calls, reasoning=group[0].reasoning)
        group = group[num:]
