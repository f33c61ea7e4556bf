import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.ids import TokenId
from aici_runtime.tokenizer import trie

GOLDEN = (
    "d36f8b551c0000002000000010000000200000000400000003000000ffffffff0004000061000000010200006201000002010000"
    "62020000010100000100000002010000010300000004000061616262"
)


def test_golden_vector() -> None:
    assert trie.serialize([b"a", b"ab", b"b", b""], TokenId(3)).hex() == GOLDEN


def test_the_bytes_of_a_token() -> None:
    blob = trie.serialize([b"a", b"ab", b"\xff" * 200, b""], TokenId(3))
    texts = [trie.token_bytes(blob, TokenId(token)) for token in (0, 1, 2, 3, 4, -1)]
    assert texts == [b"a", b"ab", b"\xff" * 200, b"", b"", b""]


def walk(blob: bytes) -> dict[bytes, int]:
    """Return all tokens of a trie, walking as a guest walks: by `subtree_size` and `num_parents` alone."""
    _, header, node_bytes, *_ = struct.unpack_from("<7I", blob)
    nodes = list(struct.iter_unpack("<II", blob[header : header + node_bytes]))
    found: dict[bytes, int] = {}
    path: list[int] = []
    for index, (token_byte, size_pops) in enumerate(nodes[1:], start=1):
        path.append(token_byte & 0xFF)
        if token_byte >> 8 != 0xFFFFFF:
            found[bytes(path)] = token_byte >> 8
        size = size_pops >> 8
        assert 1 <= size <= len(nodes) - index
        if size == 1:
            del path[len(path) - (size_pops & 0xFF) :]
    return found


def table(blob: bytes, count: int) -> list[bytes]:
    _, header, node_bytes, offset_bytes, *_ = struct.unpack_from("<7I", blob)
    data = blob[header + node_bytes + offset_bytes :]
    entries = struct.unpack_from(f"<{count}I", blob, header + node_bytes)
    return [data[entry >> 8 : (entry >> 8) + (entry & 0xFF)] for entry in entries]


@given(st.lists(st.binary(max_size=6), max_size=60))
def test_walk_finds_every_token_and_the_last_of_duplicates(tokens: Sequence[bytes]) -> None:
    blob = trie.serialize(tokens, TokenId(0))
    assert walk(blob) == {raw: token_id for token_id, raw in enumerate(tokens) if raw}
    assert table(blob, len(tokens)) == list(tokens)


@given(st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=40))
def test_subtrees_can_be_skipped(tokens: Sequence[bytes]) -> None:
    """The other move of a guest's walk: skip a child with the whole subtree, then pop one level less."""
    blob = trie.serialize(tokens, TokenId(0))
    nodes = list(struct.iter_unpack("<II", blob[28 : 28 + struct.unpack_from("<I", blob, 8)[0]]))
    index, first_bytes = 1, set()
    while index < len(nodes):
        first_bytes.add(nodes[index][0] & 0xFF)
        index += nodes[index][1] >> 8
    assert first_bytes == {raw[0] for raw in tokens}


def test_dense_nodes_get_all_children() -> None:
    tokens = [b"x" + bytes([byte]) for byte in range(251)]
    blob = trie.serialize(tokens, TokenId(0))
    assert struct.unpack_from("<I", blob, 8)[0] // 8 == 1 + 1 + 256
    assert walk(blob) == {raw: token_id for token_id, raw in enumerate(tokens)}


def test_sparse_nodes_do_not() -> None:
    blob = trie.serialize([bytes([byte]) for byte in range(250)], TokenId(0))
    assert struct.unpack_from("<I", blob, 8)[0] // 8 == 1 + 250


@pytest.mark.parametrize(("length", "is_in"), [(254, True), (255, False)])
def test_tokens_that_cannot_be_described_are_left_out(length: int, is_in: bool) -> None:
    tokens = [b"a", b"b" * length]
    blob = trie.serialize(tokens, TokenId(0))
    assert (1 in walk(blob).values()) is is_in
    assert trie.too_long(tokens) == ([] if is_in else [1])
    assert table(blob, 2)[1] == (tokens[1] if is_in else b"")


def test_header_is_read_back() -> None:
    assert trie.read_header(trie.serialize([b"a"] * 5, TokenId(4))) == (5, 4)
