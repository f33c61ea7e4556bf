"""Scripts in JavaScript in the runtime, without a model; and the declarations for editors."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_controllers import catalog, starter_files
from aici_controllers.case_file import Case, Step, read_cases
from aici_controllers.case_runner import CaseRunner
from tests.support.guest_cases import running_cases

_GUEST = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "jsctrl"
_FILE = read_cases(_GUEST / "cases.toml")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseRunner]:
    with running_cases("jsctrl", _FILE, tmp_path_factory.mktemp("bytes")) as runner:
        yield runner


@pytest.mark.parametrize("case", _FILE.cases, ids=lambda case: case.name)
def test_cases(runner: CaseRunner, case: Case) -> None:
    outcome = runner.run(case)
    assert outcome.ok, f"step {outcome.step}: {outcome.message}\n{outcome.log}"


def test_the_notices_of_the_interpreter_go_where_the_guest_goes(runner: CaseRunner) -> None:
    text = catalog.guest_path("jsctrl").with_suffix(".NOTICE").read_text()
    assert "quickjs-ng 0.17" in text
    assert "Fabrice Bellard" in text
    assert "Permission is hereby granted" in text


_DECLARATIONS = Path(starter_files.__file__).parent / "script_starters" / "javascript" / "aici.d.ts"
_LIST_EXPORTS = """
import * as aici from "aici";
import * as helpers from "aici/helpers";
function members(value) {
  if (value === console) return Object.keys(value);
  const names = new Set();
  const isOurs = (object) => object && object !== Object.prototype && object !== Error.prototype;
  for (let at = value.prototype; isOurs(at); at = Object.getPrototypeOf(at))
    Object.getOwnPropertyNames(at).forEach((name) => names.add(name));
  if (value.prototype) Object.getOwnPropertyNames(value).forEach((name) => names.add(name));
  for (const name of ["prototype", "name", "constructor"]) names.delete(name);
  if (value !== TokenSet) names.delete("length");
  return [...names];
}
const shown = {};
for (const [module, exports] of Object.entries({ aici, "aici/helpers": helpers }))
  shown[module] = Object.fromEntries(Object.entries(exports).map(([name, value]) => [name, members(value)]));
for (const name in aici) assert(globalThis[name] === aici[name]);
console.log("EXPORTS" + JSON.stringify(shown));
"""
_FIELDS = {"finished", "currTokens", "ptr"}
_HIDDEN = {"_done"}


def test_the_declarations_are_those_of_the_real_modules(runner: CaseRunner) -> None:
    """Return the names of modules, their exports and the members of the exports."""
    outcome = runner.run(Case(name="", argument=_LIST_EXPORTS, prompt="", error="", steps=(Step(stop=True),)))
    assert outcome.ok, outcome.message
    real = json.loads(outcome.log.removeprefix("EXPORTS"))
    text = re.sub(r"/\*\*.*?\*/|//[^\n]*", "", _DECLARATIONS.read_text(), flags=re.DOTALL)
    for module, exports in real.items():
        body = text.partition(f'declare module "{module}" {{\n')[2].partition("\n}\n")[0]
        declared = {name: rest for _, name, rest in re.findall(_EXPORT, body, re.MULTILINE | re.DOTALL)}
        assert sorted(declared) == sorted(exports)
        for name, members in exports.items():
            assert _members(name, declared) - _FIELDS == set(members) - _HIDDEN, name
    constants = re.findall(r'^declare const ([\w$]+): typeof import\("aici"\)\.([\w$]+);$', text, re.MULTILINE)
    assert sorted(constants) == sorted((name, name) for name in real["aici"])


_EXPORT = r"^  export (function|class|const) ([\w$]+)(.*?)(?=^  export |\Z)"
_MEMBER = r"^    (?:static |readonly |private )*(\w+)[(:]|[{;] (\w+): Print"


def _members(name: str, declared: dict[str, str]) -> set[str]:
    body = declared.get(name, "")
    own = {a or b for a, b in re.findall(_MEMBER, body, re.MULTILINE)} - {"constructor"}
    base = re.match(r" extends (\w+)", body)
    return own | (_members(base[1], declared) if base else set())


_TYPESCRIPT = "typescript@7.0.2"


def test_the_starter_is_well_typed(tmp_path: Path) -> None:
    """A misspelt option is found, so the declarations are really checked."""
    if not shutil.which("npm"):
        pytest.skip("node is not installed")
    folder = Path(tempfile.gettempdir()) / f"aici-test-{_TYPESCRIPT}-{os.getuid()}"
    tsc = folder / "node_modules" / ".bin" / "tsc"
    if not tsc.exists():
        command = ["npm", "install", "--silent", "--no-save", f"--prefix={folder}", _TYPESCRIPT]
        if subprocess.run(command, capture_output=True, timeout=100).returncode:
            pytest.skip(f"npm cannot fetch {_TYPESCRIPT}")
    starter_files.write_script_starter("javascript", tmp_path)
    done = subprocess.run([tsc, "-p", tmp_path], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    (tmp_path / "wrong.js").write_text("await gen({ max_tokens: 3 });\nawait fixed(7);\n")
    done = subprocess.run([tsc, "-p", tmp_path], capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "wrong.js(1,13)" in done.stdout
    assert "wrong.js(2,13)" in done.stdout
