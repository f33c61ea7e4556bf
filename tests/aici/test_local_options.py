"""The options of a model in this process are the fields of the engine's configuration."""

from pathlib import Path

import pytest

from aici.errors import NotFoundError
from aici.local import LocalOptions
from aici_engine.config import EngineConfig
from tests.support.model import default_model_dir


def test_options_that_are_given_reach_the_engine(tmp_path: Path) -> None:
    given = LocalOptions(dtype="int4", kv_cache_dtype="int8", threads=1).engine_config(tmp_path)
    assert given == EngineConfig(model_dir=tmp_path, dtype="int4", kv_cache_dtype="int8", num_threads=1)


def test_options_that_are_not_given_keep_their_defaults(tmp_path: Path) -> None:
    assert LocalOptions().engine_config(tmp_path) == EngineConfig(model_dir=tmp_path)


def test_a_draft_model_is_named_as_a_model_is(tmp_path: Path) -> None:
    for name, folder in ((tmp_path, tmp_path), ("default", default_model_dir())):
        given = LocalOptions(draft_model=name, draft_dtype="int4").engine_config(tmp_path)
        assert given == EngineConfig(model_dir=tmp_path, draft_model=folder, draft_dtype="int4")
    with pytest.raises(NotFoundError, match="nowhere"):
        LocalOptions(draft_model="nowhere").engine_config(tmp_path)
