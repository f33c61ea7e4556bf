"""Read a JSON document part by part. Every error has the JSON pointer of its part, and unknown keys are errors."""

import difflib
import json
from collections.abc import Sequence
from typing import Any

Path = tuple[str | int, ...]
"""Keys and indexes, from the whole document down."""


class PartError(Exception):
    """A part of the document is wrong. The package catches the error."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def pointer_of(path: Path) -> str:
    """Return the JSON pointer (RFC 6901) of a path.

    >>> pointer_of(("format", "tags", 0, "a/b"))
    '/format/tags/0/a~1b'
    """
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


class JsonPart:
    """A value of the document, with its path. Keys that were asked for are known; `check_unused` refuses the others."""

    def __init__(self, value: Any, path: Path = ()) -> None:
        self.value = value
        self.path = path
        self._known: list[str] = []

    def error(self, message: str) -> PartError:
        return PartError(self.path, message)

    def unknown(self, what: str, name: str, names: Sequence[str]) -> PartError:
        """Return the error for a name that is not among `names`."""
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        return self.error(f"{what} {name!r} is not known: {hint}")

    def find(self, key: str) -> "JsonPart | None":
        """Return the value under a key; None without the key."""
        if not isinstance(self.value, dict):
            raise self.error("an object is expected here")
        self._known.append(key)
        return JsonPart(self.value[key], (*self.path, key)) if key in self.value else None

    def get(self, key: str) -> "JsonPart":
        if (part := self.find(key)) is None:
            raise self.error(f"{key} is missing")
        return part

    def check_unused(self) -> None:
        """Refuse a key that nothing asked for."""
        for key in self.value:
            if key not in self._known:
                raise self.unknown("the key", key, list(dict.fromkeys(self._known)))

    def items(self, *, empty: bool = True) -> list["JsonPart"]:
        if not isinstance(self.value, list):
            raise self.error("a list is expected here")
        if not self.value and not empty:
            raise self.error("the list is empty")
        return [JsonPart(item, (*self.path, at)) for at, item in enumerate(self.value)]

    def pair(self) -> tuple["JsonPart", "JsonPart"]:
        items = self.items()
        if len(items) != 2:
            raise self.error("a list of two is expected here")
        return items[0], items[1]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.error("a string is expected here")
        return self.value

    def all_texts(self, *, empty: bool = True) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items(empty=empty))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of the list under a key, none of which is empty; () without the key."""
        part = self.find(key)
        texts = () if part is None else part.all_texts()
        if part is not None and "" in texts:
            raise part.error("an empty string is in every text")
        return texts

    def flag(self, key: str, *, default: bool = False) -> bool:
        part = self.find(key)
        if part is None:
            return default
        if not isinstance(part.value, bool):
            raise part.error("true or false is expected here")
        return part.value

    def count(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < 0:
            raise self.error("a whole number from 0 is expected here")
        return self.value

    def parsed(self) -> Any:
        """Return the value; of a string, the JSON document in it."""
        if not isinstance(self.value, str):
            return self.value
        try:
            return json.loads(self.value)
        except (ValueError, RecursionError) as error:
            raise self.error(f"this string is not JSON: {error}") from error
