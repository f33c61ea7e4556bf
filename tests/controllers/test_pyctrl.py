"""Scripts in Python in the runtime, without a model; and the declarations for editors."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_controllers import starter_files
from aici_controllers.case_file import Case, Step, read_cases
from aici_controllers.case_runner import CaseRunner
from tests.support.guest_cases import running_cases

_GUEST = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "pyctrl"
_FILE = read_cases(_GUEST / "cases.toml")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseRunner]:
    with running_cases("pyctrl", _FILE, tmp_path_factory.mktemp("bytes")) as runner:
        yield runner


@pytest.mark.parametrize("case", _FILE.cases, ids=lambda case: case.name)
def test_cases(runner: CaseRunner, case: Case) -> None:
    outcome = runner.run(case)
    assert outcome.ok, f"step {outcome.step}: {outcome.message}\n{outcome.log}"


_LIST_NAMES = """
import aici, json
def members(value):
    return [name for name in dir(value) if name[0] != "_"] if isinstance(value, type) else None
print("NAMES" + json.dumps({name: members(getattr(aici, name)) for name in dir(aici) if name[0] != "_"}))
await aici.StopToken()
"""
_FIELDS = {"ptr", "backtrack", "ff_tokens", "splices", "sample_mask"}
"""Return the attributes of instances."""


def test_the_stub_is_that_of_the_real_module(runner: CaseRunner) -> None:
    outcome = runner.run(Case(name="", argument=_LIST_NAMES, prompt="", error="", steps=(Step(stop=True),)))
    assert outcome.ok, outcome.message
    real = json.loads(outcome.log.removeprefix("NAMES"))
    stub = ast.parse((_STARTER / "aici.pyi").read_text())
    declared = {name: node for node in stub.body for name in _names(node)}
    assert sorted(declared) == sorted(real)
    for name, node in declared.items():
        assert isinstance(node, ast.ClassDef) == (real[name] is not None), name
        if isinstance(node, ast.ClassDef):
            inherited = {each for base in node.bases if isinstance(base, ast.Name) for each in real.get(base.id, ())}
            own = {each for part in node.body for each in _names(part) if not each.startswith("__")}
            assert (own - _FIELDS) | inherited == set(real[name]), name


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


_STARTER = Path(starter_files.__file__).parent / "script_starters" / "python"


def test_the_starter_is_well_typed(tmp_path: Path) -> None:
    """A misspelt option is found, so the declarations are really checked."""
    starter_files.write_script_starter("python", tmp_path)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir=/dev/null",
        "--config-file=",
    ]
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    (tmp_path / "hello.py").write_text("import aici\naici.gen_text(maxTokens=3)\naici.start(aici.FixedTokens(7))\n")
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert 'hello.py:2: error: Unexpected keyword argument "maxTokens"' in done.stdout
    assert "hello.py:3: error: Argument 1 to" in done.stdout


def test_the_starter_runs(runner: CaseRunner) -> None:
    script = (_STARTER / "hello.py").read_text()
    text = "Ultimate answer is to the life, universe and everything is "
    steps = (Step(forced=text, sample="42", stop=True, log=("it is 42",)),)
    outcome = runner.run(Case(name="", argument=script, prompt="", error="", steps=steps))
    assert outcome.ok, outcome.message


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("match 1:\n    case 1: pass", "SyntaxError"),
        ("{**{}, **{}}", "SyntaxError"),
        ("def f(x, /): pass", "SyntaxError"),
        ("import dataclasses", "ImportError"),
        ("import time", "ImportError"),
        ("import re\nre.compile('(?=a)')", "ValueError"),
        ("import re\nre.findall('a', 'a', re.I)", "NotImplementedError"),
        ("class Two(int, str): pass", "TypeError"),
    ],
)
def test_what_the_readme_says_is_not_there(runner: CaseRunner, line: str, says: str) -> None:
    outcome = runner.run(Case(name="", argument=line, prompt="", error=says, steps=()))
    assert outcome.ok, outcome.message


def test_what_the_readme_says_is_there(runner: CaseRunner) -> None:
    modules = "abc, array, binascii, collections, functools, gc, heapq, io, json, math, random, re, struct, sys, typing"
    script = f"import {modules}\nif (x := 3) == 3: collections.deque((), 2)\nraise ValueError(f'{{x}}')\n"
    outcome = runner.run(Case(name="", argument=script, prompt="", error="ValueError: 3", steps=()))
    assert outcome.ok, outcome.message
