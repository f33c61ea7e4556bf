"""The cost of a check is bounded, and a refusal for its cost names the parts to change."""

import json
import time
from collections.abc import Callable

import pytest

from aici_base.errors import UsageError
from aici_controllers import check_cost, constraints
from aici_controllers.check_cost import CostlyError, costly_parts_of_schema

COSTLY_SCHEMA = {"oneOf": [{"pattern": f"(a|b)*a(a|b){{{count}}}"} for count in range(16)]}
"""Half a kilobyte that took 26 s."""


@pytest.fixture
def little_fuel(monkeypatch: pytest.MonkeyPatch) -> None:
    """For refusals that need not take 2 s."""
    monkeypatch.setattr(check_cost, "FUEL", 30_000_000)


def test_half_a_kilobyte_costs_two_seconds_at_most() -> None:
    """Ten seconds of processor time are far below the 26 s of before, on a slow machine too."""
    before = time.thread_time()
    with pytest.raises(CostlyError, match="this schema is too costly") as raised:
        constraints.json_schema(json.dumps(COSTLY_SCHEMA))
    assert time.thread_time() - before < 10
    assert "oneOf at #/oneOf has 16 alternatives" in raised.value.hint


@pytest.mark.usefixtures("little_fuel")
@pytest.mark.parametrize(
    "check",
    [
        lambda: constraints.json_schema_or(json.dumps(COSTLY_SCHEMA), "x"),
        lambda: constraints.structural_tag(
            json.dumps({"format": {"type": "json_schema", "json_schema": COSTLY_SCHEMA}})
        ),
        lambda: constraints.named("json_schema", json.dumps({"schema": COSTLY_SCHEMA})),
        lambda: constraints.named("grammar", "%start s\n%%\ns: %json " + json.dumps(COSTLY_SCHEMA) + ";\n"),
        lambda: constraints.grammar("start: %json " + json.dumps(COSTLY_SCHEMA), syntax="lark"),
    ],
)
def test_every_way_to_a_schema_is_bounded(check: Callable[[], object]) -> None:
    with pytest.raises(CostlyError, match="is too costly: the check was given up after 30,000,000 instructions"):
        check()


@pytest.mark.usefixtures("little_fuel")
def test_the_questions_of_one_check_share_the_fuel() -> None:
    schema = json.dumps({"enum": [f"{number:09}" for number in range(500)]})
    with check_cost.one_tank() as tank:
        constraints.json_schema(schema)
        once = tank.size - tank.fuel
        assert 0 < once < tank.size
        for _ in range(tank.size // once - 1):
            constraints.json_schema(schema)
        with pytest.raises(CostlyError):
            constraints.json_schema(schema)
    constraints.json_schema(schema)  # another check has fuel of its own


@pytest.mark.parametrize(("syntax", "rule"), [("lark", 'start: "{}"\n'), ("gbnf", 'root ::= "{}"\n')])
def test_a_grammar_that_python_reads_is_bounded(syntax: constraints.GrammarSyntax, rule: str) -> None:
    with pytest.raises(UsageError, match="grammars in Lark and GBNF may have 256 KiB together"):
        constraints.grammar(rule.format("a" * (256 << 10)), syntax=syntax)
    constraints.grammar(rule.format("a" * 1000), syntax=syntax)


def test_the_grammars_of_a_structural_tag_are_bounded_together() -> None:
    part = {"type": "grammar", "grammar": 'root ::= "a"' + " " * (100 << 10)}
    with pytest.raises(UsageError, match="256 KiB together"):
        constraints.structural_tag(json.dumps({"format": {"type": "sequence", "elements": [part] * 3}}))


def test_the_hint_names_the_most_costly_parts_first() -> None:
    schema = {
        "properties": {
            "a/b": {"oneOf": [{}] * 9},
            "c": {"not": {"pattern": "x{5000}"}},
            "d": {"maxLength": 500},
            "e": {"contains": {}},
        }
    }
    hint = costly_parts_of_schema(json.dumps(schema))
    assert hint.index("oneOf at #/properties/a~1b/oneOf") < hint.index("the pattern at #/properties/c/not/pattern")
    assert "maxLength" not in hint
    for text in ("{}", "no JSON", "[" * 100_000):
        assert costly_parts_of_schema(text) == "make the schema smaller: fewer alternatives, smaller counts"
