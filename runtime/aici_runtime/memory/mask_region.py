"""The mask region. The engine sees a mask as a row with an element per token; guests and workers use bits.

Every protocol has its layout:

    v1 rows   row i belongs to `ops[i]` of the latest mid_process; `vocab_size` elements: 0.0 = allowed, -100.0 = not
    v2 rows   a header and a table of owners, then rows (the wire's "mask slots") with some more elements than the
              vocabulary: 0.0 = allowed, -inf = not

Elements are f32, f16, bf16, or one bit (`bool`: least significant first, set = allowed). A `bool` row has 4 *
ceil(vocab_size / 32) bytes.
"""

import ctypes
from collections.abc import Callable, Sequence
from mmap import mmap
from struct import Struct, pack
from typing import Literal, get_args

from aici_base.ids import SeqId, TokenId

Dtype = Literal["f32", "f16", "bf16", "bool"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)

_TYPE_NUMBERS: dict[Dtype, int] = {"f32": 1, "f16": 2, "bf16": 3, "bool": 4}
_PACK: dict[Dtype, Callable[[float], bytes]] = {
    "f32": lambda value: pack("<f", value),
    "f16": lambda value: pack("<e", value),
    "bf16": lambda value: pack("<f", value)[2:],
}

_HEADER = Struct("<4I")
_MAGIC = 0xF01291B7
_OWNERS_AT = 64
_RESERVED_BYTES = 128
"""The header and the padding of the table, as upstream AICI counts them."""
_NOBODY = 0xFFFFFFFF


