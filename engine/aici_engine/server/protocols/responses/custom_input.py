"""Reads the input of a custom tool out of the call's arguments, `{"input": "..."}`, as the arguments arrive."""

import json
import re

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_NO_LOW = r"(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])"
_WHOLE = re.compile(rf'(?:[^"\\]|{_HIGH}(?:{_LOW}|{_NO_LOW})|(?!{_HIGH})\\u[0-9a-fA-F]{{4}}|\\[^u])*')
"""A text without half an escape, or half a surrogate pair, at its end."""


class InputReader:
    """Returns the text that each piece of the arguments adds to the input.

    >>> reader = InputReader()
    >>> reader.read('{"input": "a\\\\')
    'a'
    >>> reader.read('nb"}')
    '\\nb'
    """

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def read(self, arguments: str) -> str:
        self._held += arguments
        if not self._begun:
            if (head := _HEAD.match(self._held)) is None:
                return ""
            self._begun = True
            self._held = self._held[head.end() :]
        whole = _WHOLE.match(self._held)
        assert whole is not None  # the pattern matches the empty text
        # The quote that ends the text matches nothing, so what follows is held for ever.
        self._held = self._held[whole.end() :]
        text = str(json.loads(f'"{whole[0]}"', strict=False))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
