"""What a differential run asks and finds."""

from dataclasses import dataclass
from typing import Any, Protocol


class Tool(Protocol):
    """The tool of a guest, built natively (NativeTool) or not (ToolGuest)."""

    def ask(self, question: object) -> Any:
        """Return the guest's answer. Raise NoAnswerError without one."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """`source`: the pattern, schema or grammar. `text`: the text on which the engines differ; may be empty."""

    source: str
    text: str
    why: str
