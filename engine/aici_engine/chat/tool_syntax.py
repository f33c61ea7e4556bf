"""The forms in which models write tool calls. The table is `SYNTAXES`; `tool_detection` says which form a template has.

A call is a head, which names the tool, the arguments as JSON, and a tail:

    hermes        <tool_call>\\n{"name": "f", "arguments": {}}\\n</tool_call>      Hermes, Qwen 2.5 and 3
    llama3        {"name": "f", "parameters": {}}                                Llama 3.1 to 3.3
    mistral       [TOOL_CALLS][{"name": "f", "arguments": {}}]                   Mistral 7B v0.3, Nemo, Small 3.1
    mistral_args  [TOOL_CALLS]f[ARGS]{}                                          Magistral, Devstral
    mistral_ids   [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}                        Mistral Small 3.2
    phi4          <|tool_call|>{"name": "f", "arguments": {}}<|/tool_call|>      Phi-4-mini
    functools     functools[{"name": "f", "arguments": {}}]                      Phi-4-mini, as vLLM prompts it
    granite       <|tool_call|>[{"name": "f", "arguments": {}}]                  Granite 3
    deepseek_v3   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f, a block of json, the two ends
    deepseek_v31  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}, the two ends
    generic       as hermes, and the system message explains the form            every other model
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from aici_engine.chat.tools import PastCall, compact_json, new_call_id

_CALL_ID = "{call_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The parts of a call that is no JSON object: the text before and after the tool's name, and after the arguments.

    `{call_id}` in `after_name` stands for the id of the call.
    """

    before_name: str = ""
    after_name: str
    tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSyntax:
    """How a model writes calls. Special tokens are written by name.

    `mark`: the text that begins the calls of an answer; `other_marks` begin calls, too. `opening`: from the mark to the
    first call. `between`: from one call to the next; None if an answer has one call. `closing`: after the last call.
    `key`: the member of a call with the arguments. `header`: the form of a call that is no JSON object.
    `is_whole_answer`: the marks count only at the beginning of an answer. `id_len`: the length of call ids, if fixed.
    `lesson`: the part of a prompt that tells this syntax, if the template's calls do not.
    """

    name: str
    mark: str
    opening: str
    between: str | None
    closing: str
    key: str = "arguments"
    header: Header | None = None
    other_marks: tuple[str, ...] = ()
    is_whole_answer: bool = False
    id_len: int | None = None
    lesson: str | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.mark, *self.other_marks)

    @property
    def tail(self) -> str:
        return "}" if self.header is None else self.header.tail

    def head(self, name: str, call_id: str = "") -> str:
        """Return the text of a call up to the arguments.

        >>> LLAMA3.head("f")
        '{"name": "f", "parameters": '
        """
        if self.header is not None:
            return f"{self.header.before_name}{name}{self.after_name(call_id)}"
        return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{self.key}": '

    def after_name(self, call_id: str) -> str:
        assert self.header is not None
        return self.header.after_name.replace(_CALL_ID, call_id)

    def head_pattern(self, name: str) -> re.Pattern[str]:
        """Return a pattern of `head`, with white space where JSON allows white space."""
        if self.header is not None:
            after = re.escape(self.header.after_name).replace(re.escape(_CALL_ID), r"\w*")
            return re.compile(re.escape(self.header.before_name + name) + after + r"\s*(?=\{)")
        text = re.escape(json.dumps(name, ensure_ascii=False))
        return re.compile(rf'\{{\s*"name"\s*:\s*{text}\s*,\s*"{self.key}"\s*:\s*(?=\{{)')

    def new_call_id(self) -> str:
        return new_call_id(self.id_len)

    def written(self, calls: Sequence[PastCall]) -> str:
        """Return calls as a model writes them. Where an answer has one call, each call stands in a separate line."""
        texts = (self._one_written(call) for call in calls)
        return self.opening + ("\n" if self.between is None else self.between).join(texts) + self.closing

    def _one_written(self, call: PastCall) -> str:
        if self.header is None:
            return compact_json({"name": call.name, self.key: call.arguments})
        return self.head(call.name, call.call_id) + compact_json(call.arguments) + self.tail


HERMES: Final = ToolSyntax(
    name="hermes",
    mark="<tool_call>",
    opening="<tool_call>\n",
    between="\n</tool_call>\n<tool_call>\n",
    closing="\n</tool_call>",
    lesson="<tool_call>",
)
GENERIC: Final = replace(HERMES, name="generic", lesson=None)
LLAMA3: Final = ToolSyntax(
    name="llama3",
    mark='{"name":',
    other_marks=('{ "name":', '{"type": "function"', "<|python_tag|>"),
    opening="",
    between=None,
    closing="",
    key="parameters",
    is_whole_answer=True,
    lesson='{"name": function name, "parameters":',
)
MISTRAL: Final = ToolSyntax(
    name="mistral",
    mark="[TOOL_CALLS]",
    opening="[TOOL_CALLS][",
    between=", ",
    closing="]",
    id_len=9,
    lesson="[TOOL_CALLS]",
)
MISTRAL_ARGS: Final = ToolSyntax(
    name="mistral_args",
    mark="[TOOL_CALLS]",
    opening="[TOOL_CALLS]",
    between="[TOOL_CALLS]",
    closing="",
    header=Header(after_name="[ARGS]"),
    id_len=9,
)
MISTRAL_IDS: Final = replace(MISTRAL_ARGS, name="mistral_ids", header=Header(after_name=f"[CALL_ID]{_CALL_ID}[ARGS]"))
PHI4: Final = ToolSyntax(
    name="phi4",
    mark="<|tool_call|>",
    opening="<|tool_call|>",
    between="<|/tool_call|><|tool_call|>",
    closing="<|/tool_call|>",
    lesson="<|tool_call|>{",
)
FUNCTOOLS: Final = ToolSyntax(
    name="functools", mark="functools[", opening="functools[", between=", ", closing="]", lesson="functools["
)
GRANITE: Final = ToolSyntax(
    name="granite", mark="<|tool_call|>", opening="<|tool_call|>[", between=", ", closing="]", lesson="<|tool_call|>"
)
DEEPSEEK_V31: Final = ToolSyntax(
    name="deepseek_v31",
    mark="<｜tool▁calls▁begin｜>",
    opening="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    between="<｜tool▁call▁end｜><｜tool▁call▁begin｜>",
    closing="<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    header=Header(after_name="<｜tool▁sep｜>"),
)
DEEPSEEK_V3: Final = replace(
    DEEPSEEK_V31,
    name="deepseek_v3",
    between="<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>",
    header=Header(before_name="function<｜tool▁sep｜>", after_name="\n```json\n", tail="\n```"),
)
SYNTAXES: Final = {
    syntax.name: syntax
    for syntax in (
        HERMES,
        MISTRAL,
        MISTRAL_ARGS,
        MISTRAL_IDS,
        PHI4,
        FUNCTOOLS,
        GRANITE,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        LLAMA3,
        GENERIC,
    )
}
"""The known syntaxes by name, in the order in which a template is compared with them."""

REFUSED: Final = {
    **dict.fromkeys(("qwen3_coder", "qwen3_xml"), "calls in XML, whose arguments are no JSON"),
    **dict.fromkeys(("pythonic", "llama4_pythonic"), "calls as Python, whose arguments are no JSON"),
    **dict.fromkeys(("gpt_oss", "openai", "harmony"), "channels, which divide the whole answer"),
}
"""Syntaxes by the names in other servers, and what no declaration of this table can say."""
