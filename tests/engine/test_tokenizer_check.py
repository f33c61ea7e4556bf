"""A tokenizer.json from elsewhere is loaded in a child first: what would harm this process is refused by name."""

import json
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import UsageError
from aici_engine.model_files import read_tokenizer
from aici_engine.store.resolve import resolve_model
from aici_runtime.tokenizer.tokenizer_check import MEMORY_MAX_BYTES, check_tokenizer
from tests.engine.support import write_tokenizer
from tests.support.cli import AICI
from tests.support.model import default_model_dir

MODEL = default_model_dir()
"""Found before the tests change the cache folder."""


def replace(text: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: text}, "content": content}


def chain(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": parts}


ADDS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 5000 + [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"x": {"id": "x", "ids": [1], "tokens": ["x"]}},
}
SPLIT = {"type": "Split", "pattern": {"Regex": "(?:a|aa|a?a?)+$(?<=b)"}, "behavior": "Isolated", "invert": False}
HOSTILE = {
    "long content": ({"normalizer": replace("a", "a" * 5000)}, "its normalizer can make a text 5000 times longer"),
    "a chain": ({"normalizer": chain(*[replace("a", "aa")] * 40)}, "can make a text 1099511627776 times longer"),
    "an empty pattern": ({"normalizer": replace("x*", "b" * 99, "Regex")}, "can make a text 100 times longer"),
    "a long prefix": ({"normalizer": {"type": "Prepend", "prepend": "▁" * 500}}, "can make a text 500 times longer"),
    "tokens around a text": ({"post_processor": ADDS}, "it adds 5000 tokens to each text"),
    "a pattern without an end": ({"pre_tokenizer": SPLIT}, "retry-limit|processor time"),
    "a broken table": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}}, ""),
    "no model": ({"model": None}, ""),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tokenizer(folder: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_is_refused_by_name(tmp_path: Path, name: str) -> None:
    changes, why = HOSTILE[name]
    path = tokenizer(tmp_path, **changes)
    for read in (check_tokenizer, read_tokenizer):
        with pytest.raises(UsageError, match=rf"tokenizer\.json cannot be loaded as a tokenizer: .*({why})"):
            read(path)


def test_memory_is_limited(tmp_path: Path) -> None:
    """Each of 150 tokens around a text has a copy of a text of 32 MiB. So large a file may take much processor time."""
    special = {"x": {"id": "x", "ids": [1], "tokens": ["x" * (32 << 20)]}}
    path = tokenizer(tmp_path, post_processor=ADDS | {"single": ADDS["single"][-151:], "special_tokens": special})
    with pytest.raises(UsageError, match=f"needs more than {MEMORY_MAX_BYTES >> 20} MiB"):
        check_tokenizer(path)


def test_the_runtime_refuses_a_hostile_tokenizer(tmp_path: Path) -> None:
    path = tokenizer(tmp_path, normalizer=replace("a", "a" * 5000))
    done = subprocess.run(
        [*AICI, "rt", "--server", "--tokenizer", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "tokenizer.json cannot be loaded as a tokenizer: its normalizer can make a text 5000 times longer"
        in done.stderr
    )


def test_what_has_passed_is_remembered_by_content(tmp_path: Path, cache: Path) -> None:
    check_tokenizer(tokenizer(tmp_path / "one"))
    assert len(list((cache / "checked").iterdir())) == 1
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    check_tokenizer(tokenizer(tmp_path / "two"))
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime == before, "no child has computed"


def test_a_cache_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    check_tokenizer(tokenizer(tmp_path / "one"))


def test_tokenizers_of_known_models_pass() -> None:
    check_tokenizer(MODEL / "tokenizer.json")


def test_a_folder_is_refused_before_anything_of_it_is_used(tmp_path: Path) -> None:
    path = tokenizer(tmp_path / "model", normalizer=replace("a", "a" * 5000))
    shutil.copy(MODEL / "config.json", path.parent)
    (path.parent / "model.safetensors").touch()
    with pytest.raises(UsageError, match="5000 times longer"):
        resolve_model(str(path.parent))
