"""What begins with an underscore is its package's own: no other package imports or uses the name."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "aici_cli": ROOT / "aici_cli",
    "aici": ROOT / "engine" / "aici",
    "aici_engine": ROOT / "engine" / "aici_engine",
    "aici_controllers": ROOT / "controllers" / "aici_controllers",
    "aici_runtime": ROOT / "runtime" / "aici_runtime",
    "aici_base": ROOT / "runtime" / "aici_base",
}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Public methods of named tuples, in spite of the underscore."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def package_of(module: str | None) -> str:
    return (module or "").partition(".")[0]


def imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield what a file imports from our other packages, with the module's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and package_of(node.module) in PACKAGES.keys() - {package}:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if package_of(alias.name) in PACKAGES.keys() - {package})


def attributes(tree: ast.Module) -> Iterator[str]:
    """Yield the private attributes that a file reads of anything but `self` and `cls`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own:
                yield node.attr


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a file gives to functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        if is_private(name):
            yield name


def test_no_package_uses_private_names_of_another() -> None:
    trees = {
        (package, file): ast.parse(file.read_text())
        for package, folder in PACKAGES.items()
        for file in sorted(folder.rglob("*.py"))
    }
    own: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for (package, _), tree in trees.items():
        own[package] |= set(defined(tree))
    found = []
    for (package, file), tree in trees.items():
        foreign = set().union(*(own[other] for other in PACKAGES if other != package)) - own[package]
        names = [name for name in imported(tree, package) if any(map(is_private, name.split(".")))]
        names += [name for name in attributes(tree) if name in foreign]
        found += [f"{file.relative_to(ROOT)}: {name}" for name in names]
    assert found == []
