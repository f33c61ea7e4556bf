"""Every kind of constraint, through the engine and the runtime, in one batch; and every flag of `aici run` once."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from aici_controllers import constraints
from aici_controllers.catalog import grammar_path, guest_path
from aici_controllers.constraints import Constraint
from aici_controllers.schema_check import SchemaOptions
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall, Request
from aici_runtime.client import Runtime
from tests.support.warm import warm_aici

pytestmark = pytest.mark.e2e

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
        "size": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 99}, {"type": "null"}]},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}
COLOURS = ["red", "green", "dark green", "blue"]
SOURCE = "the quick brown fox jumps over the lazy dog"


def is_words_of_source(text: str) -> bool:
    return f" {text} " in f" {SOURCE} "


def is_sum(text: str) -> bool:
    return isinstance(ast.parse(text, mode="eval"), ast.Expression)


KINDS: dict[str, tuple[Callable[[], Constraint], Callable[[str], object]]] = {
    "regex": (lambda: constraints.regex("[A-Z][a-z]{2,9}"), lambda text: re.fullmatch("[A-Z][a-z]{2,9}", text)),
    "choices": (lambda: constraints.choices(COLOURS), COLOURS.__contains__),
    "substring": (lambda: constraints.substring(SOURCE), is_words_of_source),
    "json_schema": (
        lambda: constraints.json_schema(json.dumps(SCHEMA)),
        lambda text: jsonschema.validate(json.loads(text), SCHEMA) is None,
    ),
    "flexible": (
        lambda: constraints.json_schema(json.dumps(SCHEMA), SchemaOptions(whitespace="flexible")),
        lambda text: jsonschema.validate(json.loads(text), SCHEMA) is None,
    ),
    "grammar": (lambda: constraints.grammar('%start s\n%%\ns: "a" s "b" | "c";\n'), re.compile("(a*)c(b*)").fullmatch),
}


def test_all_kinds_in_one_batch(runtime: Runtime, engine: Engine) -> None:
    requests, checks = [], []
    for number, (make, is_right) in enumerate(list(KINDS.values()) * 2):
        constraint = make()
        module_id = runtime.mk_module(guest_path(constraint.guest).read_bytes()).module_id
        sampling = SamplingParams(temperature=1.2, seed=number, max_tokens=200)
        call = ControllerCall(module_id, constraint.argument)
        requests.append(Request(prompt="An answer: ", controller=call, sampling=sampling))
        checks.append(is_right)
    ends = [handle.wait() for handle in [engine.submit(request) for request in requests]]
    for end, is_right in zip(ends, checks, strict=True):
        assert end.error is None, end.logs
        if end.reason is not FinishReason.LENGTH:
            assert is_right(end.text), end.text
    assert sum(end.reason is FinishReason.LENGTH for end in ends) <= 3


def test_a_grammar_that_ships_by_its_name() -> None:
    done = warm_aici("run", "--grammar", "arithmetic", "--max-tokens", "24", "Compute: ")
    assert done.returncode == 0, done.stderr
    shipped = grammar_path("arithmetic").read_text()
    assert constraints.grammar(shipped).argument == shipped
    assert re.fullmatch(r"[-+*/()0-9.a-zA-Z_\s,^%]+", done.stdout), done.stdout


def test_a_grammar_file(tmp_path: Path) -> None:
    (tmp_path / "yes.y").write_text('%start s\n%%\ns: "yes" | "no" ", " /* why */ "because";\n')
    done = warm_aici("run", "--grammar", str(tmp_path / "yes.y"), "Is water wet? ")
    assert done.stdout in {"yes", "no, because"}, done.stderr


def test_schema_from_a_file_reports_what_is_not_enforced(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA | {"sorted": True}))
    refused = warm_aici("run", "--json-schema", str(tmp_path / "schema.json"), "--strict-schema", "A toy: ")
    assert refused.returncode == 2
    assert "#/sorted" in refused.stderr
    done = warm_aici("run", "--json-schema", str(tmp_path / "schema.json"), "--json", "A toy: ")
    assert done.returncode == 0, done.stderr
    assert "note: not enforced: #/sorted" in done.stderr
    jsonschema.validate(json.loads(json.loads(done.stdout)["text"]), SCHEMA)


def test_choices_from_flags_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "colours").write_text("dark red\nblue\n\n")
    done = warm_aici("run", "--choice", "green", "--choices", str(tmp_path / "colours"), "My favourite colour is ")
    assert done.stdout in {"green", "dark red", "blue"}, done.stderr


def test_substring_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "source").write_text(SOURCE + "\n")
    done = warm_aici("run", "--substring", str(tmp_path / "source"), "An animal: ")
    assert is_words_of_source(done.stdout), done.stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--regex", "a", "--grammar", "json"], "--regex and --grammar exclude each other"),
        (["--choice", "a", "--controller", "regex"], "--choice and --controller exclude each other"),
        (["--whitespace", "flexible"], "--whitespace without --json-schema"),
        (["--lenient", "--regex", "a"], "--lenient without --json-schema"),
        (["--json-schema", "{"], "not JSON: line 1, column 2"),
        (["--json-schema", '{"type":"object","minProperties":-1}'], "#/minProperties"),
        (["--json-schema", "no/such/file.json"], "cannot be read"),
        (["--grammar", "jason"], "did you mean json"),
        (["--grammar", "./README.md"], "README.md:"),
        (["--choices", "/dev/null"], "choice"),
        (["--substring", "/dev/null"], "text"),
        (["--controller-arg", "x"], "--controller-arg needs --controller"),
    ],
)
def test_wrong_constraints_are_refused_before_anything_is_loaded(flags: list[str], said: str) -> None:
    done = warm_aici("run", *flags, "x")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
