"""Check a regular expression with the parser of generation, before anything is loaded.

The parser is inside the guest `regex`; `controllers/guests/regex/README.md` describes the syntax.
"""

from dataclasses import dataclass

from aici_controllers.ask_guest import ask


@dataclass(frozen=True, slots=True)
class RegexProblem:
    """The reason for refusing a pattern; `position` counts code points from 0.

    `shown`: the lines in the guest's log: the message, the pattern near the position, and a caret below.
    """

    position: int
    message: str
    shown: str


def check_regex(pattern: str, *, search: bool = False) -> RegexProblem | None:
    """Return None if the guest `regex` accepts `pattern`. With `search`, `pattern` is read as a `pattern` of JSON
    Schema.

    Raise UnavailableError if the guests are not built.
    """
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        message = "a surrogate is not a character"
        return RegexProblem(error.start, message, f"regex error at position {error.start}: {message}")
    answer = ask("regex", {"pattern": pattern, "search": search})
    return RegexProblem(**answer) if "position" in answer else None
