"""Tensor parallelism: every process of a group has a share of the heads and of the MLP of each layer."""

from typing import Any, Final

import torch
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

from aici_base.errors import UsageError

_STYLES: Final = frozenset(
    {"colwise", "rowwise", "colwise_gather_output", "rowwise_split_input", "replicated_with_grad_allreduce"}
)
"""Ways to divide a layer that compute on plain tensors. Those of experts do not."""


def check(module: Any, num_ranks: int) -> None:
    """Raise UsageError if a transformers model cannot be divided over `num_ranks` processes."""
    name, config = type(module).__name__, module.config.get_text_config(decoder=True)
    plan = _plan(module, num_ranks)
    if not plan or not _STYLES.issuperset(plan.values()):
        unknown = ", ".join(sorted({*plan.values()} - _STYLES))
        raise UsageError(
            f"{name} cannot be divided over processes: transformers "
            + (f"divides its layers by {unknown}" if unknown else "has no tensor parallel plan for its layers"),
            hint="run its stages in one process each",
        )
    heads = config.num_attention_heads
    counts = {"heads": heads, "key heads": getattr(config, "num_key_value_heads", None) or heads}
    for what, count in counts.items():
        if count % num_ranks:
            able = [n for n in range(2, heads + 1) if not any(each % n for each in counts.values())]
            raise UsageError(
                f"{name} has {count} {what}, which {num_ranks} processes cannot share",
                hint=f"use {' or '.join(map(str, able))} processes" if able else "run its stages in one process each",
            )


def divide(module: Any, num_ranks: int, device: torch.device) -> None:
    """Let each process of the torch.distributed group load its share of a module on the device meta, in place.

    Embeddings stay whole, and so does a head that shares the weights of the embedding or cannot be divided.
    """
    check(module, num_ranks)
    mesh = init_device_mesh(device.type, (num_ranks,), mesh_dim_names=("tp",))
    apply_tensor_parallelism(module, mesh, _plan(module, num_ranks))


def keep_share(module: Any) -> None:
    """Replace the distributed tensors of a module by the share of this process, in place."""
    for each in module.modules():
        for name, parameter in [*each.named_parameters(recurse=False)]:
            if hasattr(parameter, "to_local"):
                setattr(each, name, torch.nn.Parameter(parameter.to_local(), requires_grad=False))


def _plan(module: Any, num_ranks: int) -> dict[str, str]:
    """Return transformers' plan of the layers, with the head if it can be divided; empty without a plan of layers."""
    config = module.config.get_text_config(decoder=True)
    layers = {name: style for name, style in module.tp_plan.items() if ".layers." in name}
    head = {name: style for name, style in module.tp_plan.items() if name == "lm_head"}
    has_whole_head = config.tie_word_embeddings or config.vocab_size % num_ranks
    return layers if has_whole_head or not layers else layers | head
