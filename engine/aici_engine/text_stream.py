"""From the bytes of tokens to a stream of text."""

import codecs
from collections.abc import Sequence

from aici_engine.stop_strings import StopMatcher

ARROW = " ↩ "
"""Stands in a stream in place of removed tokens, before their replacement."""


class TextStream:
    """The output of one sequence.

    Bytes of an incomplete character are held back until the character is complete. Characters that may begin a stop
    string are held back until decided. `stop`: the stop string reached, or `None`; once set, do not call `push` again.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.stop: str | None = None
        self._pieces: list[bytes] = []
        self._decoder = _decoder()
        self._arrow_due = False
        self._matcher = StopMatcher(stops) if stops else None
        self._held = ""
        self._before_stop = ""

    def push(self, data: bytes) -> str:
        """Append the bytes of a token. Return the text that the stream gains."""
        self._pieces.append(data)
        text = self._decoder.decode(data)
        return self._marked(text if self._matcher is None else self._release(text, self._matcher))

    def backtrack(self, num_tokens: int) -> None:
        """Forget the last tokens. Emitted text cannot be taken back, so `ARROW` precedes the next text."""
        num_sent = len(self._complete()) - len(self._held) if self._matcher else 0
        del self._pieces[max(0, len(self._pieces) - num_tokens) :]
        self._arrow_due = True
        # The removal may split an emitted character: its first bytes wait for completion again.
        self._decoder = _decoder()
        self._decoder.decode(b"".join(self._pieces)[-8:])
        if self._matcher:
            text = self._complete()
            self._held = text[num_sent:]
            self._matcher.restart(text)

    def fork(self) -> tuple["TextStream", str]:
        """Return an independent copy, and the text at its beginning: the true text, without the held-back end.

        Listeners of the copy never saw removed tokens, so the copy begins without an arrow. A stream that has reached
        its stop string has no copy.
        """
        copy = TextStream()
        copy._pieces = list(self._pieces)
        copy._decoder.setstate(self._decoder.getstate())
        text = copy._complete()
        if self._matcher is None:
            return copy, text
        copy._matcher = self._matcher.copied()
        num_held = copy._matcher.held
        copy._held = text[len(text) - num_held :]
        return copy, text[: len(text) - num_held]

    def finish(self) -> str:
        """Return the text that the stream gains at the end. An incomplete character becomes a replacement character."""
        if self.stop is not None:
            return ""
        return self._marked(self._held + self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The true text: the text of all tokens pushed and not removed, up to the stop string."""
        if self.stop is not None:
            return self._before_stop
        return b"".join(self._pieces).decode("utf-8", "replace")

    def _release(self, text: str, matcher: StopMatcher) -> str:
        """Return the held-back characters and `text`, without the characters to hold back now."""
        found = matcher.feed(text)
        waiting = self._held + text
        if found is None:
            num_sent = max(0, len(waiting) - matcher.held)
            self._held = waiting[num_sent:]
            return waiting[:num_sent]
        self.stop, end = found
        num_dropped = len(text) - end + len(self.stop)
        self._before_stop = self._complete()[:-num_dropped]
        # After a backtrack, a part of the stop string may have been sent before.
        return waiting[: max(0, len(waiting) - num_dropped)]

    def _complete(self) -> str:
        """Return all complete characters."""
        return _decoder().decode(b"".join(self._pieces))

    def _marked(self, text: str) -> str:
        if text and self._arrow_due:
            self._arrow_due = False
            return ARROW + text
        return text


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
