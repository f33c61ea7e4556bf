"""From the bytes of tokens to text, as they come."""

import codecs
from collections.abc import Sequence

from aici_engine.stop_strings import StopMatcher

ARROW = " ↩ "
"""Stands in a stream where tokens were removed, before what replaces them."""


class TextStream:
    """One sequence's output. Bytes of an incomplete character are held back until it is complete, and characters that
    may be the beginning of a stop until they are not. Once `stop` is set, nothing more is to be pushed."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.stop: str | None = None
        self._stops = stops
        self._pieces: list[bytes] = []
        self._decoder = _decoder()
        self._arrow_due = False
        self._matcher = StopMatcher(stops) if stops else None
        self._held = ""
        self._before_stop = ""

    def push(self, data: bytes) -> str:
        """Append a token's bytes; returns what the stream gains."""
        self._pieces.append(data)
        text = self._decoder.decode(data)
        return self._marked(text if self._matcher is None else self._release(text, self._matcher))

    def backtrack(self, num_tokens: int) -> None:
        """Forget the last tokens. The next text is announced by the arrow: what was emitted cannot be taken back."""
        num_sent = len(self._complete()) - len(self._held) if self._matcher else 0
        del self._pieces[max(0, len(self._pieces) - num_tokens) :]
        self._arrow_due = True
        # The removal may cut in two a character that was emitted whole: its first bytes wait again.
        self._decoder = _decoder()
        self._decoder.decode(b"".join(self._pieces)[-8:])
        if self._matcher:
            text = self._complete()
            self._held = text[num_sent:]
            self._matcher.restart(text)

    def fork(self) -> tuple["TextStream", str]:
        """A stream that goes on from here by itself, and with what it begins: the true text, but for what is held back.

        There what this one's listener has seen was never taken back, so no arrow is due.
        """
        copy = TextStream(self._stops)
        begin = copy.push(b"".join(self._pieces))
        copy._pieces = list(self._pieces)
        return copy, begin

    def finish(self) -> str:
        """What the stream gains at the end: a replacement character if the last one stayed incomplete."""
        if self.stop is not None:
            return ""
        return self._marked(self._held + self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The true text: all that was pushed and not removed, up to the stop."""
        if self.stop is not None:
            return self._before_stop
        return b"".join(self._pieces).decode("utf-8", "replace")

    def _release(self, text: str, matcher: StopMatcher) -> str:
        """What was held back, and `text`, but for what is to be held back now."""
        found = matcher.feed(text)
        waiting = self._held + text
        if found is None:
            num_sent = max(0, len(waiting) - matcher.held)
            self._held = waiting[num_sent:]
            return waiting[:num_sent]
        self.stop, end = found
        num_dropped = len(text) - end + len(self.stop)
        self._before_stop = self._complete()[:-num_dropped]
        # After a backtrack a part of the stop may have been sent long ago.
        return waiting[: max(0, len(waiting) - num_dropped)]

    def _complete(self) -> str:
        """All characters that are complete."""
        return _decoder().decode(b"".join(self._pieces))

    def _marked(self, text: str) -> str:
        if text and self._arrow_due:
            self._arrow_due = False
            return ARROW + text
        return text


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
