"""One meaning per word: the glossary's names exist, no class is named twice, and old words are gone."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import MARKDOWN, PAGES, ROOT, Page

_PACKAGES = [
    ROOT / name
    for name in (
        "aici_cli",
        "engine/aici",
        "engine/aici_engine",
        "controllers/aici_controllers",
        "runtime/aici_runtime",
        "runtime/aici_base",
    )
]
_SOURCES = {".py", ".c", ".h", ".cpp", ".hpp", ".zig", ".rs", ".ts", ".js", ".toml", ".y", ".md", ".json"}

_BENCH = "benchmarks of two kinds, which import nothing of each other and are no part of an interface"
_LAYERS = "the front door's name for users; the other is internal to a lower package"
TWICE: dict[str, str] = {
    **dict.fromkeys(("Budget", "Case", "Engine", "Result"), _BENCH),
    **dict.fromkeys(("Cancel", "Constraint", "Exchange", "ToolCall"), _LAYERS),
    **dict.fromkeys(("Source", "Text"), _LAYERS),
}
"""Class names that may be defined in several packages, with the reasons."""

FORBIDDEN = {
    r"aicirt-forker": "aicirt-spawner",
    r"\b(doc|head) protocol\b": "protocol v1, protocol v2",
    r"\bprotocol (doc|head)\b": "protocol v1, protocol v2",
    r"\b(earlier|later) (protocol|interface|op set)\b": "protocol v1, protocol v2, guest ABI v1, guest ABI v2",
    r"\bthe (seed's table|spec's engine)\b": "a document inside of the project",
    r"\bthe original (aicirt|AICI)\b": "upstream AICI",
    r"\bGuestHost\b": "ControllerRuntime",
}
"""Old words and the words that replace them."""
_MAY_SAY = {"CHANGELOG.md", "test_glossary.py"}


def python_files() -> list[Path]:
    return [path for package in _PACKAGES for path in package.rglob("*.py")]


@cache
def defined_names() -> dict[str, list[str]]:
    """Name -> where: classes, functions and constants of the product packages."""
    found = defaultdict(list)
    for path in python_files():
        for node in ast.parse(path.read_text()).body:
            names = [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                found[name].append(str(path.relative_to(ROOT)))
    return found


@cache
def all_text() -> str:
    return "\n".join(path.read_text() for path in python_files())


def code_of(text: str) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def test_the_glossary_names_what_exists() -> None:
    missing = []
    for name in code_of(Page(ROOT / "docs" / "reference" / "glossary.md").text):
        if "/" in name and " " not in name:
            exists = (ROOT / name).exists()
        elif name[0].isupper():
            exists = name in defined_names()
        else:
            exists = name.removeprefix("--proto ") in all_text()
        if not exists:
            missing.append(name)
    assert not missing


def test_the_glossary_defines_a_term_once() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "reference" / "glossary.md").read_text(), flags=re.MULTILINE)
    terms = Counter(row for row in rows if row not in ("term", "---"))
    assert [term for term, number in terms.items() if number > 1] == []


def test_no_class_name_is_used_twice() -> None:
    found = defaultdict(list)
    for path in python_files():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: where for name, where in found.items() if len(where) > 1 and name not in TWICE}
    assert not twice


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_old_words_are_gone(pattern: str) -> None:
    found = []
    rooms = ("aici_cli", "engine", "runtime", "controllers", "grammars", "examples", "docs", "tests")
    files = [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in _SOURCES]
    for path in [*files, *ROOT.glob("*.md")]:
        if path.name in _MAY_SAY or "node_modules" in path.parts:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, f"say {FORBIDDEN[pattern]}:\n" + "\n".join(found)


@pytest.mark.parametrize("page", sorted({*PAGES, *MARKDOWN}), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name_exist(page: Path) -> None:
    """A path in backticks is a file or a folder of the repository, from its root or from the page's folder."""
    if page.name == "CHANGELOG.md":
        return
    rooms = ("aici_cli/", "engine/", "runtime/", "controllers/", "tests/", "docs/", "deploy/", "grammars/", "examples/")
    named = [name for name in code_of(Page(page).text) if name.startswith(rooms) and not re.search(r"[\s*{<]", name)]
    missing = [name for name in named if not (ROOT / name).exists() and not (page.parent / name).exists()]
    assert not missing


@cache
def known_names() -> frozenset[str]:
    """Every word of the sources, tests, support files and shipped C and C++ files."""
    rooms = [*_PACKAGES, ROOT / "controllers", ROOT / "tests"]
    files = [path for room in rooms for path in room.rglob("*") if path.suffix in {".py", ".c", ".h", ".hpp", ".cpp"}]
    return frozenset(name for path in files for name in re.findall(r"\w+", path.read_text(errors="replace")))


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "how-to" / "contribute").glob("*.md")), ids=lambda page: page.name
)
def test_names_that_contributors_read_exist(page: Path) -> None:
    """A name in backticks (function, class, constant, field) occurs in the sources, unless the page adds the name."""
    prose = re.sub(r"^( *)```.*?^```", "", Page(page).text, flags=re.MULTILINE | re.DOTALL)
    added = {"typical_p", "aici_host_num_tokens"}
    words = {part for name in code_of(prose) for part in name.split(".")}
    missing = {word for word in words if re.fullmatch(r"[A-Za-z]\w{3,}|_\w+", word)} - known_names() - added
    assert not missing
