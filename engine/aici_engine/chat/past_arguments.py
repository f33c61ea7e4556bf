"""The arguments of a call that a client sends back. A token limit may have cut the call short."""

import json
from typing import Any, Final

_CLOSING: Final = {"{": "}", "[": "]"}


def read_arguments(text: str) -> dict[str, Any] | None:
    """Return arguments from JSON text. Of a text that was cut off, return the complete part.

    Of a string that was cut off, the beginning counts. None: the text is no beginning of a JSON object.

    >>> read_arguments('{"city": "Par')
    {'city': 'Par'}
    >>> read_arguments('{"a": [1, 2, {"b": tr')
    {'a': [1, 2, {}]}
    >>> read_arguments('[1]')
    """
    for candidate in (text or "{}", *_completions(text)):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _completions(text: str) -> tuple[str, str]:
    """Return the text with its end closed, and the text up to the last complete member or item, closed."""
    closing: list[str] = []
    complete_len = 0
    in_string = False
    at = 0
    while at < len(text):
        char = text[at]
        if in_string and char == "\\":
            at += 6 if text[at + 1 : at + 2] == "u" else 2
            if at > len(text):
                text = text[: text.rindex("\\")]
            continue
        at += 1
        if char == '"':
            in_string = not in_string
        elif in_string:
            continue
        elif char in _CLOSING:
            closing.append(_CLOSING[char])
            complete_len = at
        elif char in "]}" and closing:
            closing.pop()
        elif char == ",":
            complete_len = at - 1
    # A bracket that closed since then is followed by nothing but brackets: the first text is then right.
    ends = "".join(reversed(closing))
    return text + '"' * in_string + ends, text[:complete_len] + ends
