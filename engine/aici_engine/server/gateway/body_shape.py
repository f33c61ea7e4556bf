"""Bounds on the shape of JSON, checked before the JSON is parsed.

Parsing and validation hold the interpreter's lock, in steps that no other thread can interrupt, and so hold every
stream of the server. 600,000 messages in a body of 20 MB once held everybody for 23 seconds.
"""

from typing import Any, Final

from aici_base.errors import TooLargeError

MAX_VALUES: Final = 300_000
"""Values of a document, with the keys of its objects. A prompt of tokens has one value per token."""
MAX_CONTAINERS: Final = 50_000
"""Objects and lists: messages, parts of messages, tools, and all in schemas."""
MAX_MEMBERS: Final = 50_000
"""Keys of all objects together."""
MAX_MESSAGES: Final = 4096
MAX_KEYS: Final = 256
"""Keys of an object with named fields. Objects with names of the user's own, such as biases and schemas, may have
more."""


def checked_keys(value: Any) -> Any:
    """Return a value. Raises ValueError for an object of too many keys: each wrong key would be an error."""
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise ValueError(f"an object has {len(value)} keys: at most {MAX_KEYS} are allowed")
    return value


def check_shape(text: bytes, what: str = "the body", *, max_members: int = MAX_MEMBERS) -> None:
    """Raise TooLargeError for JSON with too many values, containers or members. `text` may be invalid JSON.

    No call of this function works longer than a hundredth of a second on a text of 8 MiB.
    """
    if _num_marks(text) <= MAX_CONTAINERS:  # with those in strings, so at least as many as there are
        return
    # What stays after the escapes are gone: quotes that begin and end strings.
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * MAX_VALUES:
        raise TooLargeError(f"{what} has more than {MAX_VALUES} values")
    text = b"".join(text.split(b'"')[::2])
    for most, name, found in (
        (MAX_CONTAINERS, "objects and lists", text.count(b"{") + text.count(b"[")),
        (max_members, "keys", text.count(b":")),
        (MAX_VALUES, "values", _num_marks(text)),
    ):
        if found > most:
            raise TooLargeError(f"{what} has more than {most} {name}")


def _num_marks(text: bytes) -> int:
    return sum(map(text.count, (b",", b":", b"{", b"[")))
