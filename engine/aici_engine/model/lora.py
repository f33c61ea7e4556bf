"""Merge a LoRA adapter of `peft` into the weights of a transformers model.

`adapter_model.safetensors` has two matrices for each adapted layer: A (r, inputs) and B (outputs, r). The merged weight
is W + scale * B A. https://arxiv.org/abs/2106.09685
"""

from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers.pytorch_utils import Conv1D

from aici_engine.model.lora_settings import WEIGHTS, LoraSettings

_PREFIX: Final = "base_model.model."


def merge_lora(module: Any, folder: Path) -> None:
    """Add the adapter in `folder` to the weights of `module`, in place. The sum is computed in f32.

    Raises UsageError as `LoraSettings` does, and for an adapter that does not fit the model.
    """
    settings = LoraSettings(folder)
    embedding = module.get_input_embeddings().weight
    for name, (a, b) in _pairs(settings).items():
        part = _layer(module, name)
        if part is None:
            raise settings.refused(f"the model has no linear layer {name}")
        if part.weight is embedding:
            raise settings.refused(f"it adapts {name}, whose weights are those of the embedding, too")
        delta = settings.scale(name, rank=len(a)) * (b.float() @ a.float())
        # A Conv1D, as in GPT-2, is a linear layer with a transposed weight.
        delta = delta.T if isinstance(part, Conv1D) else delta
        if delta.shape != part.weight.shape:
            shape = tuple(part.weight.shape)
            raise settings.refused(
                f"the weight of {name} is {shape} in the model and {tuple(delta.shape)} in the adapter"
            )
        with torch.no_grad():
            part.weight.copy_(part.weight.float() + delta)


def _pairs(settings: LoraSettings) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return A and B by the name of the layer."""
    try:
        tensors = load_file(settings.folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise settings.refused(f"{WEIGHTS} cannot be read: {error}") from error
    pairs: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for key in tensors:
        layer, _, kind = key.rpartition(".lora_")
        if kind not in ("A.weight", "B.weight"):
            raise settings.refused(f"the tensor {key} is not a matrix A or B of a linear layer")
        a, b = tensors.get(f"{layer}.lora_A.weight"), tensors.get(f"{layer}.lora_B.weight")
        if a is None or b is None or a.dim() != 2 or b.dim() != 2 or len(a) != b.shape[1]:
            raise settings.refused(f"the matrices A and B of {layer} do not fit each other")
        pairs[layer.removeprefix(_PREFIX)] = a, b
    if not pairs:
        raise settings.refused(f"{WEIGHTS} holds no tensors")
    return pairs


def _layer(module: Any, name: str) -> Any:
    """Return the linear layer, or None if the model has no layer of this name."""
    try:
        part = module.get_submodule(name)
    except AttributeError:
        return None
    return part if isinstance(part, torch.nn.Linear | Conv1D) else None
