"""The regex guest's use of Unicode, over all code points.

Categories and scripts come from the package `regex`; case and \\d \\w \\s from Python's `re`, which has the Unicode
version of its Python: code points unassigned in this version are skipped.
"""

import re
import unicodedata
from functools import cache

import pytest
import regex

from aici_controllers import build, unicode_tables
from tests.support.fake_host import GuestModule
from tests.support.regex_tool import RegexTool

_TEXT = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
_GROUPS = ["L", "LC", "M", "N", "P", "S", "Z", "C"]


@cache
def _known() -> str:
    """The code points assigned in Python's Unicode."""
    return "".join(c for c in _TEXT if unicodedata.category(c) != "Cn")


@pytest.fixture(scope="session")
def tool(regex_module: GuestModule) -> RegexTool:
    return RegexTool(regex_module)


def _borders(inside: str) -> str:
    """Return the neighbours of the code points in `inside` that are outside."""
    members = set(map(ord, inside))
    near = {c + step for c in members for step in (-1, 1)} - members
    return "".join(chr(c) for c in near if 0 <= c < 0x110000 and not 0xD800 <= c < 0xE000)


def test_the_committed_tables_are_the_generated_ones() -> None:
    committed = (build.sdk_dir() / "src" / "regex" / "unicode_tables.inc").read_text()
    assert committed == unicode_tables.unicode_tables(), "run: python -m aici_controllers.unicode_tables"


def _check_property(tool: RegexTool, name: str, inside: str) -> None:
    assert tool.ask(rf"\p{{{name}}}*", inside).matches
    assert tool.ask(rf"\P{{{name}}}*", _borders(inside)).matches


def test_categories(tool: RegexTool) -> None:
    names = [name for name in unicode_tables.CATEGORIES if name != "Cs"]
    members = {name: "".join(regex.findall(rf"\p{{{name}}}", _TEXT)) for name in names}
    assert sum(map(len, members.values())) == len(_TEXT)  # members of one set are in no other set
    for name in names:
        _check_property(tool, name, members[name])
    for group in _GROUPS:
        _check_property(tool, group, "".join(regex.findall(rf"\p{{{group}}}", _TEXT)))


def test_scripts(tool: RegexTool) -> None:
    for names in unicode_tables.SCRIPTS:
        name, code = names.split("=")
        inside = "".join(regex.findall(rf"\p{{Script={name}}}", _TEXT))
        if not inside:  # Katakana_Or_Hiragana
            continue
        _check_property(tool, f"sc={code}", inside)
        _check_property(tool, name.lower(), inside)


@pytest.mark.parametrize("letter", "dws")
@pytest.mark.parametrize("flags", ["(?a)", "(?u)"])
def test_named_classes(tool: RegexTool, letter: str, flags: str) -> None:
    for name in (letter, letter.upper()):
        assert tool.ask(rf"{flags}\{name}*", "".join(re.findall(rf"{flags}\{name}", _known()))).matches


def test_case_of_every_letter(tool: RegexTool) -> None:
    """(?i) as in `re`: every letter matches its cases and no other letter."""
    cased = "".join(c for c in _known() if c.lower() != c or c.upper() != c or c.casefold() != c or c.title() != c)
    caseless = "".join(sorted({*_known()} - {*cased}))
    assert tool.ask(f"(?i)[^{cased}]*", caseless).matches
    for at in range(0, len(cased), 100):
        pattern = text = ""
        for c in cased[at : at + 100]:
            cases = "".join(re.findall(f"(?i){c}", cased))
            pattern += rf"{c}{{{len(cases)}}}[^{c}\0]*\0"
            text += cases + "".join(other for other in cased if other not in cases) + "\0"
        assert tool.ask("(?i)" + pattern, text).matches, cased[at : at + 100]


def test_ascii_case(tool: RegexTool) -> None:
    assert tool.ask("(?ai)[a-zé]+", "aZé").matches
    for text in ("É", "ſ", "\u212a"):
        assert not tool.ask("(?ai)[a-zé]", text).matches
        assert tool.ask("(?i)[a-zé]", text).matches
