"""The problems of scripts and constraints, with their places, as an editor shows them."""

import pytest

from aici_base.errors import UsageError
from aici_controllers.constraints import MAX_ARGUMENT_BYTES
from aici_controllers.json_places import place_of_pointer
from aici_controllers.source_check import Language, check_source

FINE: list[tuple[Language, str]] = [
    ("javascript", "// nothing of this runs: there is no model\nawait $`a`;\nconst b = await gen({ maxTokens: 3 });"),
    ("javascript", "import { gen } from 'aici';\nimport * as helpers from 'aici/helpers';\nthrow 1;"),
    ("python", "import aici\nawait aici.FixedTokens('a')\n1 / 0"),
    ("steps", '{"steps": [{"Fixed": {"text": {"String": {"str": "a"}}}}]}'),
    ("regex", "a+(b|c)"),
    ("grammar", '%start s\n%%\ns : "a" ;'),
    ("json_schema", '{"type": "object"}'),
]

WRONG: list[tuple[Language, str, int, int, str]] = [
    ("javascript", "await $`a`\nlet x = ;\n", 2, 9, "SyntaxError: unexpected token"),
    ("javascript", "let é = ('é', ;", 1, 15, "SyntaxError: unexpected token"),
    ("javascript", "import {a} from 'nope'", 0, 0, "there is no module 'nope'"),
    ("javascript", "(" * 20_000, 0, 0, "nested too deeply"),
    ("python", "import aici\nx = \n", 2, 5, "SyntaxError"),
    ("python", "if é:\n\tf('é' 2)\n", 2, 8, "SyntaxError"),
    ("python", "def f():\n  pass\nreturn\n", 3, 1, "SyntaxError"),
    ("python", "a = 1\n  b = 2\n", 2, 3, "IndentationError"),
    ("steps", '{"steps": [\n{"Nope": 1}]}', 2, 1, "expected a step"),
    ("steps", '{"steps": [\n{"Gen": {"rx": "a("}}]}', 2, 16, "missing ')'"),
    ("steps", '{"steps":\n [,]}', 2, 3, "expected a JSON value"),
    ("regex", "é\nb(", 2, 2, "missing ')'"),
    ("grammar", "%start s\n%%\ns : nope ;", 3, 5, "nope is neither a rule"),
    ("json_schema", '{"type": "object",\n "minimum": tru}', 2, 13, "not JSON"),
    ("json_schema", '{"properties": {\n"a": {"type": "nope"}}}', 2, 15, "must be null"),
    ("python", "", 1, 1, "empty"),
    ("regex", "a\ud800", 1, 2, "surrogate"),
]


@pytest.mark.parametrize(("language", "text"), FINE)
def test_right_texts(language: Language, text: str) -> None:
    assert check_source(language, text) == []


@pytest.mark.parametrize(("language", "text", "line", "column", "message"), WRONG)
def test_every_problem_has_its_place(language: Language, text: str, line: int, column: int, message: str) -> None:
    problem = check_source(language, text)[0]
    assert (problem.severity, problem.line, problem.column) == ("error", line, column)
    assert message in problem.message


def test_all_problems_are_listed_and_warnings_are_no_errors() -> None:
    two = check_source("steps", '{"steps": [\n{"Nope": 1},\n{"Gen": {"rx": "("}}]}')
    assert [problem.line for problem in two] == [2, 3]
    odd = check_source("json_schema", '{"properties":\n {"a": {"maxlength": 3}}}')
    assert [(problem.severity, problem.line) for problem in odd] == [("warning", 2)]


def test_a_text_that_is_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="4 MiB"):
        check_source("regex", "a" * (MAX_ARGUMENT_BYTES + 1))


@pytest.mark.parametrize(
    ("pointer", "place"),
    [("", (1, 1)), ("/a", (1, 7)), ("/a/1", (2, 2)), ("/a~1b", (2, 13)), ("/a/7", (1, 7)), ("/a/1/deeper", (2, 2))],
)
def test_the_place_of_a_pointer(pointer: str, place: tuple[int, int]) -> None:
    assert place_of_pointer('{"a": [1,\n 2], "a/b": {}}', pointer) == place


def test_no_place_in_a_text_that_is_not_json() -> None:
    assert place_of_pointer('{"a": ', "/a") == (0, 0)
