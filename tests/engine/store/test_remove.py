"""Models leave the cache, but not while they are used."""

from pathlib import Path

import pytest

from aici_base.errors import InUseError, NotFoundError
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.native import packed_cache
from aici_engine.store.paths import in_use, models_root
from aici_engine.store.remove import remove_model
from aici_engine.store.resolve import list_models
from tests.engine.support import write_tiny_model


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    folder = models_root() / "mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def test_a_model_goes_with_what_was_made_of_it(mine: Path) -> None:
    packed = mine.parents[1] / "packed"
    packed.mkdir()
    own, other = packed / f"{packed_cache._prefix(mine, 'int8')}0.bin", packed / "other-int8-0.bin"
    own.write_bytes(b"12345")
    other.touch()
    assert remove_model("mine", files_beside=lambda folder: packed_cache.files_of(folder, "int8")) == 6 + 5
    assert list_models() == []
    assert [path.name for path in packed.iterdir()] == [other.name]
    assert not [path for path in models_root().iterdir() if path.is_dir()]


def test_a_model_in_use_stays(mine: Path) -> None:
    with in_use(mine), in_use(mine), pytest.raises(InUseError, match="mine is in use"):
        remove_model("mine")
    assert list_models() == [mine]
    remove_model("mine")


@pytest.mark.parametrize("name", ["yours", "..", ".", "", "mine/", "/tmp"])
def test_only_names_of_the_cache_are_removed(mine: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match="has no model"):
        remove_model(name)
    assert list_models() == [mine]


def test_an_engine_uses_its_model(mine: Path) -> None:
    write_tiny_model(mine)
    with Engine(EngineConfig(model_dir=mine)), pytest.raises(InUseError):
        remove_model("mine")
    assert remove_model("mine") > 0
