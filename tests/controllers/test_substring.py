"""The guest `substring`: masks against all runs of words, and large or repetitive texts."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_controllers.text_check import check_substring
from tests.support.fake_host import FakeHost, GuestStoppedError
from tests.support.guests import shipped_guest
from tests.support.languages import compare_masks
from tests.support.scale import scaled

_BYTES = [bytes([byte]) for byte in range(256)]
_ENDS = st.text("ab \n!", max_size=5)
_TEXTS = st.one_of(st.text("ab \n!é", min_size=1, max_size=30), st.text("ab ", min_size=1, max_size=60))


def _runs(text: str, end: str) -> set[bytes]:
    words = text.split(" ")
    runs = {" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return {(run + end).encode() for run in runs if run}


def _arg(text: str, end: str = "") -> bytes:
    return json.dumps({"text": text, "end": end}).encode()


@settings(max_examples=scaled(300), deadline=None)
@given(text=_TEXTS, end=_ENDS, data=st.data())
def test_masks(text: str, end: str, data: st.DataObject) -> None:
    cuts = st.builds(lambda a, b: (text + end).encode()[a : a + b], st.integers(0, 30), st.integers(1, 6)).filter(bool)
    tokens = data.draw(st.lists(st.one_of(cuts, st.binary(min_size=1, max_size=3)), max_size=12))
    language = _runs(text, end)
    if language:
        compare_masks(shipped_guest("substring"), _arg(text, end), language, [*_BYTES, *tokens, b""], data)


@pytest.mark.parametrize(
    "text",
    ["a " * 200_000, "ab abc " * 60_000, "a" * 500_000, "x y " + "\n" * 100_000, " " * 200_000, "é " * 100_000],
    ids=["one word", "two words", "one long word", "line ends", "spaces", "beyond ASCII"],
)
def test_repetitive_texts(text: str) -> None:
    """Creation takes less than the second that guests have, or the suite times out."""
    host = FakeHost(shipped_guest("substring"), [*_BYTES, b""], eos=256, arg=_arg(text))
    host.mid_process()
    assert host.allowed() == {word.encode()[0] for word in text.split(" ") if word} | ({32} if "  " in text else set())


def test_long_runs_are_followed_to_the_end() -> None:
    text = " ".join(f"word{n % 7}{n % 11}" for n in range(5000))
    host = FakeHost(shipped_guest("substring"), [*_BYTES, b""], eos=256, arg=_arg(text))
    raw = text.encode()
    for start in range(0, len(raw), 1000):
        assert host.post_process(list(raw[start : start + 1000]))["stop"] == (start + 1000 >= len(raw))


@pytest.mark.parametrize(
    ("arg", "says"),
    [
        (b"[]", 'expected {"text": ..., "end": ...}'),
        (b"{}", 'expected "text" or "end"'),
        (b'{"end": ""}', '"text" is missing'),
        (b'{"text": ""}', "the text is empty"),
        (b'{"text": 1}', "column 10: the value must be a string"),
        (b'{"text": "a", "txt": ""}', "this key is not known"),
        (b'{"text": "a", "text": "b"}', "this key is there twice"),
        (b'{"text" "a"}', "a colon is missing"),
        (b'{"text": "a"', "a comma or the end of the object"),
        (b'{"text": "a"}}', "nothing may follow"),
        (_arg("a", "x" * 65), "the end string is longer than 64 bytes"),
        (_arg("a" * ((4 << 20) + 1)), "the text is larger than 4 MiB"),
        (_arg(" " * (1 << 20)), "the text has more than 1048576 words"),
    ],
)
def test_bad_arguments(arg: bytes, says: str) -> None:
    with pytest.raises(GuestStoppedError) as stopped:
        FakeHost(shipped_guest("substring"), [b"a", b""], eos=1, arg=arg)
    assert says in str(stopped.value)


def test_the_largest_text_fits() -> None:
    words = " ".join(str(n % 1009) + str(n) for n in range(450_000)).encode()[: 4 << 20].decode()
    assert len(words) > 4_000_000
    host = FakeHost(shipped_guest("substring"), [*_BYTES, b""], eos=256, arg=_arg(words))
    host.mid_process()
    assert host.allowed() == {*b"0123456789"}


def test_tools_ask_the_guest() -> None:
    assert check_substring("a b", "!") is None
    assert check_substring("a b") is None
    assert check_substring("") == "the text is empty"
