"""From the bytes of tokens to text, as they come."""

import codecs

ARROW = " ↩ "
"""Stands in a stream where tokens were removed, before what replaces them."""


class TextStream:
    """One sequence's output. Bytes of an incomplete character are held back until it is complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._decoder = _decoder()
        self._arrow_due = False

    def push(self, data: bytes) -> str:
        """Append a token's bytes; returns what the stream gains."""
        self._pieces.append(data)
        return self._marked(self._decoder.decode(data))

    def backtrack(self, num_tokens: int) -> None:
        """Forget the last tokens. The next text is announced by the arrow: what was emitted cannot be taken back."""
        del self._pieces[max(0, len(self._pieces) - num_tokens) :]
        self._arrow_due = True
        # The removal may cut in two a character that was emitted whole: its first bytes wait again.
        self._decoder = _decoder()
        self._decoder.decode(b"".join(self._pieces)[-8:])

    def finish(self) -> str:
        """What the stream gains at the end: a replacement character if the last one stayed incomplete."""
        return self._marked(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The true text: all that was pushed and not removed."""
        return b"".join(self._pieces).decode("utf-8", "replace")

    def _marked(self, text: str) -> str:
        if text and self._arrow_due:
            self._arrow_due = False
            return ARROW + text
        return text


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
