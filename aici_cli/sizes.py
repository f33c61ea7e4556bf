"""Sizes as people write them."""

import re
from typing import Final

from aici_base.errors import UsageError

_UNITS: Final = {"B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_bytes(text: str, *, flag: str) -> int:
    """Return the number of bytes.

    Raises UsageError for anything but a number and a unit.

    >>> parse_bytes("1.5GiB", flag="--memory")
    1610612736
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", text.strip())
    if found is None or found[2] not in _UNITS or not (size := int(float(found[1]) * _UNITS[found[2]])):
        raise UsageError(f"{flag} {text!r} is not a size", hint="write a number and a unit, such as 12GiB or 900MB")
    return size
