"""Reads a call while the text of the call arrives."""

from collections.abc import Sequence

from aici_engine.chat.tool_syntax import ToolSyntax
from aici_engine.chat.tools import CallArguments, CallStart, Tool


class CallReader:
    """Parses a call that is a JSON object. The schema of the call puts the tool's name first.

    `text`: the text so far. `started`: the name of the called tool is known.
    """

    def __init__(self, tools: Sequence[Tool], syntax: ToolSyntax) -> None:
        self._heads = {tool.name: syntax.head_pattern(tool.name) for tool in tools}
        self._syntax = syntax
        self.started = False
        self._held = ""
        self.text = ""

    def read(self, text: str) -> list[CallStart | CallArguments]:
        self.text += text
        self._held += text
        deltas: list[CallStart | CallArguments] = []
        if not self.started:
            heads = ((name, head.match(self._held)) for name, head in self._heads.items())
            name, head = next((found for found in heads if found[1]), ("", None))
            if head is None:
                return []
            self.started = True
            self._held = self._held[head.end() :]
            deltas.append(CallStart(self._syntax.new_call_id(), name))
        # The last brace closes the call, not the arguments. Hold back the last character, because it may be that brace.
        self._held, ready = self._held[-1:], self._held[:-1]
        if ready:
            deltas.append(CallArguments(ready))
        return deltas
