"""The serialized token trie that guests walk. `abi.py` has the layout; the two encodings differ only in the token
table.

Nodes stand in depth-first preorder, children ordered by byte. `num_parents` of a node says how many levels to pop from
the node to reach the parent of the next node in this order, so a walker needs no stack of indices.
"""

import struct
from array import array
from collections.abc import Sequence
from itertools import chain

from aici_base.ids import TokenId
from aici_runtime.abi import MAX_TOKEN_LEN, NO_TOKEN, NODE_SIZE, TOKEN_LEN_BITS, TRIE_HEADER_SIZE, TRIE_MAGIC

_HEADER = struct.Struct("<7I")
_ROOT_BYTE = 0xFF
_DENSE = 250
"""A node with more distinct children than this gets all 256. The added children have no token and no children."""


def serialize(token_bytes: Sequence[bytes], eos_token: TokenId, *, len_bits: int = TOKEN_LEN_BITS) -> bytes:
    """Return the trie of a vocabulary. Empty tokens and tokens too long for `len_bits` are left out, so no mask made
    from bytes can allow them. If tokens have equal bytes, the last id wins."""
    longest = max_token_len(len_bits)
    ids = {raw: token_id for token_id, raw in enumerate(token_bytes) if 0 < len(raw) <= longest}
    nodes = _Nodes(ids)
    missing = nodes.missing_children()
    if missing:
        nodes = _Nodes(ids | dict.fromkeys(missing, NO_TOKEN))
    node_bytes = nodes.encode()
    offsets, data = _token_table(token_bytes, len_bits)
    # The fifth word repeats the number of node bytes, as upstream AICI writes it; readers use the rest of the blob
    # instead.
    header = _HEADER.pack(
        TRIE_MAGIC, TRIE_HEADER_SIZE, len(node_bytes), len(offsets), len(node_bytes), len(token_bytes), eos_token
    )
    return header + node_bytes + offsets + data


def read_header(blob: bytes) -> tuple[int, TokenId]:
    """Return the vocabulary size and the end-of-sequence token of a serialized trie."""
    words = _HEADER.unpack_from(blob)
    return words[5], TokenId(words[6])


def token_bytes(blob: bytes, token: TokenId) -> bytes:
    """Return the bytes of a token of a trie of guest ABI v1; empty for a special token and for no token at all."""
    _, size, node_bytes, offset_bytes, _, vocab_size, _ = _HEADER.unpack_from(blob)
    if not 0 <= token < vocab_size:
        return b""
    (entry,) = struct.unpack_from("<I", blob, size + node_bytes + 4 * token)
    begin = size + node_bytes + offset_bytes + (entry >> TOKEN_LEN_BITS)
    return blob[begin : begin + (entry & ((1 << TOKEN_LEN_BITS) - 1))]


def max_token_len(len_bits: int) -> int:
    """Return the longest token length in bytes. With 8 bits the greatest value stays unused, as in upstream AICI."""
    return MAX_TOKEN_LEN if len_bits == TOKEN_LEN_BITS else (1 << len_bits) - 1


def too_long(token_bytes: Sequence[bytes]) -> list[TokenId]:
    """Return the tokens too long for the encoding with 8 length bits (guest ABI v1)."""
    return [TokenId(token_id) for token_id, raw in enumerate(token_bytes) if len(raw) > MAX_TOKEN_LEN]


class _Nodes:
    """The nodes as parallel columns in preorder; index 0 is the root."""

    def __init__(self, ids: dict[bytes, int]) -> None:
        self.byte = [_ROOT_BYTE]
        self.token = [NO_TOKEN]
        self.parent = [0]
        path = [0]  # node at each depth of the last inserted token
        previous = b""
        for raw in sorted(ids):
            depth = _common_prefix(previous, raw)
            del path[depth + 1 :]
            for byte in raw[depth:]:
                self.byte.append(byte)
                self.token.append(NO_TOKEN)
                self.parent.append(path[-1])
                path.append(len(self.byte) - 1)
            self.token[path[-1]] = ids[raw]
            previous = raw

    def missing_children(self) -> list[bytes]:
        children = [0] * len(self.byte)
        for parent in self.parent[1:]:
            children[parent] += 1
        return list(chain.from_iterable(self._gaps(node) for node, n in enumerate(children) if _DENSE < n < 256))

    def _gaps(self, node: int) -> list[bytes]:
        present = {self.byte[k] for k in range(1, len(self.byte)) if self.parent[k] == node}
        prefix = bytearray()
        while node != 0:
            prefix.insert(0, self.byte[node])
            node = self.parent[node]
        return [bytes(prefix) + bytes([byte]) for byte in range(256) if byte not in present]

    def encode(self) -> bytes:
        count = len(self.byte)
        size = [1] * count
        for node in range(count - 1, 0, -1):
            size[self.parent[node]] += size[node]
        pops = [0] * count
        for node in range(1, count):
            parent = self.parent[node]
            is_last = node + size[node] == parent + size[parent]
            pops[node] = pops[parent] + 1 if is_last else 1
        words = array("I", bytes(count * NODE_SIZE))
        words[0::2] = array("I", [t << 8 | b for t, b in zip(self.token, self.byte, strict=True)])
        words[1::2] = array("I", [s << 8 | p for s, p in zip(size, pops, strict=True)])
        return words.tobytes()


def _common_prefix(left: bytes, right: bytes) -> int:
    depth = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        depth += 1
    return depth


def _token_table(token_bytes: Sequence[bytes], len_bits: int) -> tuple[bytes, bytes]:
    """Return the entries `offset << len_bits | length`, and the bytes that the offsets point into."""
    entries = array("I")
    kept = []
    offset = 0
    longest = max_token_len(len_bits)
    for token in token_bytes:
        raw = token if len(token) <= longest else b""
        entries.append(offset << len_bits | len(raw))
        kept.append(raw)
        offset += len(raw)
    return entries.tobytes(), b"".join(kept)
