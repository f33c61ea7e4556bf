"""Declarative steps in the runtime, without a model; errors in documents; the schema of documents; Extract against
`re`."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_controllers import catalog
from aici_controllers.case_file import Case, read_cases
from aici_controllers.case_runner import CaseRunner
from aici_runtime.abi import UNBOUND_SEQ_ID
from tests.support.fake_host import FakeHost, GuestStoppedError
from tests.support.guest_cases import running_cases
from tests.support.guests import shipped_guest
from tests.support.scale import scaled
from tests.support.scripts.nodes import Step
from tests.support.scripts.printers import declarative
from tests.support.scripts.programs import programs

_CASES = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "declctrl" / "cases.toml"
_FILE = read_cases(_CASES)
_ARGUMENTS = [case["argument"] for case in tomllib.loads(_CASES.read_text())["case"]]
_EXAMPLES = [json.loads(path.read_text()) for path in sorted((_CASES.parents[3] / "examples").glob("*.json"))]
_SCHEMA = jsonschema.Draft202012Validator(json.loads(catalog.steps_schema_path().read_text()))
_VOCABULARY = [*(bytes([byte]) for byte in range(256)), b""]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseRunner]:
    with running_cases("declctrl", _FILE, tmp_path_factory.mktemp("bytes")) as runner:
        yield runner


@pytest.mark.parametrize("case", _FILE.cases, ids=lambda case: case.name)
def test_cases(runner: CaseRunner, case: Case) -> None:
    outcome = runner.run(case)
    assert outcome.ok, f"step {outcome.step}: {outcome.message}\n{outcome.log}"


@pytest.mark.parametrize("argument", [*_ARGUMENTS, *_EXAMPLES])
def test_the_schema_takes_what_the_guest_takes(argument: Any) -> None:
    _SCHEMA.validate(argument)


@settings(max_examples=scaled(50), deadline=None)
@given(program=programs(is_script=False))
def test_the_schema_takes_any_program(program: list[Step]) -> None:
    _SCHEMA.validate(json.loads(declarative(program)))


def _text(text: str = "x") -> dict[str, Any]:
    return {"String": {"str": text}}


def _fixed(**keys: Any) -> dict[str, Any]:
    return {"Fixed": {"text": _text(), **keys}}


def _set(expr: Any) -> dict[str, Any]:
    return _fixed(stmts=[{"Set": {"var": "x", "expr": expr}}])


_FORM = [
    ({"Gen": {"max_tokens": 0}}, "/Gen/max_tokens: expected a whole number from 1 to 1000000000"),
    ({"Gen": {"max_words": 1.5}}, "/Gen/max_words: expected a whole number"),
    ({"Gen": {"max_bytes": 1_000_000_001}}, "/Gen/max_bytes: expected a whole number"),
    ({"Gen": {"stop_at": ""}}, "/Gen/stop_at: an empty text"),
    ({"Gen": {"rx": "a", "yacc": "%%"}}, "/Gen/yacc: yacc and rx exclude each other"),
    ({"Gen": {"choices": []}}, "/Gen/choices: expected an array of strings, one at least"),
    ({"Gen": {"inner": [{"after": "", "options": _text()}]}}, "/Gen/inner/0/after: an empty text is everywhere"),
    ({"Gen": {"inner": [{"after": "x"}]}}, '/Gen/inner/0: this needs "options"'),
    ({"Gen": {"inner": {"x": _text()}}}, "/Gen/inner: expected an array"),
    (
        {"Gen": {"rx": "a", "inner": [{"after": "x", "options": _text()}]}},
        "/Gen/inner: inner and rx exclude each other",
    ),
    ({"Gen": {"mask_tags": ["x"]}}, "/Gen/mask_tags: masks of attention are not honoured"),
    (_fixed(tag=5), "/Fixed/tag: masks of attention"),
    (_fixed(foo=1), "/Fixed/foo: this key is not known here; known: text following stmts label"),
    (_fixed(label="prompt"), "/Fixed/label: this label is the prompt's"),
    (_fixed(label=1), "/Fixed/label: expected a string"),
    ({"Fixed": {}}, '/Fixed: this needs "text"'),
    ({"Fixed": []}, "/Fixed: expected an object"),
    ({"Fork": {"branches": [[{"Stop": {}}]]}}, "/Fork/branches: expected an array of two branches at least"),
    ({"Fork": {"branches": [[{"Stop": {}}], []]}}, "/Fork/branches/1: expected an array of steps, one at least"),
    ({"Fork": {"branches": [[{"Stop": {}}], {}]}}, "/Fork/branches/1: expected an array of steps"),
    ({"Wat": {}}, ": expected a step, an object with one key; known: Fixed Choose Gen Fork Wait Stop"),
    ({"Stop": {}, "Wait": {}}, ": expected a step"),
    ("Stop", ": expected a step"),
    ({"Stop": {"x": 1}}, "/Stop/x: this key is not known here"),
    ({"Wait": {"vars": []}}, "/Wait/vars: expected an array of strings, one at least"),
    ({"Wait": {"vars": [1]}}, "/Wait/vars/0: expected a string"),
    ({"Choose": {"options": {"Strin": {}}}}, "/Choose/options: expected an expression"),
    (_set({"Concat": {"parts": _text()}}), "/expr/Concat/parts: expected an array of expressions"),
    (_set({"Concat": {"parts": [], "list": 1}}), "/expr/Concat/list: expected true or false"),
    (_set({"IfEq": {"a": _text(), "b": _text(), "eq": _text()}}), '/expr/IfEq: this needs "neq"'),
    (_fixed(stmts=[{"Get": {}}]), "/Fixed/stmts/0: expected a statement"),
    (_fixed(stmts={}), "/Fixed/stmts: expected an array of statements"),
]
_MEANING = [
    ({"Gen": {"rx": "("}}, "/Gen/rx: regex error at position 0"),
    ({"Gen": {"yacc": "%%\ns : t ;"}}, "/Gen/yacc: grammar error: line 2, column 5"),
    ({"Gen": {"json_schema": {"type": "strin"}}}, "/Gen/json_schema: json schema error at #/type"),
    ({"Gen": {"substring_end": "x"}}, "/Gen/substring_end: substring_end belongs to substring"),
    (_fixed(following="x"), "/Fixed/following: no step before this has this label"),
    ({"Fixed": {"text": {"Current": {}}}}, "/Fixed/text: Current is the text of a step"),
    ({"Choose": {"options": _text("")}}, "/Choose/options: there must be at least one choice"),
    (_set({"Extract": {"from": _text(), "rx": "x"}}), "/Extract/rx: there is no group 1: the pattern has 0"),
    (_set({"Extract": {"from": _text(), "rx": "x", "template": "$"}}), "/Extract/template: after $ comes"),
    (_set({"Extract": {"from": _text(), "rx": "x", "template": "${0"}}), "/Extract/template: after $ comes"),
    *(
        (_set({"Extract": {"from": _text(), "rx": rx}}), f"/Extract/rx: byte {at}: {why}")
        for rx, at, why in [
            ("(x", 3, "this group is not closed"),
            ("x)", 2, "this ) closes nothing"),
            ("[x", 3, "this class is not closed"),
            ("[z-a]", 5, "this is no range"),
            ("[[:alpha:]]", 2, "write \\[ inside a class"),
            ("*", 1, "nothing to repeat"),
            ("x**", 3, "nothing to repeat"),
            ("x{2,1}", 7, "wrong numbers of repetitions"),
            ("x{,2}", 3, "expected a number"),
            ("(?=x)", 3, "of the groups that begin with (? only (?: is there"),
            (r"\b", 3, "there is no such escape"),
            ("x\\", 3, "nothing follows \\"),
            ("((x{1000}){1000})", 17, "the pattern is too large"),
            ("(" * 200 + ")" * 200, 102, "groups are nested too deep"),
        ]
    ),
]


def _start(document: Any) -> FakeHost:
    argument = document if isinstance(document, bytes) else json.dumps(document).encode()
    return FakeHost(shipped_guest("declctrl"), _VOCABULARY, eos=256, arg=argument)


def _refusal(document: Any) -> str:
    with pytest.raises(GuestStoppedError) as stopped:
        _start(document)
    return str(stopped.value)


@pytest.mark.parametrize(("step", "says"), [*_FORM, *_MEANING])
def test_what_is_wrong_is_told_with_its_place(step: Any, says: str) -> None:
    refusal = _refusal({"steps": [_fixed(), step]})
    assert refusal.startswith("#/steps/1")
    assert says in refusal


@pytest.mark.parametrize("step", [step for step, _ in _FORM])
def test_the_schema_refuses_what_has_the_wrong_form(step: Any) -> None:
    assert not _SCHEMA.is_valid({"steps": [step]})


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b'{"steps": [', "the steps are not JSON: line 1, column 12: "),
        ({}, '#: this needs "steps"'),
        ([], "#: expected an object"),
        ({"steps": {}}, "#/steps: expected an array of steps"),
        ({"steps": [], "x": 1}, "#/x: this key is not known here; known: steps $schema"),
    ],
)
def test_what_is_no_document(document: Any, says: str) -> None:
    assert says in _refusal(document)


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = _refusal({"steps": [step for step, _ in [*_FORM, *_MEANING]]})
    for number in range(len(_FORM) + len(_MEANING)):
        assert f"#/steps/{number}" in told


@pytest.mark.parametrize(
    ("steps", "at"),
    [
        ([_fixed(label="a"), _fixed(following="a"), _fixed(following="a")], "#/steps/2/Fixed/following"),
        ([_fixed(label="a"), _fixed(label="b"), _fixed(following="a"), _fixed(following="b")], "#/steps/3/"),
        ([{"Fork": {"branches": [[_fixed(label="a")], [_fixed()]]}}, _fixed(following="a")], "#/steps/1/"),
        (
            [_fixed(label="a"), {"Fork": {"branches": [[_fixed(following="a")], [_fixed()]]}}, _fixed(following="a")],
            "#/steps/2/",
        ),
        ([_fixed(label="a"), _fixed(following="prompt"), _fixed(following="a")], "#/steps/2/"),
    ],
)
def test_labels_that_are_gone(steps: list[Any], at: str) -> None:
    assert _refusal({"steps": steps}).startswith(at)


def test_labels_that_are_still_there() -> None:
    branches = [[_fixed(label="inside"), _fixed(following="inside")], [_fixed(following="b", label="b")]]
    _start(
        {
            "steps": [
                _fixed(label="a"),
                _fixed(label="b"),
                {"Fork": {"branches": branches}},
                _fixed(following="a", label="a"),
                _fixed(following="prompt"),
                _fixed(following="prompt"),
            ]
        }
    )


def test_options_of_variables_that_cannot_be_chosen_from() -> None:
    host = _start({"steps": [{"Choose": {"options": {"Var": {"var": "none"}}}}]})
    with pytest.raises(GuestStoppedError, match=r"^#/steps/0/Choose/options: there must be at least one choice"):
        host.init_prompt([1])


def test_a_host_that_makes_no_forks() -> None:
    host = _start({"steps": [{"Fork": {"branches": [[_fixed()], [_fixed()]]}}]})
    host.init_prompt([1])
    assert host.pre_process()["num_forks"] == 2
    with pytest.raises(GuestStoppedError, match="the host has made 1 forks where the program wants 2"):
        host.mid_process([int(UNBOUND_SEQ_ID)])


_PIECES = st.sampled_from([*"ab1 é.\n", r"\d", r"\W", r"\s", "[ab]", "[^a-c\\d]", "[é\\n-]", "^", "$", "(?:a|ab)"])
_COUNTS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "+?", "??", "{0,2}?"])
_ITEMS = st.tuples(_PIECES, _COUNTS).map(lambda pair: pair[0] + ("" if pair[0] in "^$" else pair[1]))
_PATTERNS = st.recursive(
    st.lists(_ITEMS, min_size=1, max_size=3).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, inner).map("".join),
        inner.map(lambda pattern: f"(?:{pattern})"),
    ),
    max_leaves=4,
)


@settings(max_examples=scaled(300), deadline=None)
@given(patterns=st.lists(_PATTERNS.map(lambda pattern: f"({pattern})"), min_size=1, max_size=8), data=st.data())
def test_extract(patterns: list[str], data: st.DataObject) -> None:
    """Against `re`, with $ as the end of the text and ASCII classes; the rule for empty matches differs."""
    text = data.draw(st.text("ab1 é.\n", max_size=12))
    steps = [
        {
            "Set": {
                "var": f"{number}{is_list}",
                "expr": {"Extract": {"from": {"Current": {}}, "rx": rx, "list": is_list}},
            }
        }
        for number, rx in enumerate(patterns)
        for is_list in (False, True)
    ]
    host = _start({"steps": [{"Fixed": {"text": _text(text), "stmts": steps}}]})
    host.init_prompt([1])
    host.pre_process()
    for number, rx in enumerate(patterns):
        compiled = re.compile(rx.replace("$", r"\Z"), re.ASCII)
        matches, at = [], 0
        while at <= len(text) and (match := compiled.search(text, at)):
            matches.append(match[1])
            at = match.end() + (match.end() == match.start())
        found = {is_list: bytes.fromhex(host.variables[f"{number}{is_list}"][1]).decode() for is_list in (False, True)}
        assert found[False] == (matches[0] if matches else "")
        assert found[True] == "，".join(matches)


def test_extract_takes_time_that_grows_with_the_text() -> None:
    expr = {"Extract": {"from": _text("a" * 3000), "rx": "((a*)*)*b", "template": "$1"}}
    host = _start({"steps": [{"Fixed": {"text": _text(), "stmts": [{"Set": {"var": "x", "expr": expr}}]}}]})
    host.init_prompt([1])
    host.pre_process()
    assert host.variables["x"][1] == ""
