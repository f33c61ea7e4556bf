"""Checks a regular expression before anything is loaded for it, with the very parser that constrains generation.

The parser is inside the guest `regex`. The syntax is described in `controllers/guests/regex/README.md`.
"""

from dataclasses import dataclass

from aici_controllers.tool import ask

_CONTEXT = 40


@dataclass(frozen=True, slots=True)
class RegexProblem:
    """Why a pattern is refused; `position` counts code points from 0."""

    position: int
    message: str

    def show(self, pattern: str) -> str:
        """The message, the pattern near the position, and a caret under it: what the guest writes to its log."""
        first = max(0, self.position - _CONTEXT)
        near = "".join("·" if c < " " or c == "\x7f" else c for c in pattern[first : self.position + _CONTEXT])
        caret = " " * (self.position - first) + "^"
        return f"regex error at position {self.position}: {self.message}\n  {near}\n  {caret}"


def check_regex(pattern: str, *, search: bool = False) -> RegexProblem | None:
    """None when the guest `regex` accepts `pattern`; with `search`, as a `pattern` of JSON Schema.

    UnavailableError when the guests are not built.
    """
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        return RegexProblem(error.start, "a surrogate is not a character")
    answer = ask("regex", {"pattern": pattern, "search": search})
    return RegexProblem(answer["position"], answer["message"]) if "position" in answer else None
