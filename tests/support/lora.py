"""LoRA folders as `peft` writes them, and the adapted model as an oracle that adds the products at run time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""A (r, inputs) and B (outputs, r) by the name of the layer."""


def random_pairs(module: Any, layers: Mapping[str, int], *, size: float = 1.0, seed: int = 0) -> Pairs:
    """`layers`: the ranks by the names of the layers. `size`: of the product, beside the weight of the layer."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {}
    for name, rank in layers.items():
        part = module.get_submodule(name)
        weight = part.weight if isinstance(part, torch.nn.Linear) else part.weight.T
        a = torch.randn(rank, weight.shape[1], generator=generator)
        b = torch.randn(weight.shape[0], rank, generator=generator)
        pairs[name] = a, b * (size * weight.norm() / (b @ a).norm()).detach()
    return pairs


def write_lora(folder: Path, pairs: Pairs, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"base_model.model.{name}.lora_{kind}.weight": matrix.contiguous()
        for name, pair in pairs.items()
        for kind, matrix in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    rank = len(next(iter(pairs.values()))[0])
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none"}
    config |= {"target_modules": sorted({name.rpartition(".")[2] for name in pairs}), "lora_dropout": 0.1}
    config |= {"init_lora_weights": True, "use_dora": False, "modules_to_save": None, "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(config | settings))
    return folder


def adapt(module: Any, pairs: Pairs, scales: Mapping[str, float]) -> None:
    """Add scale * B (A x) to the output of each layer, without touching its weight."""
    for name, (a, b) in pairs.items():

        def add(_layer: Any, inputs: Any, output: Any, a: Any = a, b: Any = b, scale: float = scales[name]) -> Any:
            return output + scale * (inputs[0] @ a.T @ b.T)

        module.get_submodule(name).register_forward_hook(add)
