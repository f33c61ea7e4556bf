"""The guest `choices`: masks against the set of choices, and refused arguments."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_controllers.text_check import check_choices
from tests.support.fake_host import FakeHost, GuestStoppedError
from tests.support.guests import shipped_guest
from tests.support.languages import compare_masks
from tests.support.scale import scaled

_BYTES = [bytes([byte]) for byte in range(256)]
_TEXTS = st.text('ab é€\0\n"\\', max_size=8)
_TOKENS = st.one_of(_TEXTS.map(str.encode), st.binary(min_size=1, max_size=3)).filter(bool)


@settings(max_examples=scaled(150), deadline=None)
@given(
    choices=st.lists(_TEXTS, min_size=1, max_size=12),
    tokens=st.lists(_TOKENS, max_size=20),
    ascii_only=st.booleans(),
    data=st.data(),
)
def test_masks(choices: list[str], tokens: list[bytes], ascii_only: bool, data: st.DataObject) -> None:
    arg = json.dumps(choices, ensure_ascii=ascii_only).encode()
    compare_masks(shipped_guest("choices"), arg, {c.encode() for c in choices}, [*_BYTES, *tokens, b""], data)


def test_thousands_of_choices() -> None:
    choices = [f"number {n} of {n * n}" for n in range(20_000)]
    host = FakeHost(shipped_guest("choices"), [*_BYTES, b"number 1", b""], eos=257, arg=json.dumps(choices).encode())
    host.mid_process()
    assert host.allowed() == {ord("n"), 256}
    assert not host.post_process([256])["stop"]
    host.mid_process()
    assert host.allowed() == {*b" 0123456789"}
    assert host.post_process(b"9999 of 399960001")["stop"]


def test_one_long_choice_with_a_shorter_one_inside() -> None:
    choices = ["a" * 100_000, "a" * 99_999]
    host = FakeHost(shipped_guest("choices"), [b"a", b"a" * 250, b""], eos=2, arg=json.dumps(choices).encode())
    assert not host.post_process([1] * 399)["stop"]
    assert not host.post_process([0] * 249)["stop"]
    host.mid_process()
    assert host.allowed() == {0, 2}
    assert host.post_process([0])["stop"]


@pytest.mark.parametrize(
    ("arg", "says"),
    [
        (b"", "line 1, column 1: the choices must be a JSON array of strings"),
        (b'"a"', "line 1, column 1: the choices must be"),
        (b"[]", "at least one choice"),
        (b'["a", 1]', "line 1, column 7: the choices must be"),
        ('["é",\n 2]'.encode(), "line 2, column 2: the choices must be"),
        (b'["a",]', "line 1, column 6: the choices must be"),
        (b'["a" "b"]', "line 1, column 6: a comma or the end"),
        (b'["a"', "column 5: a comma or the end"),
        (b'["a"] x', "column 7: nothing may follow"),
        (b'["a', "column 4: the string does not end"),
        (b'["\\x"]', "column 3: JSON knows no such escape"),
        (b'["\\u12g4"]', "column 3: JSON knows no such escape"),
        (b'["\\ud800"]', "column 3: half a surrogate pair"),
        (b'["\\ud800\\u0041"]', "column 3: half a surrogate pair"),
        (b'["\n"]', "column 3: a control character"),
        (b'["\xff"]', "column 3: not UTF-8"),
    ],
)
def test_bad_arguments(arg: bytes, says: str) -> None:
    with pytest.raises(GuestStoppedError) as stopped:
        FakeHost(shipped_guest("choices"), [b"a", b""], eos=1, arg=arg)
    assert str(stopped.value).startswith("the argument is wrong at ")
    assert says in str(stopped.value)


def test_every_escape() -> None:
    arg = rb'[ "\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00" ]'
    host = FakeHost(shipped_guest("choices"), [*_BYTES, b""], eos=256, arg=arg)
    assert host.post_process(list('"\\/\b\f\n\r\tAé😀'.encode()))["stop"]


def test_tools_ask_the_guest() -> None:
    assert check_choices(["a", "", "a", "é"]) is None
    assert check_choices([]) == "there must be at least one choice"
    assert check_choices(["\ud800"]) == "half a surrogate pair is not a character"
