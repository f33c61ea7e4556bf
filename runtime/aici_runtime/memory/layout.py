"""Layouts of records in shared memory: named fields, whose offsets follow from the order of declaration."""

from typing import NamedTuple

WORD_BYTES = 4


class Field(NamedTuple):
    """A field of a record: name, offset from the start of the record, size."""

    name: str
    offset: int
    size_bytes: int


class Layout:
    """Declare the fields of a record in order; each declaration returns the offset of the field.

    >>> layout = Layout()
    >>> layout.word("number"), layout.word("state"), layout.area("message", 24), layout.size_bytes
    (0, 4, 8, 32)
    """

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.size_bytes = 0

    def word(self, name: str) -> int:
        """Declare a u32, aligned to 4 bytes as futexes require."""
        self.align(WORD_BYTES)
        return self.area(name, WORD_BYTES)

    def area(self, name: str, size_bytes: int) -> int:
        """Declare an array of bytes."""
        field = Field(name, self.size_bytes, size_bytes)
        self.fields.append(field)
        self.size_bytes += size_bytes
        return field.offset

    def align(self, num_bytes: int) -> None:
        """Let the next field begin at a multiple of `num_bytes`."""
        self.size_bytes += -self.size_bytes % num_bytes
