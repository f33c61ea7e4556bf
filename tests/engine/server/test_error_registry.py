"""The registry of errors: every class has a code, an exit code, an HTTP status and a type in each protocol."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import aici_base
import aici_engine.server
from aici_base import errors as base
from aici_base.errors import AiciError, NotFoundError, UsageError, classes
from aici_engine.server.errors import HTTP_ERRORS, about, http_error, markdown, status_of
from aici_engine.server.gateway.error_responses import anthropic_body, openai_body, rest_body
from aici_engine.server.link.wire import Failure

ROOT = Path(__file__).parents[3]

for package in (aici_base, aici_engine.server):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

OURS = [kind for kind in classes() if kind.__module__.startswith(("aici_base", "aici_engine"))]


def test_there_are_some() -> None:
    assert len(OURS) >= 20
    assert set(HTTP_ERRORS) <= set(OURS)


@pytest.mark.parametrize("kind", OURS)
def test_every_class_has_a_row(kind: type[AiciError]) -> None:
    assert kind in HTTP_ERRORS or "code" not in vars(kind), "a class with a code of its own needs a row"
    row = http_error(kind)
    assert 400 <= row.status < 600
    assert row.openai
    assert row.anthropic
    assert kind.exit_code in (1, 2, 3)
    assert (row.status < 500) or kind.exit_code != 2, "what the caller can correct is no failure of the server"


def test_codes_are_unique() -> None:
    own = [kind.code for kind in OURS if "code" in vars(kind)]
    assert len(own) == len(set(own))


@pytest.mark.parametrize("kind", OURS)
def test_the_trees_are_drawn(kind: type[AiciError]) -> None:
    if "code" in vars(kind) or kind in HTTP_ERRORS:
        module = importlib.import_module(kind.__module__)
        assert kind.__name__ in str(module.__doc__)
    if kind.__module__ == base.__name__:
        drawn = next(line for line in str(base.__doc__).splitlines() if kind.__name__ in line.split())
        assert f" {kind.code} " in drawn
        assert f"exit {kind.exit_code}" in drawn


def test_the_documentation_has_every_row() -> None:
    page = markdown()
    for kind, row in HTTP_ERRORS.items():
        assert f"| `{kind.__name__}` | `{kind.code}` | {kind.exit_code} | {row.status} |" in page


def test_a_hint_is_chosen_by_audience() -> None:
    error = UsageError("no", hint="all", cli_hint="--flag")
    assert [error.hint_for(audience) for audience in ("http", "cli", "python")] == ["all", "--flag", "all"]
    assert "--flag" not in str([openai_body(error), anthropic_body(error), rest_body(error)])
    assert UsageError("no", python_hint="flag=True").hint_for("cli") == ""


def test_a_parameter_is_a_field() -> None:
    with pytest.raises(UsageError) as caught, about("prompt"):
        raise UsageError("it is long", cli_hint="--short")
    assert (caught.value.param, caught.value.message, caught.value.cli_hint) == (
        "prompt",
        "prompt: it is long",
        "--short",
    )
    with pytest.raises(UsageError) as caught, about("prompt"):
        raise UsageError("n is 0", param="n")
    assert (caught.value.param, caught.value.message) == ("n", "n is 0")
    assert openai_body(caught.value)["error"]["param"] == "n"


@pytest.mark.parametrize("kind", [kind for kind in OURS if kind.__module__ == base.__name__])
def test_an_error_keeps_its_class_between_processes(kind: type[AiciError]) -> None:
    error = kind("no", hint="all")
    if isinstance(error, UsageError):
        error.param = "n"
    received = Failure.of(error).error()
    assert type(received) is kind
    assert vars(received) == vars(error)


def test_a_copy_with_another_message() -> None:
    error = NotFoundError("a", hint="b", cli_hint="c", param="d")
    copy = error.with_message("e")
    assert (type(copy), str(copy), copy.message) == (NotFoundError, "e", "e")
    assert (copy.hint, copy.cli_hint, copy.param, status_of(copy)) == ("b", "c", "d", 404)
    assert error.message == "a"


def _outside() -> list[tuple[str, str | None]]:
    """The public exception classes of the product that do not belong to the tree, with their docstrings."""
    found = []
    for folder in ("aici_cli", "runtime", "engine", "controllers"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                bases = {ast.unparse(base) for base in node.bases} if isinstance(node, ast.ClassDef) else set()
                if bases & {"Exception", "BaseException", "ValueError", "RuntimeError"}:
                    assert isinstance(node, ast.ClassDef)
                    if not node.name.startswith("_"):
                        found.append((node.name, ast.get_docstring(node)))
    return found


def test_a_public_exception_outside_of_the_tree_is_explained() -> None:
    outside = _outside()
    assert "ClientGoneError" in dict(outside)
    assert [name for name, text in outside if not text] == []
