"""A model folder from elsewhere runs no code here: neither Python modules, nor pickled weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from aici_base.errors import UsageError
from aici_engine.model.load import load_model


class _Payload:
    """Unpickling makes a file."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._marker,)


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_model, tmp_path / "model")
    return tmp_path / "model"


def test_pickled_weights_are_not_loaded(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    for file in folder.glob("*.safetensors"):
        file.unlink()
    torch.save({"model.norm.weight": _Payload(marker)}, folder / "pytorch_model.bin")
    with pytest.raises(UsageError):
        load_model(folder, dtype="float32")
    assert not marker.exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert marker.exists(), "the payload of this test works"


@pytest.mark.parametrize("model_type", ["llama", "from_elsewhere"])
def test_python_modules_are_not_run(folder: Path, tmp_path: Path, model_type: str) -> None:
    marker = tmp_path / "imported"
    (folder / "elsewhere.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    settings = json.loads((folder / "config.json").read_text())
    settings |= {
        "model_type": model_type,
        "auto_map": {"AutoConfig": "elsewhere.Config", "AutoModelForCausalLM": "elsewhere.Model"},
    }
    (folder / "config.json").write_text(json.dumps(settings))
    if model_type == "llama":
        load_model(folder, dtype="float32")
    else:
        with pytest.raises(UsageError):
            load_model(folder, dtype="float32")
    assert not marker.exists()
