"""Finds out how a chat template writes tool calls: the template renders a conversation with a call, which is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from aici_base.errors import UsageError
from aici_engine.chat.rendering import CostlyTemplateError
from aici_engine.chat.tool_syntax import SYNTAXES, ToolSyntax

_NAME, _KEY, _VALUE, _ID = "aici_probe", "aici_key", "aici_value", "aiciprobe"
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {_KEY: {"type": "string", "description": "A text."}}},
    },
}
_USER = {"role": "user", "content": "Hello"}
_ARGUMENTS = re.compile(rf'\{{\s*"{_KEY}"\s*:\s*"{_VALUE}"\s*\}}')
_OTHER_CALLS = "<function="
"""Calls in XML, as of Qwen3-Coder, which are not supported."""


@dataclass(frozen=True, slots=True)
class TemplateTools:
    """How a template shows calls. `has_text_arguments`: the template wants the arguments of a call as JSON text.

    `hides_calls`: the template tells the model of tools, and leaves out the calls of earlier messages.
    """

    syntax: ToolSyntax
    has_text_arguments: bool = False
    hides_calls: bool = False


class TemplateRendering(Protocol):
    def __call__(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str: ...


def template_tools(render: TemplateRendering) -> TemplateTools | None:
    """Return how a template shows calls. None if the template shows no tools, or calls in an unknown syntax."""
    without, told = _rendered(render, [_USER], None), _rendered(render, [_USER], [_TOOL])
    if _NAME not in told:
        return None
    hides_calls = _hides_calls(render, told)
    for arguments in ({_KEY: _VALUE}, f'{{"{_KEY}": "{_VALUE}"}}'):
        text = _rendered(render, _talk(arguments), [_TOOL])
        for syntax in SYNTAXES.values():
            if (opening := _opening(syntax, text)) is not None:
                return TemplateTools(replace(syntax, opening=opening), isinstance(arguments, str))
    if _OTHER_CALLS in told:
        return None
    for syntax in SYNTAXES.values():
        if syntax.lesson is not None and syntax.lesson in told and syntax.lesson not in without:
            return TemplateTools(syntax, hides_calls=hides_calls)
    return None


def _hides_calls(render: TemplateRendering, told: str) -> bool:
    """Return whether a template leaves out calls: neither the name of the called tool nor an argument is shown."""
    text = _rendered(render, _talk({_KEY: _VALUE})[:2], [_TOOL])
    return bool(text) and _VALUE not in text and text.count(_NAME) <= told.count(_NAME)


def _talk(arguments: Any) -> list[Mapping[str, Any]]:
    call = {"id": _ID, "type": "function", "function": {"name": _NAME, "arguments": arguments}}
    return [
        _USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": _ID, "name": _NAME},
    ]


def _rendered(
    render: TemplateRendering, messages: Sequence[Mapping[str, Any]], tools: list[dict[str, Any]] | None
) -> str:
    try:
        return render(messages, tools=tools)
    except CostlyTemplateError:
        raise
    except UsageError:
        return ""


def _opening(syntax: ToolSyntax, text: str) -> str | None:
    """Return the text from the mark to the call of the probe; None if the text has no such call."""
    for head in syntax.head_pattern(_NAME).finditer(text):
        if _ARGUMENTS.match(text, head.end()) is None:
            continue
        if not syntax.opening:
            return ""
        start = text.rfind(syntax.mark, 0, head.start())
        opening = text[start : head.start()]
        if start >= 0 and "".join(opening.split()) == "".join(syntax.opening.split()):
            return opening
    return None
