"""Load a range of a transformers model's layers from a source of tensors."""

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import torch
import transformers
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from aici_base.errors import AiciError, UsageError
from aici_engine.cache.storage import LayerShape
from aici_engine.config import Dtype
from aici_engine.model import attention, layer_range, probe, tensor_parallel
from aici_engine.model.attention import AttentionKernel
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.layer_range import Entrance
from aici_engine.model.load import (
    ONE_AT_A_TIME,
    align,
    check_complete,
    context_of,
    eos_tokens_of,
    in_vocabulary,
    probed,
    quiet,
    register,
)
from aici_engine.model.model_facts import ModelFacts
from aici_engine.model.stage_model import LayerRange
from aici_engine.model.tensor_source import TensorSource
from aici_engine.model.torch_tensors import to_torch


def describe(source: TensorSource) -> ModelFacts:
    """Return the facts of a model without reading a tensor. Raises UsageError if the configuration is no decoder's."""
    whole = _config(source)
    config = whole.get_text_config(decoder=True)
    try:
        eos_tokens = eos_tokens_of(source.generation_config, whole)
    except (TypeError, ValueError) as error:
        raise UsageError(f"generation_config.json cannot be loaded: {error}") from error
    name = _class_of(whole).__name__
    if not config.num_hidden_layers:
        raise UsageError(f"{name} cannot run on this engine: it has no layers")
    return ModelFacts(
        name=name,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        context=context_of(config),
        eos_tokens=in_vocabulary(eos_tokens, config.vocab_size),
    )


def different_layers(source: TensorSource) -> tuple[int, ...]:
    """Return the first layer of each type, in order."""
    return layer_range.different_layers(_config(source).get_text_config(decoder=True))


def stage_tensors(source: TensorSource, part: LayerRange) -> list[str]:
    """Return the names of the checkpoint's tensors that the range needs, sorted. No tensor is read.

    Raises UsageError if the model cannot run in stages.
    """
    with ONE_AT_A_TIME, quiet():
        module = _skeleton(source)
        layer_range.cut(module, part)
        known = module.state_dict()
        mapping = get_model_conversion_mapping(module)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    prefix = module.base_model_prefix

    def is_needed(name: str) -> bool:
        return name in known or rename_source_key(name, renamings, converters, prefix, known)[0] in known

    return sorted(filter(is_needed, source.tensors))


def check_ranks(source: TensorSource, num_ranks: int) -> None:
    """Raise UsageError if `load_stage` cannot divide the model over `num_ranks` processes. No tensor is read."""
    with ONE_AT_A_TIME, quiet():
        tensor_parallel.check(_skeleton(source), num_ranks)


