"""Names of models resolve to folders, or to an error that says what was tried."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aici_base.errors import NotFoundError, UnavailableError, UsageError
from aici_engine.store.paths import atomic_folder, exclusive, is_model_dir, models_root
from aici_engine.store.resolve import list_models, resolve_model
from tests.engine.support import write_tokenizer
from tests.support.model import default_model_dir


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "cache"


def a_model_dir(path: Path) -> Path:
    path.mkdir(parents=True)
    return fill(path)


def fill(path: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        (path / name).write_text("{}")
    write_tokenizer(path)
    return path


def test_the_default_model_is_a_model_folder_and_the_second_call_does_not_convert() -> None:
    said: list[str] = []
    assert resolve_model(None, say=said.append) == default_model_dir()
    assert is_model_dir(default_model_dir())
    assert said == []


def test_a_folder_is_taken_as_it_is(tmp_path: Path, empty_cache: Path) -> None:
    folder = a_model_dir(tmp_path / "mine")
    assert resolve_model(str(folder)) == folder
    assert not (empty_cache / "models").exists()


def test_a_model_of_the_cache_is_found_by_its_name(empty_cache: Path) -> None:
    folder = a_model_dir(models_root() / "mine")
    assert list_models() == [folder]
    assert resolve_model("mine", fetch=False) == folder


def test_a_folder_without_weights_is_refused_with_what_it_lacks(tmp_path: Path, empty_cache: Path) -> None:
    with pytest.raises(NotFoundError, match=r"config\.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "weights.gguf").touch()
    with pytest.raises(NotFoundError) as caught:
        resolve_model(str(tmp_path))
    assert "weights.gguf" in caught.value.hint


def test_an_unknown_name_says_where_it_was_looked_for(empty_cache: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_model("nobody/nothing")
    assert str(empty_cache) in caught.value.message
    assert str(Path.cwd() / "nobody/nothing") in caught.value.message
    assert "hub repository nobody/nothing" in caught.value.message


def test_a_hub_without_a_connection_is_said_in_words(empty_cache: Path) -> None:
    code = """
from aici_engine.store.resolve import resolve_model
try:
    resolve_model("nobody/nothing", fetch={fetch})
except Exception as error:
    print(error)
"""
    for fetch, said in ((True, "the hub cannot be reached"), (False, "not in the hub client's cache")):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code.format(fetch=fetch)],
            env=os.environ | {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(empty_cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"hub repository nobody/nothing: {said}\n" in done.stdout


def test_without_fetching_the_default_model_must_be_there(empty_cache: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_model(None, fetch=False)
    assert "aici models pull" in caught.value.hint


def test_a_broken_gguf_is_refused_and_leaves_nothing(tmp_path: Path, empty_cache: Path) -> None:
    gguf = tmp_path / "broken.gguf"
    gguf.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(UsageError, match=r"broken\.gguf"):
        resolve_model(str(gguf))
    assert list_models() == []
    assert [path.name for path in models_root().iterdir() if path.is_dir()] == []


def test_what_is_made_appears_whole_and_replaces_what_stood_there(empty_cache: Path) -> None:
    out = models_root() / "mine"
    out.mkdir(parents=True)
    (out / "config.json").touch()
    # The leftovers of a killed process.
    folder = a_model_dir(out.with_name(".mine.tmp"))
    (folder / "half").touch()
    assert list_models() == []
    with exclusive("mine"), atomic_folder(out) as staging:
        assert staging == folder
        fill(staging)
    assert list_models() == [out]
    assert not (out / "half").exists()
    assert not folder.exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.gguf").touch()
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "x.gguf"))
    with pytest.raises(UnavailableError, match=re.escape(str(tmp_path))):
        resolve_model(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/x"])
def test_a_name_that_can_be_no_path_was_not_found(empty_cache: Path, name: str) -> None:
    with pytest.raises(NotFoundError):
        resolve_model(name)


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AICI_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models_root() == tmp_path / "aici" / "models"
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "own"))
    assert models_root() == tmp_path / "own" / "models"
