"""What the engine knows of a divided model by the files alone is what transformers knows."""

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from aici_base.errors import UsageError
from aici_engine.model import load_stage
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.stage_source import describe, stage_tensors
from tests.engine.model import test_models
from tests.engine.native.test_from_folder import KNOWN
from tests.engine.native.test_native_model import module_of


def parts(num_layers: int) -> list[LayerRange]:
    """With embedding or head, both, or neither, and with layers or without."""
    first, last = LayerRange(0, 1, True, False), LayerRange(num_layers - 1, num_layers, False, True)
    ends = LayerRange(0, 0, True, False), LayerRange(num_layers, num_layers, False, True)
    return [first, LayerRange(1, num_layers - 1, False, False), last, *ends, LayerRange(0, num_layers, True, True)]


def check_equal(folder: Path) -> None:
    source = FolderSource(folder)
    facts = describe(source)
    assert facts == load_stage.describe(source)
    for part in parts(facts.num_layers):
        assert stage_tensors(source, part) == load_stage.stage_tensors(source, part)


@pytest.mark.parametrize("family", KNOWN)
def test_of_a_family(family: str, tmp_path: Path) -> None:
    test_models.build(family).save_pretrained(tmp_path)
    check_equal(tmp_path)


@pytest.mark.parametrize("variant", ["llama-tied", "llama-biases"])
def test_of_a_variant(variant: str, tmp_path: Path) -> None:
    module_of(variant).save_pretrained(tmp_path)
    check_equal(tmp_path)


def test_only_the_tensors_of_the_range_must_be_there(tmp_path: Path) -> None:
    test_models.build("llama").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    source = FolderSource(tmp_path)
    assert stage_tensors(source, LayerRange(2, 4, embedding=False, head=False))
    with pytest.raises(UsageError, match=r"LlamaForCausalLM cannot be loaded .* model.layers.1.mlp.up_proj.weight"):
        stage_tensors(source, LayerRange(1, 2, embedding=False, head=False))
