"""The settings of a pipeline are checked before anything connects."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aici_base.errors import UsageError
from aici_engine.config import EngineConfig

A, B = "tcp://127.0.0.1:1#a", "tcp://127.0.0.1:2#b"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cuts": (4,)}, "1 cuts for 0 stages"),
        ({"stages": (A, B), "cuts": (4,)}, "1 cuts for 2 stages"),
        ({"stages": (A, B), "cuts": (4, 2)}, "ascending order, not 4,2"),
        ({"stages": (A,), "cuts": (-1,)}, "ascending order, not -1"),
        ({"stages": (A, A)}, "listed twice"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"replay_timeout_s": 0.0}, "replay_timeout_s must be above 0"),
    ],
)
def test_values_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EngineConfig(model_dir=Path("model"), **given)


def test_the_settings_travel_to_the_engine_process() -> None:
    config = EngineConfig(model_dir=Path("model"), stages=(A, B), cuts=(0, 4), token_file=Path("token"), depth=2)
    sent = msgspec.json.encode(config, enc_hook=str)
    assert msgspec.json.decode(sent, type=EngineConfig, dec_hook=lambda kind, value: kind(value)) == config


@pytest.mark.parametrize(
    "setting", [{"depth": 2}, {"driver_bytes": 1 << 30}, {"min_nodes": 2}, {"replan_after_s": 5.0}], ids=str
)
def test_a_setting_without_effect_is_refused(setting: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(setting))} has no effect here"):
        EngineConfig(model_dir=tmp_path, **setting)
