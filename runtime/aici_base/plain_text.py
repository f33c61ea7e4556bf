"""Text of strangers, for terminals and logs."""

from collections.abc import Mapping
from functools import cache
from typing import Final

_CONTROLS: Final = (*range(32), *range(127, 160), 0x2028, 0x2029)  # with the line and paragraph separators


def without_controls(text: str, *, keep: str = "") -> str:
    r"""Return the text with control characters, but those of `keep`, as escapes: no line is forged, no terminal moved.

    >>> without_controls("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    return text.translate(_escapes(keep))


@cache
def _escapes(keep: str) -> Mapping[int, str]:
    return {code: ascii(chr(code))[1:-1] for code in _CONTROLS if chr(code) not in keep}
