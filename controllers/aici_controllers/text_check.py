"""Checks the arguments of the guests `choices` and `substring`, with the very readers that constrain generation."""

from collections.abc import Sequence
from typing import Any

from aici_controllers.ask_guest import ask


def check_choices(choices: Sequence[str]) -> str | None:
    """Why the guest `choices` refuses these; None if it takes them. Its argument is their JSON array."""
    return _check("choices", {"choices": list(choices)}, *choices)


def check_substring(text: str, end: str = "") -> str | None:
    """Why the guest `substring` refuses this; None if it takes it. Its argument is the JSON `{"text", "end"}`."""
    return _check("substring", {"text": text, "end": end}, text, end)


def _check(guest: str, question: dict[str, Any], *texts: str) -> str | None:
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair is not a character"
    message: str | None = ask(guest, question).get("message")
    return message
