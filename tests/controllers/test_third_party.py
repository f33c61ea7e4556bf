import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from aici_base.errors import UnavailableError, UsageError
from aici_controllers.build import build_shipped
from aici_controllers.guest_toml import read_recipe
from aici_controllers.third_party import APT_HELPER, Source, known_sources, notice, source_tree

_C = b"/*\n * Copyright (c) 2001 A. Author\n */\nint f(void) { return 1; }\n"


def _archive(path: Path, files: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _source(sha256: str, *, name: str = "aici-none") -> Source:
    return Source(
        name=name,
        guest="x",
        version="1.0",
        origin="pypi",
        file=f"{name.replace('-', '_')}-1.0.tar.gz",
        sha256=sha256,
        license="MIT",
        notices=["*.c"],
    )


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.delenv("AICI_SOURCES_DIR", raising=False)


def test_a_source_is_fetched_once_and_nothing_of_it_is_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    setup = f"open({str(ran)!r}, 'w')\nimport setuptools\nsetuptools.setup(name='aici-none', version='1.0')\n".encode()
    project = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    inside = {"setup.py": setup, "pyproject.toml": project, "a.c": _C, "b.c": _C}
    files = {f"aici_none-1.0/{name}": content for name, content in inside.items()}
    archive = tmp_path / "aici_none-1.0.tar.gz"
    source = _source(_archive(archive, files))
    tree = source_tree(source, cache_dir=tmp_path / "cache")
    assert (tree / "a.c").read_bytes() == _C
    assert not ran.exists()
    assert notice(source, tree).count("Copyright (c) 2001 A. Author") == 1
    archive.unlink()
    assert source_tree(source, cache_dir=tmp_path / "cache") == tree
    assert [path.name for path in (tmp_path / "cache" / "sources").iterdir()] == [tree.name]


def test_a_source_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"aici-none 1\.0 cannot be fetched with pip: No matching") as error:
        source_tree(_source("0"), cache_dir=tmp_path / "cache")
    assert "AICI_SOURCES_DIR" in error.value.hint
    assert list((tmp_path / "cache" / "sources").iterdir()) == []


def test_an_archive_of_ones_own_must_be_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    right = _archive(own / "aici_none-1.0.tar.gz", {"a.c": _C})
    monkeypatch.setenv("AICI_SOURCES_DIR", str(own))
    with pytest.raises(UnavailableError, match=f"not the pinned aici-none 1.0: its SHA-256 is {right}"):
        source_tree(_source("f" * 64), cache_dir=tmp_path / "cache")
    assert (source_tree(_source(right), cache_dir=tmp_path / "cache") / "a.c").read_bytes() == _C


def test_an_archive_that_leaves_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = _archive(tmp_path / "aici_none-1.0.tar.gz", {"../../../../escaped": b""})
    monkeypatch.setenv("AICI_SOURCES_DIR", str(tmp_path))
    with pytest.raises(UnavailableError, match="cannot be unpacked"):
        source_tree(_source(sha256), cache_dir=tmp_path / "cache")
    assert not list(tmp_path.rglob("escaped"))


def test_a_guest_without_its_source_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "guests" / "x"
    folder.mkdir(parents=True)
    (folder / "x.cpp").touch()
    (folder / "guest.toml").write_text('third_party = "quickjs-ng"\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.wasm").write_bytes(b"of older sources")
    assert build_shipped(tmp_path / "guests", tmp_path / "out") == []
    assert capsys.readouterr().err.startswith("x is not built: quickjs-ng 0.17")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"), [("sorces = []", "sorces is not known"), ('third_party = "q"', "third_party.toml has no q")]
)
def test_wrong_recipes(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "guest.toml").write_text(text)
    with pytest.raises(UsageError, match=says):
        read_recipe(tmp_path)


def test_the_table() -> None:
    for source in known_sources().values():
        assert len(source.sha256) == 64
        assert source.notices


def test_a_source_that_apt_cannot_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = replace(_source("0" * 64), origin="debian")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UnavailableError, match=r"aici-none 1\.0 cannot be fetched with apt: there is no apt here"
    ) as error:
        source_tree(source, cache_dir=tmp_path / "cache")
    assert "AICI_SOURCES_DIR" in error.value.hint


@pytest.mark.skipif(not Path(APT_HELPER).exists(), reason="there is no apt here")
def test_a_source_that_no_archive_of_debian_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    _configure_apt(tmp_path, archive, monkeypatch)
    with pytest.raises(UnavailableError, match=r"aici-none 1\.0 cannot be fetched with apt: "):
        source_tree(replace(_source("0" * 64), origin="debian"), cache_dir=tmp_path / "cache")


@pytest.mark.skipif(not Path(APT_HELPER).exists(), reason="there is no apt here")
def test_a_source_from_an_archive_of_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = tmp_path / "archive" / "pool" / "main" / "a" / "aici-none"
    pool.mkdir(parents=True)
    sha256 = _archive(pool / "aici_none-1.0+ds.tar.gz", {"aici-none/a.c": _C})
    _configure_apt(tmp_path, tmp_path / "archive", monkeypatch)
    source = replace(_source(sha256), origin="debian", file="aici_none-1.0+ds.tar.gz")
    assert (source_tree(source, cache_dir=tmp_path / "cache") / "a.c").read_bytes() == _C


def _configure_apt(folder: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake configuration of apt with one archive, a folder, never updated."""
    (folder / "sources.list").write_text(f"deb file:{archive} stable main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{folder}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(folder / "apt.conf"))


def test_a_licence_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("/* Copyright A\n * The terms.\n */\n")
    (tmp_path / "b.c").write_text("/* Copyright B\n * The terms.\n */\n")
    (tmp_path / "LICENSE").write_text("Copyright C\nOther terms.\n")
    told = notice(replace(_source(""), notices=["*.c", "LICENSE"]), tmp_path)
    assert told.count("The terms.") == told.count("Other terms.") == 1
    assert all(f"Copyright {name}" in told for name in "ABC")
