"""The word in AICI_NATIVE: which code in C runs. Kernels and loop of guests heed the word."""

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Final

from aici_base.errors import UsageError

VARIABLE: Final = "AICI_NATIVE"
OFF: Final = "off"
LEVELS: Final[Mapping[str, Sequence[str]]] = {
    "x86_64": ("avx2", "avx512", "avx512vnni", "avx512bf16"),
    "aarch64": ("neon", "dotprod"),
}
"""The CPU levels of the kernels by architecture; the best level is last."""
SWITCHED_OFF: Final = f"switched off by {VARIABLE}"


def chosen(usable: Sequence[str] | None = None) -> str:
    """Return `off`, a level of this architecture, or an empty text: no choice.

    `usable`: the levels that an error's hint names; by default all of this architecture. Raises UsageError for any
    other word.
    """
    word, known = os.environ.get(VARIABLE, ""), LEVELS.get(platform.machine(), ())
    if word and word not in (OFF, *known):
        names = ", ".join([OFF, *(known if usable is None else usable)])
        raise UsageError(f"{VARIABLE} is {word!r}, which is not a level of this machine", hint=f"use one of {names}")
    return word
