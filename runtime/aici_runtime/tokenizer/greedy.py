"""Tokenize bytes that are not text: take the longest matching token of the trie, again and again."""

from array import array

from aici_base.errors import UsageError
from aici_runtime.abi import NO_TOKEN, NODE_SIZE, TRIE_HEADER_SIZE


def tokenize(trie: bytes, text: bytes) -> "array[int]":
    """Return token ids. Raise UsageError if no token begins with the next byte."""
    nodes = memoryview(trie)[TRIE_HEADER_SIZE : TRIE_HEADER_SIZE + _num_node_bytes(trie)].cast("I")
    tokens = array("I")
    rest = memoryview(text)
    while rest:
        token, length = _longest(nodes, rest)
        if length == 0:
            raise UsageError(f"no token begins with the byte {rest[0]:#04x}")
        tokens.append(token)
        rest = rest[length:]
    return tokens


def _num_node_bytes(trie: bytes) -> int:
    return int.from_bytes(trie[8:12], "little") // NODE_SIZE * NODE_SIZE


def _longest(nodes: "memoryview[int]", text: memoryview) -> tuple[int, int]:
    """Return the longest token at the start of `text` and its length; length 0 if there is none."""
    node, best, length = 0, NO_TOKEN, 0
    for depth, byte in enumerate(text, start=1):
        found = _child(nodes, node, byte)
        if found is None:
            break
        node = found
        token = nodes[2 * node] >> 8
        if token != NO_TOKEN:
            best, length = token, depth
    return best, length


def _child(nodes: "memoryview[int]", node: int, byte: int) -> int | None:
    end = node + (nodes[2 * node + 1] >> 8)
    child = node + 1
    while child < end:
        if nodes[2 * child] & 0xFF == byte:
            return child
        child += nodes[2 * child + 1] >> 8
    return None
