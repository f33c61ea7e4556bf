"""How a server reads and writes chats where the chat template leaves a choice."""

from dataclasses import dataclass

from aici_base.errors import UsageError
from aici_engine.chat.template import ChatTemplate
from aici_engine.chat.thinking import ThinkingTags, named_tags, tags_of_template
from aici_engine.chat.tool_syntax import GENERIC, REFUSED, SYNTAXES, ToolSyntax


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """`tool_syntax`: a name of `SYNTAXES`, or auto for the template's own, else the generic one. `reasoning_parser`: a
    name of thinking tags, auto for the template's own, or none if thoughts are part of the text.

    Raises UsageError for an unknown name.
    """

    tool_syntax: str = "auto"
    reasoning_parser: str = "auto"

    def __post_init__(self) -> None:
        if self.tool_syntax != "auto" and self.tool_syntax not in SYNTAXES:
            names = ", ".join(SYNTAXES)
            if self.tool_syntax in REFUSED:
                said = f"the tool syntax {self.tool_syntax} is not supported: it has {REFUSED[self.tool_syntax]}"
                raise UsageError(said, hint=f"use auto or generic, which every model gets explained; known are {names}")
            raise UsageError(f"the tool syntax {self.tool_syntax} is not known", hint=f"use auto, {names}")
        if self.reasoning_parser not in ("none", "auto"):
            named_tags(self.reasoning_parser)

    def syntax_of(self, template: ChatTemplate) -> ToolSyntax:
        """Return the syntax of the calls in an answer."""
        known = template.with_tools.tools
        if self.tool_syntax == "auto":
            return GENERIC if known is None else known.syntax
        if known is not None and known.syntax.name == self.tool_syntax:
            return known.syntax
        return SYNTAXES[self.tool_syntax]

    def tags_of(self, template: ChatTemplate) -> ThinkingTags | None:
        """Return the tags around thoughts; None if thoughts are not told apart."""
        if self.reasoning_parser == "none":
            return None
        return (
            tags_of_template(template.source) if self.reasoning_parser == "auto" else named_tags(self.reasoning_parser)
        )
