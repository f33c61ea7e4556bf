"""Checks a regular expression before anything is loaded for it, with the very parser that constrains generation.

The parser is inside the guest `regex`. The syntax is described in `controllers/guests/regex/README.md`.
"""

from dataclasses import dataclass

from aici_controllers.ask_guest import ask


@dataclass(frozen=True, slots=True)
class RegexProblem:
    """Why a pattern is refused; `position` counts code points from 0.

    `shown` is what the guest writes to its log: the message, the pattern near the position, and a caret under it.
    """

    position: int
    message: str
    shown: str


def check_regex(pattern: str, *, search: bool = False) -> RegexProblem | None:
    """None when the guest `regex` accepts `pattern`; with `search`, as a `pattern` of JSON Schema.

    UnavailableError when the guests are not built.
    """
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        message = "a surrogate is not a character"
        return RegexProblem(error.start, message, f"regex error at position {error.start}: {message}")
    answer = ask("regex", {"pattern": pattern, "search": search})
    return RegexProblem(**answer) if "position" in answer else None
