"""The table of the regex guest against the guest: whole matches byte by byte, and refused patterns."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import regex

from aici_controllers.regex_check import RegexProblem, check_regex
from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError

_TABLE = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "regex" / "cases.toml"
_CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(_TABLE.read_text())
_BYTES = [bytes([byte]) for byte in range(256)]
_EOS = 256


def _matches(module: GuestModule, pattern: str, text: str) -> bool:
    """Feed `text` one byte per step, as a sampler that wants exactly this text."""
    host = FakeHost(module, [*_BYTES, b""], eos=_EOS, arg=pattern.encode())
    host.init_prompt()
    for number, byte in enumerate(text.encode(), 1):
        if host.mid_process() == "Stop" or byte not in host.allowed():
            return False
        if host.post_process([byte])["stop"]:
            # Nothing may follow, so this must be the end.
            return number == len(text.encode()) and _ends(host)
    return _ends(host)


def _ends(host: FakeHost) -> bool:
    return host.mid_process() == "Stop" or _EOS in host.allowed()


@pytest.mark.parametrize("case", _CASES["case"], ids=lambda case: case["pattern"])
def test_cases(regex_module: GuestModule, case: dict[str, Any]) -> None:
    assert check_regex(case["pattern"]) is None
    assert [text for text in case["yes"] if not _matches(regex_module, case["pattern"], text)] == []
    assert [text for text in case["no"] if _matches(regex_module, case["pattern"], text)] == []


def _compiled(case: dict[str, Any]) -> re.Pattern[str] | regex.Pattern[str]:
    """Return the verdict of the oracle of the case: `re` with or without ASCII, or `regex` for features missing in
    `re`."""
    match case.get("oracle", "re"):
        case "re":
            return re.compile(case["pattern"], re.ASCII)
        case "re-unicode":
            return re.compile(case["pattern"])
        case "regex":
            return regex.compile(case["pattern"])
        case "none":  # Python has another spelling
            return re.compile("|".join(map(re.escape, case["yes"])))
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("case", _CASES["case"], ids=lambda case: case["pattern"])
def test_python_agrees_with_the_table(case: dict[str, Any]) -> None:
    compiled = _compiled(case)
    assert [text for text in case["yes"] if not compiled.fullmatch(text)] == []
    assert [text for text in case["no"] if compiled.fullmatch(text)] == []


@pytest.mark.parametrize("case", _CASES["error"], ids=lambda case: case["pattern"])
def test_errors(regex_module: GuestModule, case: dict[str, Any]) -> None:
    problem = check_regex(case["pattern"])
    assert problem is not None
    assert problem.position == case["position"]
    assert case["says"] in problem.message
    with pytest.raises(GuestStoppedError) as stopped:
        FakeHost(regex_module, [b"a", b""], eos=1, arg=case["pattern"].encode())
    assert str(stopped.value) == problem.shown + "\n"


def test_the_caret_of_a_long_pattern() -> None:
    problem = check_regex("é\n" * 50 + "*?+")
    assert problem is not None
    assert problem.shown.splitlines()[1:] == ["  " + "é·" * 19 + "*?+", "  " + " " * 40 + "^"]


def test_the_caret_stands_under_wide_and_combining_characters() -> None:
    problem = check_regex("漢e\u0301😀(?=x)")
    assert problem is not None
    assert problem.shown.splitlines()[1:] == ["  漢e\u0301😀(?=x)", "       ^"]


def test_positions_that_only_python_can_have() -> None:
    assert check_regex("ab\ud800") == RegexProblem(
        2, "a surrogate is not a character", "regex error at position 2: a surrogate is not a character"
    )


def test_depth_and_length_are_bounded_not_the_stack() -> None:
    assert check_regex("(" * 200 + "a" + ")" * 200) is None
    problem = check_regex("(" * 5000)
    assert problem is not None
    assert problem.position == 200
    assert check_regex("a?" * 20000) is None
    assert check_regex("|".join("a" * n for n in range(1, 300))) is None
    assert check_regex("[a-zé]" * 5000) is None
