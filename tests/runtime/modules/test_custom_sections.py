"""Custom sections: written, found again, and no error in a damaged module."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_runtime.modules.custom_sections import custom_section, with_custom_section
from tests.runtime.support import wat


@given(name=st.text(min_size=1, max_size=200), content=st.binary(max_size=20_000), others=st.binary(max_size=300))
def test_a_section_is_found_behind_others(name: str, content: bytes, others: bytes) -> None:
    module = with_custom_section(with_custom_section(wat.plain(), f"not {name}", others), name, content)
    assert custom_section(module, name) == content
    assert custom_section(wat.plain(), name) is None


@given(junk=st.binary(max_size=100), cut=st.integers(0, 400))
def test_a_damaged_module_has_an_end(junk: bytes, cut: int) -> None:
    whole = with_custom_section(wat.plain(), "a", b"content")
    custom_section(whole[:cut] + junk, "a")
    custom_section(junk, "a")


@pytest.mark.parametrize("size", [0, 127, 128, 1 << 14, 1 << 21])
def test_lengths_of_several_bytes(size: int) -> None:
    assert custom_section(with_custom_section(wat.plain(), "a", b"x" * size), "a") == b"x" * size
