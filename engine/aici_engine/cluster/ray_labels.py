"""A node daemon's address as labels of its Ray node. Imports no Ray.

A label's value has at most 63 letters, digits, `-`, `_` and `.`, and an address is longer and has other characters. So
the address is written in base 32 and cut into pieces.
"""

import base64
import itertools
import re
from collections.abc import Mapping

from aici_base.errors import UsageError

NAME = "aici-name"
_PIECE = "aici-address-"
_PIECE_LEN = 60
_VALUE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")


def to_labels(name: str, address: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node; `extra` are the user's own.

    Raises UsageError for a name or a label that Ray does not take.

    >>> to_labels("a", "tcp://h:1#K", {})
    {'aici-name': 'a', 'aici-address-0': 'ORRXAORPF5UDUMJDJM'}
    """
    for key, value in [("name", name), *extra.items()]:
        if not (_VALUE.fullmatch(key) and _VALUE.fullmatch(value)) or (key.startswith("aici-") and key in extra):
            raise UsageError(
                f"{key}={value} cannot be a label of a node",
                hint="use at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends; "
                "names of labels do not begin with aici-",
            )
    text = base64.b32encode(address.encode()).decode().rstrip("=")
    pieces = [text[start : start + _PIECE_LEN] for start in range(0, len(text), _PIECE_LEN)]
    return {**extra, NAME: name, **{f"{_PIECE}{number}": piece for number, piece in enumerate(pieces)}}


def from_labels(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name and the address of a node daemon, or None for a Ray node without one."""
    pieces = itertools.takewhile(lambda piece: piece, (labels.get(f"{_PIECE}{number}") for number in itertools.count()))
    text = "".join(piece for piece in pieces if piece)
    name = labels.get(NAME)
    if name is None or not text:
        return None
    try:
        return name, base64.b32decode(text + "=" * (-len(text) % 8)).decode()
    except ValueError:
        return None