def mask_bytes(vocab_size: int) -> int:
    """Return the size of a mask of bits, in bytes: whole 32-bit words."""
    return 4 * ((vocab_size + 31) // 32)


class MaskBits:
    """Makes masks of bits for a vocabulary."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._size = mask_bytes(vocab_size)
        self._full, self._rest = divmod(vocab_size, 8)
        self.everything = ((1 << vocab_size) - 1).to_bytes(self._size, "little")
        self.nothing = bytes(self._size)

    def only(self, tokens: Sequence[TokenId]) -> bytes:
        """Return a mask that allows these tokens."""
        bits = bytearray(self._size)
        for token in tokens:
            bits[token >> 3] |= 1 << (token & 7)
        return bytes(bits)

    def trimmed(self, bits: bytearray) -> bytearray:
        """Clear the bits beyond the vocabulary, in place. Guests may set bits there."""
        end = self._full
        if self._rest:
            bits[end] &= (1 << self._rest) - 1
            end += 1
        if end < len(bits):
            bits[end:] = bytes(len(bits) - end)
        return bits


class MaskRows:
    """The rows of a layout. A row has a single writer at a time."""

    def __init__(
        self, memory: mmap, *, dtype: Dtype, vocab_size: int, num_elements: int, first_byte: int, denied: float
    ) -> None:
        """`num_elements`: the length of a row. Elements beyond the vocabulary are not allowed."""
        self._memory = memory
        self.first_byte = first_byte
        self.num_elements = num_elements
        self._encode: Callable[[bytes | bytearray], bytes | bytearray] | None = None
        if dtype == "bool":
            self.row_bytes = mask_bytes(num_elements)
            padding = bytes(self.row_bytes - mask_bytes(vocab_size))
            if padding:
                self._encode = lambda bits: bits + padding
        else:
            allow, deny = _PACK[dtype](0.0), _PACK[dtype](denied)
            self.row_bytes = len(deny) * num_elements
            self._encode = _Expansion(allow, deny, vocab_size, num_elements)

    def write(self, row: int, bits: bytes | bytearray) -> None:
        """Write a mask of `mask_bytes(vocab_size)` bytes without bits beyond the vocabulary."""
        self.put(row, self.encoded(bits))

    def encoded(self, bits: bytes | bytearray) -> bytes | bytearray:
        """Return a mask of bits in the format of the rows."""
        return bits if self._encode is None else self._encode(bits)

    def put(self, row: int, encoded: bytes | bytearray | memoryview) -> None:
        """Write a mask in the format of the rows."""
        start = self.first_byte + row * self.row_bytes
        self._memory[start : start + self.row_bytes] = encoded

    def clear(self, row: int) -> None:
        """Fill a row with zero bytes."""
        start = self.first_byte + row * self.row_bytes
        self._memory[start : start + self.row_bytes] = bytes(self.row_bytes)


class _Expansion:
    """Expands bits to numbers by table, eight tokens at a time: 0.4 ms for 49,152 tokens as f32. A worker has
    no numpy."""

    def __init__(self, allow: bytes, deny: bytes, vocab_size: int, num_elements: int) -> None:
        self._length = len(deny) * vocab_size
        self._table = [b"".join(allow if byte >> k & 1 else deny for k in range(8)) for byte in range(256)]
        self._padding = deny * (num_elements - vocab_size)

    def __call__(self, bits: bytes | bytearray) -> bytes:
        return b"".join(map(self._table.__getitem__, bits))[: self._length] + self._padding


class MaskRegion:
    """The mask region with both layouts, of which a runtime uses one.

    `without_bias` is the row of a guest that samples and returned no bias, so nothing is constrained. Float rows then
    hold -100.0 everywhere, as in upstream AICI; a `bool` row allows all tokens.
    """

    def __init__(self, memory: mmap, *, dtype: Dtype, vocab_size: int) -> None:
        self._memory = memory
        self.dtype = dtype
        self.bits = MaskBits(vocab_size)
        self.without_bias = self.bits.everything if dtype == "bool" else self.bits.nothing
        self.v1_rows = MaskRows(
            memory, dtype=dtype, vocab_size=vocab_size, num_elements=vocab_size, first_byte=0, denied=-100.0
        )
        self.v1_denied = b"" if dtype == "bool" else _PACK[dtype](-100.0)
        """The element of a v1 row for a token that is not allowed; empty for a row of bits. All others are zero."""
        num_elements = (vocab_size + 1000) & ~63
        size = MaskRows(
            memory, dtype=dtype, vocab_size=vocab_size, num_elements=num_elements, first_byte=0, denied=float("-inf")
        ).row_bytes
        self.num_v2_rows = max(0, (len(memory) - _RESERVED_BYTES) // (size + 4 * 2))
        self.v2_rows = MaskRows(
            memory,
            dtype=dtype,
            vocab_size=vocab_size,
            num_elements=num_elements,
            first_byte=_OWNERS_AT + 4 * (self.num_v2_rows + 3 & ~3),
            denied=float("-inf"),
        )

    def address(self) -> tuple[int, int]:
        """Return the address and the size in bytes of the region, for code in C."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory)), len(self._memory)

    def fits_rows(self, num_rows: int) -> bool:
        """Return whether the region has room for these v1 rows, with a byte to spare as in upstream AICI."""
        return num_rows * self.v1_rows.row_bytes < len(self._memory)

    def begin_v2_rows(self) -> None:
        """Write the header and the table of owners, with all v2 rows free."""
        header = _HEADER.pack(_MAGIC, self.v2_rows.row_bytes, self.num_v2_rows, _TYPE_NUMBERS[self.dtype])
        self._memory[: self.v2_rows.first_byte] = bytes(self.v2_rows.first_byte)
        self._memory[: len(header)] = header
        self.disown(range(self.num_v2_rows))

    def own(self, row: int, seq_id: SeqId) -> None:
        """Enter a sequence as the owner of a v2 row."""
        at = _OWNERS_AT + 4 * row
        self._memory[at : at + 4] = seq_id.to_bytes(4, "little")

    def disown(self, rows: Sequence[int]) -> None:
        """Free v2 rows."""
        for row in rows:
            self.own(row, SeqId(_NOBODY))
