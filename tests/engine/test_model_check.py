"""config.json from elsewhere: sizes that no model has are refused by name, before anything is computed with them."""

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import UsageError
from aici_engine.cluster.headers import ModelSizes
from aici_engine.model_check import check_sizes, read_model_config
from aici_engine.model_files import read_settings
from tests.support.model import default_model_dir

GOOD = read_settings(default_model_dir() / "config.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_position_embeddings", 1 << 62),
        ("max_position_embeddings", 0),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", 2.5),
        ("hidden_size", -32),
        ("vocab_size", True),
        ("num_attention_heads", "4"),
        ("intermediate_size", [64, 1 << 40]),
        ("text_config", {"num_hidden_layers": 10**9}),
    ],
)
def test_a_size_that_no_model_has(tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD | {name: value}))
    shown = "num_hidden_layers" if isinstance(value, dict) else name
    for read in (read_model_config, ModelSizes.of):
        with pytest.raises(UsageError, match=rf"config\.json: {shown} is .*, and must be a whole number from"):
            read(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-5, 10**400, "1e-5", True])
@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
def test_a_number_that_no_model_has(tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD | {name: value}))
    with pytest.raises(UsageError, match=rf"config\.json: {name} is .*, and must be a number from"):
        read_model_config(tmp_path)


def test_a_settings_file_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UsageError, match=r"config\.json has 1,073,741,824 bytes: at most 67,108,864 are read"):
        read_model_config(tmp_path)


def test_a_good_config_is_returned_as_it_is(tmp_path: Path) -> None:
    shutil.copy(default_model_dir() / "config.json", tmp_path)
    assert read_model_config(tmp_path) == GOOD
    check_sizes(tmp_path, {"n_inner": None, "num_local_experts": 0, "intermediate_size": [8, 16]})


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())


@settings(max_examples=200, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(GOOD)), VALUES, min_size=1, max_size=4))
def test_mutants_are_refused_by_name_or_have_sizes_of_models(changes: dict[str, Any]) -> None:
    with contextlib.suppress(UsageError):
        check_sizes(Path("config.json"), GOOD | changes)
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
            value = changes.get(name)
            assert value is None or isinstance(value, list) or 0 <= value <= 1 << 24
