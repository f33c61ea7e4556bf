"""Load a transformers model from a folder and connect it to paged attention."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

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
from aici_engine.model.int4_linear import use_int4
from aici_engine.model.lora import merge_lora
from aici_engine.model_files import read_settings

_ALIGNED: Final = 64
"""Bytes. Memory that torch allocates begins at a multiple of this number."""

ONE_AT_A_TIME = threading.Lock()
"""Loading is serialized: transformers changes torch's default dtype and its own verbosity for the whole process."""


def load_model(
    folder: Path,
    *,
    dtype: Dtype,
    device: torch.device | None = None,
    kernel: AttentionKernel | None = None,
    lora: Path | None = None,
) -> HuggingFaceModel:
    """Load the model in `folder`, with the adapter in the folder `lora` merged. `kernel`: see HuggingFaceModel.

    Raises UsageError if the folder holds no decoder, or a decoder that paged attention cannot serve, and for an adapter
    that cannot be used.
    """
    register()
    packs_int4 = dtype == "int4" and device is not None and device.type == "cuda"
    for name in ("config.json", "generation_config.json"):  # an error of transformers would not name the file
        read_settings(folder / name)
    # Any: the annotations miss that `output_loading_info` makes the result a pair.
    auto: Any = transformers.AutoModelForCausalLM
    with ONE_AT_A_TIME, quiet():
        try:
            module, report = auto.from_pretrained(
                folder,
                # f32 for quantized weights: code * scale + min fits no smaller type exactly.
                dtype=torch.bfloat16 if dtype == "bfloat16" or packs_int4 else torch.float32,
                attn_implementation=probe.IMPLEMENTATION,
                local_files_only=True,
                trust_remote_code=False,  # the default, None, asks at the terminal
                use_safetensors=True,  # other formats are pickled
                ignore_mismatched_sizes=True,  # mismatches are reported, and refused below by name
                output_loading_info=True,
            )
            eos_tokens = eos_tokens_of(read_settings(folder / "generation_config.json"), module.config)
        except Exception as error:  # transformers raises many types for a broken folder
            raise UsageError(f"{folder} cannot be loaded as a model: {error}") from error
    check_complete(report, str(folder))
    if lora is not None:
        merge_lora(module, lora)
    return adopt(module.eval(), eos_tokens=eos_tokens, device=device, kernel=kernel, int4=packs_int4)


def adopt(
    module: Any,
    *,
    eos_tokens: frozenset[TokenId],
    device: torch.device | None = None,
    kernel: AttentionKernel | None = None,
    int4: bool = False,
) -> HuggingFaceModel:
    """Wrap a transformers model in memory. The attention implementation of `module` is replaced for good.

    `device`: move the model there; None leaves the model where it is. `int4`: pack the weights for torch's kernels, on
    `device`. Raises UsageError as `load_model` does.
    """
    register()
    config = module.config.get_text_config(decoder=True)
    name = type(module).__name__
    if module.config.is_encoder_decoder:
        raise UsageError(f"{name} cannot run on this engine: it has an encoder")
    context = context_of(config)
    layers = probed(
        module,
        probe.Probe(module, name=name, num_layers=config.num_hidden_layers, context=context, config=config.to_dict()),
    )
    if not layers:
        raise UsageError(f"{name} cannot run on this engine: it has no layers")
    if int4:
        use_int4(module, module.device if device is None else device)  # after the probe, which computes on the CPU
    return HuggingFaceModel(
        module.to(device),
        layers=layers,
        vocab_size=config.vocab_size,
        context=context,
        eos_tokens=in_vocabulary(eos_tokens, config.vocab_size),
        name=name,
        kernel=kernel,
    )


def align(module: Any) -> None:
    """Move weights that begin anywhere in a mapped file to memory of their own, in place.

    The last bits of a matrix product depend on the alignment of the weights, so without the move a model would compute
    other bits than its stages.
    """
    for tensor in {id(each): each for each in (*module.parameters(), *module.buffers())}.values():
        if tensor.data_ptr() % _ALIGNED:
            tensor.data = tensor.data.clone()


def check_complete(report: Mapping[str, Any], model: str) -> None:
    """Raise UsageError if tensors are missing: transformers fills them with random numbers."""
    lost = sorted([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])
    if lost:
        raise UsageError(
            f"{model} cannot be loaded as a model: {len(lost)} tensors are missing or have the wrong shape, "
            f"{lost[0]} among them",
            hint="the download may be incomplete, or config.json is another model's",
        )


def probed(module: Any, probing: probe.Probe) -> list[LayerShape]:
    """Run the probe of `module`, then connect the module to paged attention."""
    with quiet():
        module.set_attn_implementation(probe.IMPLEMENTATION)
    try:
        return probing.run()
    except (TypeError, AttributeError) as error:
        # A forward with another signature: without position_ids, or without keywords for the layers.
        raise UsageError(f"{type(module).__name__} cannot run on this engine: {error}") from error
    finally:
        with quiet():
            module.set_attn_implementation(attention.IMPLEMENTATION)


def context_of(config: Any) -> int:
    limit = int(getattr(config, "max_position_embeddings", 0) or 2048)
    rope = getattr(config, "rope_parameters", None) or {}
    # Beyond the original context, longrope chooses its frequencies by the longest sequence of the batch, which would
    # change the results of all other sequences.
    if rope.get("rope_type") == "longrope":
        return min(limit, int(rope.get("original_max_position_embeddings") or limit))
    return limit


def eos_tokens_of(generation_config: Mapping[str, Any], config: Any) -> frozenset[TokenId]:
    """All end-of-sequence tokens: generation_config.json may name several, config.json names one."""
    ids = generation_config.get("eos_token_id")
    if ids is None:
        ids = getattr(config, "eos_token_id", None)
    if ids is None:
        return frozenset()
    return frozenset(TokenId(int(i)) for i in (ids if isinstance(ids, list) else [ids]))


def in_vocabulary(tokens: frozenset[TokenId], vocab_size: int) -> frozenset[TokenId]:
    """Without tokens outside of the vocabulary: old configurations say -1 for no token."""
    return frozenset(token for token in tokens if 0 <= token < vocab_size)


def register() -> None:
    """Register our functions with transformers. The registry is process-wide; the functions are stateless, and
    registering twice is harmless."""
    transformers.AttentionInterface.register(attention.IMPLEMENTATION, attention.paged_attention)
    transformers.AttentionInterface.register(probe.IMPLEMENTATION, probe.probe_attention)
    transformers.AttentionMaskInterface.register(probe.IMPLEMENTATION, probe.probe_mask)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
