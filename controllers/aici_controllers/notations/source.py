"""The characters of a grammar, one after the other, with their places."""

from aici_controllers.notations.tree import NotationError, Place


class Cursor:
    """A cursor over a text. `offset` may be set back to a place that was read before."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self._starts = [0] + [at + 1 for at, char in enumerate(text) if char == "\n"]

    @property
    def done(self) -> bool:
        return self.offset >= len(self.text)

    def peek(self, ahead: int = 0) -> str:
        """Return the character; an empty text at the end."""
        at = self.offset + ahead
        return self.text[at] if at < len(self.text) else ""

    def starts(self, literal: str) -> bool:
        return self.text.startswith(literal, self.offset)

    def take(self, count: int = 1) -> str:
        taken = self.text[self.offset : self.offset + count]
        self.offset += len(taken)
        return taken

    def accept(self, literal: str) -> bool:
        if not self.starts(literal):
            return False
        self.offset += len(literal)
        return True

    def place(self, offset: int | None = None) -> Place:
        """Return the line and column of an offset; without an offset, of the cursor."""
        at = self.offset if offset is None else offset
        low, high = 0, len(self._starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle] <= at else (low, middle)
        return Place(low + 1, at - self._starts[low] + 1)

    def error(self, message: str, offset: int | None = None) -> NotationError:
        return NotationError(self.place(offset), message)
