"""A reader of the token trie that a guest gets, from its description alone."""

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
"""Of these four tokens, the last of them the end, by the bits that a length takes."""


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
        """The tokens, by the table of offsets."""
        parts = [(entry >> length_bits, entry & (1 << length_bits) - 1) for entry in self._offsets]
        return [self._data[start : start + length] for start, length in parts]

    def walk(self) -> Iterator[tuple[bytes, Node]]:
        """Every node but the root with the bytes that lead to it, as a guest walks: by what is to be popped alone."""
        path = b""
        for node in self.nodes[1:]:
            path += bytes([node.byte])
            yield path, node
            if node.size == 1:
                path = path[: len(path) - node.num_parents]
