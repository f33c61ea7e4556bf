"""Bounds on the shape of a JSON body, checked before the body is validated.

The API process validates a body in one go, and serves nobody meanwhile. 600,000 messages in a body of 20 MB once held
everybody for 23 seconds, and 1,000,000 unknown fields for 17.
"""

from typing import Any, Final

from aici_base.errors import TooLargeError

MAX_OBJECTS: Final = 50_000
"""Messages, parts of messages, tools, and the objects of schemas."""
MAX_MESSAGES: Final = 10_000
MAX_KEYS: Final = 256
"""Keys of an object with named fields. Objects with names of the user's own, such as biases and schemas, may have
more."""


def check_keys(value: dict[str, Any]) -> None:
    """Raise ValueError for an object, with named fields, of too many keys: each unknown key would be an error."""
    if len(value) > MAX_KEYS:
        raise ValueError(f"an object has {len(value)} keys: at most {MAX_KEYS} are allowed")


def check_shape(body: bytes, document: Any) -> None:
    """Raise TooLargeError for a document with too many keys, or too many objects. `body`: its JSON text."""
    if isinstance(document, dict) and len(document) > MAX_KEYS:
        raise TooLargeError(f"the body has {len(document)} fields")
    if body.count(b"{") <= MAX_OBJECTS:  # at least as many as there are objects
        return
    left, todo = MAX_OBJECTS, [document]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            left -= 1
            if left < 0:
                raise TooLargeError(f"the body has more than {MAX_OBJECTS} objects")
            todo += [each for each in value.values() if isinstance(each, (dict, list))]
        elif isinstance(value, list):
            todo += [each for each in value if isinstance(each, (dict, list))]
