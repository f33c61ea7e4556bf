"""Check the arguments of the guests `choices` and `substring` with the readers of generation."""

from collections.abc import Sequence
from typing import Any

from aici_controllers.ask_guest import ask


def check_choices(choices: Sequence[str]) -> str | None:
    """Return why the guest `choices` refuses these choices; None if accepted. The argument is the choices as a JSON
    array."""
    return _check("choices", {"choices": list(choices)}, *choices)


def check_substring(text: str, end: str = "") -> str | None:
    """Return why the guest `substring` refuses the text; None if accepted. The argument is the JSON `{"text",
    "end"}`."""
    return _check("substring", {"text": text, "end": end}, text, end)


def _check(guest: str, question: dict[str, Any], *texts: str) -> str | None:
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair is not a character"
    message: str | None = ask(guest, question).get("message")
    return message
