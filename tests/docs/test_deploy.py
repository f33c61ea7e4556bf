"""The files of `deploy/` are well formed, keep the promises of the documentation, and name existing options."""

import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.cli import aici

UNIT = ROOT / "deploy" / "aici.service"
CONTAINERFILE = ROOT / "deploy" / "Containerfile"


def directives() -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def test_the_unit_keeps_what_it_promises() -> None:
    unit = directives()
    assert unit["User"] == ["aici"]
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces", "RemoveIPC"):
        assert unit[name] == ["yes"], name
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert "MemoryDenyWriteExecute" not in unit, "wasmtime compiles"
    assert "ProcSubset" not in unit, "the server reads /proc/meminfo"


def test_the_unit_waits_for_the_drain() -> None:
    unit = directives()
    drain = re.search(r"--drain-timeout (\d+)", unit["ExecStart"][0])
    assert drain
    assert int(unit["TimeoutStopSec"][0]) > int(drain[1])


@pytest.mark.parametrize("file", [UNIT, CONTAINERFILE], ids=lambda file: file.name)
def test_options_exist(file: Path) -> None:
    known = aici("serve", "--help").stdout
    command = re.search(r"(?:ExecStart=.*aici|CMD \[)(.*serve.*)", file.read_text())
    assert command
    for option in re.findall(r"--[a-z-]+", command[1]):
        assert f"{option} " in known, option


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/aici/bin/aici", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert not verified.stderr
    assert verified.returncode == 0


def test_the_image_has_two_stages_no_root_and_a_health_check() -> None:
    found = instructions()
    assert [name for name, _ in found].count("FROM") == 2
    stages = {value.split()[-1] for name, value in found if name == "FROM" and " AS " in value}
    assert all(copied[1] in stages for name, value in found if (copied := re.search(r"--from=(\w+)", value)))
    last = [name for name, _ in found[[name for name, _ in found].index("FROM", 1) :]]
    assert {"USER", "HEALTHCHECK", "ENTRYPOINT", "VOLUME"} <= set(last)
    user = next(value for name, value in found if name == "USER")
    assert not user.startswith(("0", "root"))


def test_the_image_installs_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.search(r"\.\[([\w,]+)\]", CONTAINERFILE.read_text())
    assert named
    assert set(named[1].split(",")) <= set(project["optional-dependencies"])
    torch = re.search(r"torch==[\d.]+", CONTAINERFILE.read_text())
    assert torch
    assert torch[0] in project["optional-dependencies"]["engine"], "the pinned version"


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing() -> None:
    linted = subprocess.run(["hadolint", str(CONTAINERFILE)], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
