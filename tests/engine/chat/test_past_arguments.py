"""Arguments of calls that were cut off are read as far as they go."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_engine.chat.past_arguments import read_arguments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        ("{", {}),
        (" {", {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": "', {"a": ""}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00e', {"a": "x"}),
        ('{"a": "x\\\\', {"a": "x\\"}),
        ('{"a": "x\\"y', {"a": 'x"y'}),
        ('{"a": "}],{"', {"a": "}],{"}),
        ('{"a": 1', {"a": 1}),
        ('{"a": 1.', {}),
        ('{"a": 1, ', {"a": 1}),
        ('{"a": 1, "b": fal', {"a": 1}),
        ('{"a": [1, [2', {"a": [1, [2]]}),
        ('{"a": [1, [2]], "b', {"a": [1, [2]]}),
        ('{"a": 1}', {"a": 1}),
        ("[1", None),
        ('"a', None),
        ("Paris", None),
        ("{]", None),
        ('{"a": 1} x', None),
        ("}", None),
    ],
)
def test_cut_arguments(text: str, read: dict[str, Any] | None) -> None:
    assert read_arguments(text) == read


def test_an_endless_nesting_is_no_recursion_error() -> None:
    assert read_arguments('{"a": ' + "[" * 200_000) is None


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.booleans(), st.floats(0, 1))
def test_every_beginning_of_an_object_is_read(value: dict[str, Any], ascii_only: bool, part: float) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert read_arguments(text) == value
    cut = text[: max(1, int(part * len(text)))]
    read = read_arguments(cut)
    assert read is not None
    assert list(read)[:-1] == list(value)[: max(0, len(read) - 1)]