def load_stage(
    source: TensorSource,
    part: LayerRange,
    *,
    dtype: Dtype,
    device: torch.device | None = None,
    kernel: AttentionKernel | None = None,
    num_ranks: int = 1,
) -> HuggingFaceStage:
    """Load a range of layers: the tensors of `stage_tensors`, and nothing else, are read from `source`.

    `device`, `kernel`: see `adopt` and HuggingFaceStage. `num_ranks`: processes of the torch.distributed group, which
    all make this call and get a share of the heads each. Raises UsageError if the model cannot run in stages, if
    tensors are missing, or if paged attention cannot serve the model.
    """
    register()
    settings = _config(source)
    whole = _class_of(settings)
    layer_range.check(whole.__name__)
    with ONE_AT_A_TIME, quiet():

        def cut(self: Any, config: Any) -> None:
            whole.__init__(self, config)
            layer_range.cut(self, part)
            if num_ranks > 1:
                tensor_parallel.divide(self, num_ranks, device or torch.device("cpu"))

        # A class of the same name: transformers looks up conversions of the weights by the name.
        ranged: Any = type(whole.__name__, (whole,), {"__init__": cut, "__module__": whole.__module__})
        try:
            module, report = ranged.from_pretrained(
                None,
                config=settings,
                state_dict={name: _LazyTensor(source, name) for name in source.tensors},
                dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32,  # as in load_model
                attn_implementation=probe.IMPLEMENTATION,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except AiciError:
            raise
        except Exception as error:  # transformers raises many types for a broken model
            raise UsageError(f"{whole.__name__} cannot be loaded: {error}") from error
    check_complete(report, whole.__name__)
    tensor_parallel.keep_share(module)
    align(module)
    entrance = layer_range.renumber(module.eval(), part)
    config = module.config.get_text_config(decoder=True)
    layers = _probe_range(module, part, entrance, context=context_of(config))
    return HuggingFaceStage(
        module.to(device),
        part,
        layers=layers,
        vocab_size=config.vocab_size,
        name=whole.__name__,
        kernel=kernel,
        entrance=entrance,
    )


class _LazyTensor:
    """A tensor that transformers reads with `tensor[...]` if the model has a place for it."""

    def __init__(self, source: TensorSource, name: str) -> None:
        self._source = source
        self._name = name

    def get_shape(self) -> list[int]:
        return list(self._source.tensors[self._name].shape)

    def __getitem__(self, index: Any) -> torch.Tensor:
        info = self._source.tensors[self._name]
        return to_torch(self._source.read(self._name), info.dtype)[index]


_CODE_AND_FILES: Final = frozenset(
    {"attn_implementation", "experts_implementation", "fusion_config", "auto_map", "transformers_weights"}
    | {"distributed_config", "name_or_path"}
)
"""Settings by which transformers finds code to run, or files to read."""


def _harmless(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without settings that name code or files: the configuration may come from a peer."""
    return {
        key: _harmless(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in _CODE_AND_FILES and not key.startswith("_")
    }


def _config(source: TensorSource) -> Any:
    kind = source.config.get("model_type")
    if source.config.get("quantization_config"):
        raise UsageError(
            f"the weights of this {kind} model are stored quantized: they cannot be divided into stages",
            hint="run the model in one process, or use a checkpoint in bfloat16 or float32",
        )
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise UsageError(f"config.json names the model type {kind!r}, which transformers does not know")
    try:
        return transformers.CONFIG_MAPPING[kind].from_dict(_harmless(source.config))
    except Exception as error:  # transformers raises many types for a broken configuration
        raise UsageError(f"config.json cannot be loaded: {error}") from error


def _class_of(config: Any) -> Any:
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or config.is_encoder_decoder:
        raise UsageError(f"config.json describes no decoder: {config.model_type}")
    found = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _skeleton(source: TensorSource) -> Any:
    """Return the whole module without weights, on the device meta."""
    register()
    config = _config(source)
    layer_range.check(_class_of(config).__name__)
    try:
        with torch.device("meta"):
            return _class_of(config)._from_config(config, attn_implementation=probe.IMPLEMENTATION)
    except Exception as error:  # transformers raises many types for a broken configuration
        raise UsageError(f"config.json describes no decoder that can be loaded: {error}") from error


def _probe_range(module: Any, part: LayerRange, entrance: Entrance | None, *, context: int) -> list[LayerShape]:
    """Probe the layers of a range with its real weights: two tokens, or two rows of zeros as states."""
    if not part.num_layers:
        with quiet():
            module.set_attn_implementation(attention.IMPLEMENTATION)
        return []
    decoder = module.get_decoder()
    states = torch.zeros(1, 2, decoder.config.hidden_size, dtype=module.dtype)
    inputs = None if entrance is None else {"inputs_embeds": states}
    with contextlib.nullcontext() if entrance is None else entrance.entering(states):
        return probed(
            module,
            probe.Probe(
                decoder,
                name=type(module).__name__,
                num_layers=part.num_layers,
                context=context,
                config=module.config.get_text_config(decoder=True).to_dict(),
                inputs=inputs,
            ),
        )
