"""The languages of `aici.script`."""

from typing import Any

import pytest

import aici


@pytest.mark.parametrize(
    ("language", "guest"),
    [
        ("javascript", "jsctrl"),
        ("js", "jsctrl"),
        ("python", "pyctrl"),
        ("py", "pyctrl"),
        ("steps", "declctrl"),
    ],
)
def test_names_of_languages(language: Any, guest: str) -> None:
    assert aici.script("x", language).controller == guest


@pytest.mark.parametrize("language", [None, "ruby"])
def test_another_language_lists_the_known_languages(language: Any) -> None:
    with pytest.raises(aici.UsageError) as error:
        aici.script("x", language)
    assert "javascript, js, python, py, steps" in error.value.hint
