"""Which tokens are the same word: `Jonas` at the beginning of a text and ` Jonas` within a text are two tokens."""

from array import array
from collections.abc import Sequence


def token_stems(token_bytes: Sequence[bytes]) -> Sequence[int]:
    """Return the stem of each token: the token without a leading space, or the token itself if no token is so.

    `token_bytes`: by token, empty for special tokens.

    >>> list(token_stems([b"Jonas", b" Jonas", b" Lind", b" "]))
    [0, 0, 2, 3]
    """
    tokens = {text: token for token, text in enumerate(token_bytes) if text}
    return array("I", (tokens.get(text.removeprefix(b" "), token) for token, text in enumerate(token_bytes)))
