"""From a folder to a model that runs on our cache."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging as transformers_logging

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_engine.cache.storage import LayerShape
from aici_engine.config import Dtype
from aici_engine.model import attention, probe
from aici_engine.model.attention import AttentionKernel
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model_files import read_settings

_one_at_a_time = threading.Lock()
"""While it builds a model, transformers changes torch's default dtype and its own verbosity, for the whole process."""


def load_model(
    folder: Path, *, dtype: Dtype, device: torch.device | None = None, kernel: AttentionKernel | None = None
) -> HuggingFaceModel:
    """`kernel`: as in HuggingFaceModel.

    Raises UsageError if the folder holds no decoder, or one that our attention cannot serve."""
    _register()
    for name in ("config.json", "generation_config.json"):  # of which transformers says what is wrong, but not where
        read_settings(folder / name)
    # Its annotations forget that `output_loading_info` makes the answer a pair.
    auto: Any = transformers.AutoModelForCausalLM
    with _one_at_a_time, _quiet():
        try:
            module, report = auto.from_pretrained(
                folder,
                # Quantized weights are found, and kept, in f32: code * scale + min fits no type that is smaller.
                dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32,
                attn_implementation=probe.IMPLEMENTATION,
                local_files_only=True,
                trust_remote_code=False,  # None would ask whoever sits at the terminal
                ignore_mismatched_sizes=True,  # they are reported, and refused below, by name
                output_loading_info=True,
            )
            eos_tokens = _eos_tokens(folder, module.config)
        except Exception as error:  # a folder can be broken in more ways than transformers has kinds of errors
            raise UsageError(f"{folder} cannot be loaded as a model: {error}") from error
    # Transformers would fill them with random numbers.
    lost = sorted([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])
    if lost:
        raise UsageError(
            f"{folder} cannot be loaded as a model: {len(lost)} tensors are missing or have the wrong shape, "
            f"{lost[0]} among them",
            hint="the download may be incomplete, or config.json is another model's",
        )
    return adopt(module.eval(), eos_tokens=eos_tokens, device=device, kernel=kernel)


def adopt(
    module: Any,
    *,
    eos_tokens: frozenset[TokenId],
    device: torch.device | None = None,
    kernel: AttentionKernel | None = None,
) -> HuggingFaceModel:
    """Take over a transformers model in memory; its attention implementation is changed for good.

    `device`: where it goes then, if it is not to stay.
    """
    _register()
    config = module.config.get_text_config(decoder=True)
    name = type(module).__name__
    if module.config.is_encoder_decoder:
        raise UsageError(f"{name} cannot run on this engine: it has an encoder")
    context = _context(config)
    layers = _probe(module, name=name, context=context, config=config)
    if not layers:
        raise UsageError(f"{name} cannot run on this engine: it has no layers")
    return HuggingFaceModel(
        module.to(device),
        layers=layers,
        vocab_size=config.vocab_size,
        context=context,
        # Old configurations say -1 where there is none.
        eos_tokens=frozenset(token for token in eos_tokens if 0 <= token < config.vocab_size),
        name=name,
        kernel=kernel,
    )


def _probe(module: Any, *, name: str, context: int, config: Any) -> list[LayerShape]:
    with _quiet():
        module.set_attn_implementation(probe.IMPLEMENTATION)
    try:
        return probe.Probe(
            module, name=name, num_layers=config.num_hidden_layers, context=context, config=config.to_dict()
        ).run()
    except (TypeError, AttributeError) as error:
        # A model with a forward of its own shape: it takes no position_ids, or hands no keywords down.
        raise UsageError(f"{name} cannot run on this engine: {error}") from error
    finally:
        with _quiet():
            module.set_attn_implementation(attention.IMPLEMENTATION)


def _context(config: Any) -> int:
    limit = int(getattr(config, "max_position_embeddings", 0) or 2048)
    rope = getattr(config, "rope_parameters", None) or {}
    # Beyond it longrope switches its frequencies by the longest sequence of the batch, and would change the others'.
    if rope.get("rope_type") == "longrope":
        return min(limit, int(rope.get("original_max_position_embeddings") or limit))
    return limit


def _eos_tokens(folder: Path, config: Any) -> frozenset[TokenId]:
    """Every token that ends a sequence: generation_config.json may name several, the model's own configuration one."""
    path = folder / "generation_config.json"
    ids = read_settings(path).get("eos_token_id")
    if ids is None:
        ids = getattr(config, "eos_token_id", None)
    if ids is None:
        return frozenset()
    return frozenset(TokenId(int(i)) for i in (ids if isinstance(ids, list) else [ids]))


def _register() -> None:
    """Transformers' registry belongs to the process; what goes there has no state, and may be put there twice."""
    transformers.AttentionInterface.register(attention.IMPLEMENTATION, attention.paged_attention)
    transformers.AttentionInterface.register(probe.IMPLEMENTATION, probe.probe_attention)
    transformers.AttentionMaskInterface.register(probe.IMPLEMENTATION, probe.probe_mask)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    level = transformers_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()
