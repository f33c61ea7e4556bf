"""Read the token trie of a guest, from the description of the format alone."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

NO_TOKEN = 0xFFFFFF
GOLDEN_TOKENS = ("a", "ab", "b", "")
GOLDEN = {
    8: "d36f8b551c0000002000000010000000200000000400000003000000"
    "ffffffff000400006100000001020000620100000201000062020000010100000100000002010000010300000004000061616262",
    10: "d36f8b551c0000002000000010000000200000000400000003000000"
    "ffffffff000400006100000001020000620100000201000062020000010100000100000002040000010c00000010000061616262",
}
"""The trie of four tokens, the last being the end-of-sequence token, by the number of length bits."""


@dataclass(frozen=True)
class Node:
    byte: int
    token: int | None
    size: int
    num_parents: int


class Trie:
    def __init__(self, blob: bytes) -> None:
        magic, header, node_bytes, offset_bytes, _, self.vocab_size, self.eos = struct.unpack_from("<7I", blob)
        assert (magic, header, node_bytes % 8, offset_bytes) == (0x558B6FD3, 28, 0, 4 * self.vocab_size)
        numbers = struct.unpack_from(f"<{node_bytes // 4}I", blob, 28)
        self.nodes = [
            Node(one & 0xFF, None if one >> 8 == NO_TOKEN else one >> 8, two >> 8, two & 0xFF)
            for one, two in zip(numbers[::2], numbers[1::2], strict=True)
        ]
        self._offsets = struct.unpack_from(f"<{self.vocab_size}I", blob, 28 + node_bytes)
        self._data = blob[28 + node_bytes + offset_bytes :]

    def texts(self, length_bits: int) -> list[bytes]:
        """Return the tokens from the table of offsets."""
        parts = [(entry >> length_bits, entry & (1 << length_bits) - 1) for entry in self._offsets]
        return [self._data[start : start + length] for start, length in parts]

    def walk(self) -> Iterator[tuple[bytes, Node]]:
        """Yield every node but the root with its bytes, walking as a guest does: only by the number of levels to
        pop."""
        path = b""
        for node in self.nodes[1:]:
            path += bytes([node.byte])
            yield path, node
            if node.size == 1:
                path = path[: len(path) - node.num_parents]
