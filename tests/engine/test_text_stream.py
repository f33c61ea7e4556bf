"""Streamed text: whole characters only, and a mark in place of removed tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_engine.text_stream import TextStream


@given(st.text(), st.data())
def test_any_split_of_valid_text_streams_it_exactly(text: str, data: st.DataObject) -> None:
    raw, stream, seen = text.encode(), TextStream(), ""
    while raw:
        size = data.draw(st.integers(1, 5))
        seen += stream.push(raw[:size])
        raw = raw[size:]
        assert text.startswith(seen)
    assert stream.finish() == ""
    assert seen == text == stream.text


@given(st.lists(st.binary(max_size=5)))
def test_any_bytes_stream_as_they_decode(pieces: list[bytes]) -> None:
    stream = TextStream()
    seen = "".join([stream.push(piece) for piece in pieces]) + stream.finish()
    assert seen == stream.text == b"".join(pieces).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pushed", "removed", "then", "streamed", "text"),
    [
        (["a", "b", "c"], 2, ["X"], "abc ↩ X", "aX"),
        (["a", "b"], 2, [], "ab", ""),
        (["a", "b"], 5, ["c"], "ab ↩ c", "c"),
        (["a", b"\xc3"], 1, ["b"], "a ↩ b", "ab"),
        # The second byte of é is taken back and è comes instead.
        (["a", b"\xc3", b"\xa9"], 1, [b"\xa8"], "aé ↩ è", "aè"),
        (["a", b"\xc3", b"\xa9"], 1, [], "aé ↩ \ufffd", "a\ufffd"),
    ],
)
def test_backtracking(
    pushed: list[str | bytes], removed: int, then: list[str | bytes], streamed: str, text: str
) -> None:
    stream = TextStream()

    def push(piece: str | bytes) -> str:
        return stream.push(piece if isinstance(piece, bytes) else piece.encode())

    seen = "".join([push(piece) for piece in pushed])
    stream.backtrack(removed)
    seen += "".join([push(piece) for piece in then])
    assert (seen + stream.finish(), stream.text) == (streamed, text)
