"""The lock files have every package that pyproject.toml asks for, in a version that it allows, with hashes."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
EXTRAS = {
    "run.txt": ("engine", "server", "kernels"),
    "dev.txt": ("engine", "server", "build", "dev", "kernels", "cluster", "otel"),
    "docs.txt": ("docs",),
}


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "locks" / name).read_text()
    return {canonicalize_name(package): version for package, version in LOCKED.findall(text)}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_lock_satisfies_the_project(name: str) -> None:
    project = PROJECT["project"]
    asked = [
        *project["dependencies"],
        *(each for extra in EXTRAS[name] for each in project["optional-dependencies"][extra]),
    ]
    found = locked(name)
    for requirement in map(Requirement, asked):
        if requirement.name != "torch":  # the Makefile installs torch apart
            version = found.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement}: make locks"
            assert requirement.specifier.contains(version), f"{requirement}: make locks"


def test_the_build_has_its_requirements() -> None:
    found = locked("build.txt")
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        if requirement.name != "pip":  # every venv has pip
            assert requirement.specifier.contains(found[requirement.name]), requirement


def test_torch_is_the_same_everywhere() -> None:
    pin = next(each for each in PROJECT["project"]["optional-dependencies"]["engine"] if each.startswith("torch=="))
    makefile = (ROOT / "Makefile").read_text()
    assert f"TORCH := {pin}\n" in makefile
    assert (ROOT / "locks" / "override.txt").read_text().splitlines()[-1].startswith(f"{pin} ;")


def test_versions_agree_between_locks() -> None:
    dev = locked("dev.txt")
    for name in ("build.txt", "run.txt", "docs.txt"):
        for package, version in locked(name).items():
            assert dev.get(package, version) == version, f"{package} in {name}: make locks"


@pytest.mark.parametrize("name", ["build.txt", "run.txt", "dev.txt", "docs.txt", "audit.txt"])
def test_every_package_has_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "locks" / name).read_text()
    assert "://" not in text
    blocks = re.split(r"\n(?=[\w.-]+==)", text)
    assert [block.partition("==")[0] for block in blocks[1:] if "--hash=sha256:" not in block] == []


def test_no_package_runs_a_script() -> None:
    installs = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line or "$(PIP)" in line
    ]
    scripted = [line for line in installs if "--only-binary :all:" not in line and "PIP :=" not in line]
    assert [line.split()[-1] for line in scripted] == ["."], "only aici itself is built"
