"""Patterns for the content of JSON strings, and patterns that match anywhere: the base of JSON Schema."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_host import GuestModule
from tests.support.regex_oracle import Node, render
from tests.support.regex_tool import RefusedError, RegexTool
from tests.support.regexes import ALPHABET, REGEXES
from tests.support.scale import scaled

_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PIECES = [
    "\\",
    '"',
    "u",
    "0",
    "00",
    "d8",
    "D83d",
    "dC00",
    "dfff",
    "e9",
    "b",
    "f",
    "n",
    "/",
    "x",
    "é",
    "😀",
    "\n",
    "\x7f",
]


@pytest.fixture(scope="session")
def tool(regex_module: GuestModule) -> RegexTool:
    return RegexTool(regex_module)


@st.composite
def _spelt(draw: st.DrawFn, text: str) -> str:
    """Return `text` as the content of a JSON string, with a random spelling of every character."""
    result = ""
    for c in text:
        escaped = json.dumps(c)[1:-1] if ord(c) > 0x7E else f"\\u{ord(c):04x}"
        spellings = [escaped.replace("\\U", "\\u"), re.sub(r"(?<=\\u)....", lambda m: m[0].upper(), escaped)]
        if c in _SHORT:
            spellings.append(_SHORT[c])
        if c >= " " and c not in '"\\':
            spellings.append(c)
        result += draw(st.sampled_from(spellings))
    return result


@settings(max_examples=scaled(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(node=REGEXES, text=st.text(ALPHABET, max_size=4), data=st.data())
def test_strings_match_in_every_spelling(tool: RegexTool, node: Node, text: str, data: st.DataObject) -> None:
    spelt = data.draw(_spelt(text))
    assert json.loads(f'"{spelt}"') == text
    pattern = render(node)
    answer = tool.ask(pattern, spelt, json_string=True)
    assert answer.matches == bool(re.compile(pattern, re.ASCII).fullmatch(text)), (pattern, spelt)
    plain = tool.ask(pattern, text)
    assert (answer.viable == len(spelt.encode())) == (plain.viable == len(text.encode()))


@settings(max_examples=scaled(500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.sampled_from(_PIECES), max_size=6).map("".join))
def test_nothing_but_json_strings(tool: RegexTool, content: str) -> None:
    try:
        json.loads(f'"{content}"').encode()
    except (json.JSONDecodeError, UnicodeEncodeError):  # lone surrogates are not text
        is_string = False
    else:
        is_string = True
    assert tool.ask("(?s).*", content, json_string=True).matches == is_string


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("b", ["b", "abc", "\nb\n"], ["", "ac"]),
        ("^b", ["b", "bc"], ["ab", ""]),
        ("b$", ["b", "ab"], ["ba", "b\n"]),
        ("^b$", ["b"], ["ab", "ba", ""]),
        ("^a|b$", ["ax", "xb", "a", "b"], ["xa", "bx"]),
        ("^(a|b)$|c", ["a", "b", "xcx"], ["ab", "ax"]),
        ("(^|,)a(,|$)", ["a", "a,", "x,a", "b,a,c"], ["xa", "ax", "b,ab"]),
        ("^$", [""], ["a", "\n"]),
        ("", ["", "a"], []),
        ("a*", ["", "b"], []),
        ("(^a)?b", ["ab", "xb", "b"], ["a"]),
        ("x*^b", ["b", "bx"], ["xb"]),
        ("(?m:^)b(?m:$)", ["b", "a\nb\nc", "b\n"], ["ab\nc", "bc"]),
        (r"^\s$", ["\u00a0", "\ufeff", "\u2028", " "], ["\x1c", "\x85", "a"]),
        (r"^.$", ["a", "\x85"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"^[\b]\/\-\cJ\ud83d\ude00(?<x>a)$", ["\b/-\n😀a"], []),
    ],
)
def test_search(tool: RegexTool, pattern: str, found: list[str], not_found: list[str]) -> None:
    for text in found + not_found:
        assert tool.ask(pattern, text, search=True).matches == (text in found), text
        spelt = json.dumps(text)[1:-1]
        assert tool.ask(pattern, spelt, search=True, json_string=True).matches == (text in found), text


@settings(max_examples=scaled(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=st.lists(REGEXES, min_size=1, max_size=3),
    anchors=st.lists(st.sampled_from(["", "^", "$", "^$"]), min_size=4, max_size=4),
    texts=st.lists(st.text(ALPHABET, max_size=4), min_size=3, max_size=6),
)
def test_search_as_python_does(tool: RegexTool, nodes: list[Node], anchors: list[str], texts: list[str]) -> None:
    parts = [f"{anchors[i]}(?:{render(node)}){anchors[i + 1]}" for i, node in enumerate(nodes)]
    pattern = "|".join(parts)
    if "\\s" in pattern or "\\S" in pattern or "." in pattern:
        return
    compiled = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    for text in texts:
        try:
            found = tool.ask(pattern, text, search=True).matches
        except RefusedError:  # an anchor that never holds
            found = False
        assert found == bool(compiled.search(text)), (pattern, text)
