"""Stop strings: the first stop string ends the text, however cut into tokens, and is never streamed, not even in
part."""

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import UsageError
from aici_engine.sampling_params import MAX_STOP_CHARS, SamplingParams
from aici_engine.stop_strings import StopMatcher
from aici_engine.text_stream import ARROW, TextStream

LETTERS = "abé"
TEXTS = st.text(LETTERS, max_size=30)
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=5), min_size=1, max_size=4)
# Bytes to begin, continue and break characters.
PIECES = st.lists(st.lists(st.sampled_from([0x61, 0x62, 0xC3, 0xA9]), max_size=5).map(bytes), max_size=14)


def decoded(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def first_stop(text: str, stops: list[str]) -> tuple[str, str] | None:
    """By reading on, character by character: the text before the stop, and the stop."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return None


def may_be_held(text: str, stops: list[str]) -> int:
    return max(n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n]))


@given(PIECES, STOPS)
def test_any_bytes_in_any_pieces_against_the_definition(pieces: list[bytes], stops: list[str]) -> None:
    stream, seen, data = TextStream(stops), "", b""
    for piece in pieces:
        seen += stream.push(piece)
        data += piece
        text = decoded(data)
        if found := first_stop(text, stops):
            assert (stream.text, stream.stop) == found
            assert seen + stream.finish() == stream.text
            return
        assert stream.stop is None
        assert seen == text[: len(text) - may_be_held(text, stops)]
    assert seen + stream.finish() == stream.text == data.decode("utf-8", "replace")


@given(TEXTS, STOPS, st.data())
def test_the_cut_into_tokens_makes_no_difference(text: str, stops: list[str], data: st.DataObject) -> None:
    whole = TextStream(stops)
    whole.push(text.encode())
    raw, parts = text.encode(), TextStream(stops)
    while raw and parts.stop is None:
        size = data.draw(st.integers(1, 6))
        parts.push(raw[:size])
        raw = raw[size:]
    assert (parts.text, parts.stop) == (whole.text, whole.stop)


@settings(max_examples=500)
@given(
    st.lists(st.text("ab", min_size=3, max_size=5), min_size=1, max_size=2),
    st.lists(st.sampled_from(["a", "b", "ba", b"\xc3", b"\xa9"]) | st.integers(1, 3), min_size=3, max_size=30),
)
def test_after_backtracking_the_true_text_counts(stops: list[str], steps: list[bytes | str | int]) -> None:
    stream, pieces, shown = TextStream(stops), list[bytes](), ""
    for step in steps:
        if isinstance(step, int):
            del pieces[max(0, len(pieces) - step) :]
            stream.backtrack(step)
            shown = shown[: len(decoded(b"".join(pieces)))]
        else:
            pieces.append(step.encode() if isinstance(step, str) else step)
            shown += stream.push(pieces[-1]).removeprefix(ARROW)
        text = decoded(b"".join(pieces))
        assert text.startswith(shown)
        if found := first_stop(text, stops):
            assert (stream.text, stream.stop) == found
            # Text sent before a backtrack may become the beginning of a stop string.
            assert (shown + stream.finish()).startswith(stream.text)
            return
        assert stream.stop is None
    shown += stream.finish().removeprefix(ARROW)
    assert shown == stream.text == b"".join(pieces).decode("utf-8", "replace")


@given(PIECES, st.lists(st.integers(1, 3), max_size=2), PIECES, STOPS)
def test_a_fork_goes_on_as_a_stream_with_the_same_text(
    pieces: list[bytes], removed: list[int], more: list[bytes], stops: list[str]
) -> None:
    parent, kept = TextStream(stops), list[bytes]()
    for piece in pieces:
        parent.push(piece)
        kept.append(piece)
        if parent.stop is not None:
            return
    for number in removed:
        parent.backtrack(number)
        del kept[max(0, len(kept) - number) :]
    fresh = TextStream(stops)
    fork, begin = parent.fork()
    assert begin == "".join(map(fresh.push, kept))
    for piece in more:
        assert fork.push(piece) == fresh.push(piece)
        assert (fork.text, fork.stop) == (fresh.text, fresh.stop)
        if fork.stop is not None:
            return
    assert fork.finish() == fresh.finish()
    parent.push(b"")
    assert parent.text == b"".join(kept).decode("utf-8", "replace")  # the fork has changed nothing of its parent's


def test_a_fork_builds_no_automaton(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's loop forks while all streams wait, and the automata of long stop strings take milliseconds."""
    stream = TextStream(["a" * 4000, "b" * 4000])
    stream.push(b"aab")

    def never(_matcher: StopMatcher, _stops: list[str]) -> None:
        raise AssertionError("a fork shares the automata of its parent")

    monkeypatch.setattr(StopMatcher, "__init__", never)
    fork, begin = stream.fork()
    assert (begin, fork.push(b"b" * 3999), fork.stop) == ("aa", "", "b" * 4000)


def test_stop_strings_are_bounded_together() -> None:
    SamplingParams(stop=("x" * MAX_STOP_CHARS,))
    with pytest.raises(UsageError, match="at most 8192 characters in all"):
        SamplingParams(stop=("x" * MAX_STOP_CHARS, "y"))


@pytest.mark.parametrize(
    ("pieces", "stops", "streamed", "text", "stop"),
    [
        (["one\n", "\ntwo"], ["\n\n"], ["one", ""], "one", "\n\n"),
        (["a", "b", "x"], ["abc"], ["", "", "abx"], "abx", None),
        # Complete first wins, though the other begins earlier; then the longest.
        (["abcd"], ["bcd", "c"], ["ab"], "ab", "c"),
        (["abcd"], ["c", "bc"], ["a"], "a", "bc"),
        ([b"\xc3", b"\xa9", "!"], ["é!"], ["", "", ""], "", "é!"),
        (["aaaa"], ["aab"], ["aa"], "aaaa", None),
    ],
)
def test_what_is_held_back(
    pieces: list[str | bytes], stops: list[str], streamed: list[str], text: str, stop: str | None
) -> None:
    stream = TextStream(stops)
    assert [stream.push(piece if isinstance(piece, bytes) else piece.encode()) for piece in pieces] == streamed
    stream.finish()
    assert (stream.text, stream.stop) == (text, stop)


@pytest.mark.parametrize(
    ("pushed", "removed", "then", "streamed", "text", "stop"),
    [
        # Held-back text stays if the tokens after it are removed.
        ("abc", 1, "X", "a ↩ bX", "abX", None),
        # Text sent before may become the beginning of a stop string.
        ("abcX", 1, "d", "abcX", "a", "bcd"),
        ("abc", 2, "bcd", "a", "a", "bcd"),
    ],
)
def test_what_is_held_back_over_a_backtrack(
    pushed: str, removed: int, then: str, streamed: str, text: str, stop: str | None
) -> None:
    stream = TextStream(["bcd"])
    seen = "".join([stream.push(char.encode()) for char in pushed])
    stream.backtrack(removed)
    seen += "".join([stream.push(char.encode()) for char in then])
    assert (seen + stream.finish(), stream.text, stream.stop) == (streamed, text, stop)
