"""`aici serve --engine vllm`: its flags, and where vLLM is not installed."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from aici_base.errors import UnavailableError, UsageError
from aici_cli.vllm_flags import engine_flags, vllm_settings
from aici_engine.config import EngineConfig, VllmSettings
from aici_engine.vllm.llm_engine import LlmEngine, check_version


def test_flags_of_vllm_are_one_text() -> None:
    assert vllm_settings("native", None, None) is None
    python = Path(sys.executable)
    found = vllm_settings("vllm", python, "--tensor-parallel-size 2 --hf-overrides '{\"a\": 1}'")
    assert found == VllmSettings(args=("--tensor-parallel-size", "2", "--hf-overrides", '{"a": 1}'), python=python)


def test_a_started_server_gets_the_same_flags() -> None:
    assert engine_flags("native", None, None) == ["--engine", "native"]
    assert engine_flags("vllm", None, "--enforce-eager") == ["--engine", "vllm", "--engine-args", "--enforce-eager"]


@pytest.mark.parametrize(
    ("engine", "python", "args", "said"),
    [
        ("native", None, "--enforce-eager", "--engine-args needs --engine vllm"),
        ("native", Path(sys.executable), None, "--engine-python needs --engine vllm"),
        ("vllm", Path("/nowhere/python"), None, "is no file"),
        ("vllm", None, "'", "cannot be read"),
    ],
)
def test_wrong_flags(engine: str, python: Path | None, args: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        vllm_settings(engine, python, args)  # type: ignore[arg-type]


def test_other_versions_are_refused() -> None:
    check_version("0.32.1+cpu")
    for version in ("0.31.9", "0.3.2", "0.320.0", "1.0.0"):
        with pytest.raises(UsageError, match="goes with vLLM"):
            check_version(version)


def test_an_environment_without_vllm_is_told(tmp_path: Path) -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    with pytest.raises(UnavailableError, match="vllm is not installed"):
        LlmEngine(EngineConfig(model_dir=tmp_path, vllm=VllmSettings()), ())
