"""Cut a transformers decoder to a range of layers.

The cut happens in two parts. Before the weights are loaded, `cut` drops the modules outside the range; the remaining
modules keep their names, and transformers finds the tensors. After loading, `renumber` counts the layers from 0.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Final

import torch

from aici_base.errors import UsageError
from aici_engine.model.stage_model import LayerRange

FAMILIES: Final = frozenset(
    f"{name}ForCausalLM"
    for name in (
        *("Llama", "Mistral", "Qwen2", "Qwen3", "Phi", "Phi3", "Gemma", "Gemma2", "Gemma3"),
        *("Granite", "SmolLM3", "Olmo", "Olmo2", "Olmo3", "Olmoe", "Mixtral", "GptOss", "GPTNeoX"),
        *("Qwen2Moe", "Qwen3Moe", "Cohere", "Cohere2", "Starcoder2", "Glm", "Glm4", "Helium", "Exaone4"),
        *("GraniteMoe", "Ministral"),
    )
) | {"Gemma3ForConditionalGeneration", "GPT2LMHeadModel"}
"""Classes whose stages compute the same bits as the whole model: `tests/engine/model/test_stages.py` shows it."""

_LAYERS: Final = ("layers", "h")
_EMBEDDINGS: Final = ("embed_tokens", "embed_in", "wte")
_POSITIONS: Final = ("wpe",)
_NORMS: Final = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
_BY_LAYER: Final = ("layer_types",)
"""Lists of the configuration, read by the number of a layer in a forward pass."""


class Entrance:
    """Replaces the input of a module by states of the previous stage.

    A decoder changes embeddings before the first layer: some families scale, GPT-2 adds positions. The previous
    stage has done so already, so its states enter behind.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """`module`: the first layer of the range, or the final norm of a range without layers."""
        self._states: torch.Tensor | None = None
        module.register_forward_pre_hook(self._replace, with_kwargs=True)

    @contextlib.contextmanager
    def entering(self, states: torch.Tensor) -> Iterator[None]:
        """For one forward pass: `states` (1, T, hidden_size) enter the module."""
        self._states = states
        try:
            yield
        finally:
            self._states = None

    def _replace(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002
        if args:
            return (self._states, *args[1:]), kwargs
        return args, kwargs | {"hidden_states": self._states}


class NoPositions(torch.nn.Module):
    """In the place of an embedding of positions, added by the first stage."""

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), device=position_ids.device).expand(*position_ids.shape, 1)


def check(name: str) -> None:
    """Raise UsageError if models of the class `name` cannot be divided into stages."""
    if name not in FAMILIES:
        raise UsageError(
            f"{name} cannot run in stages: no test shows that its layers can be divided",
            hint="run the model in one process, or use one of " + ", ".join(sorted(FAMILIES)),
        )


def cut(module: Any, part: LayerRange) -> None:
    """Drop the modules outside of `part`, in place. `module`: a whole transformers model on the device meta."""
    name = type(module).__name__
    check(name)
    decoder = module.get_decoder()
    if not 0 <= part.first <= part.last <= decoder.config.num_hidden_layers:
        raise UsageError(f"{name} has {decoder.config.num_hidden_layers} layers: no range {part.first} to {part.last}")
    _drop_other_towers(module, decoder)
    is_tied = bool(module.config.get_text_config(decoder=True).tie_word_embeddings)
    # Tied: one tensor for both, so an end of the model keeps both modules.
    ends = part.embedding or part.head
    if not (ends if is_tied else part.head):
        module.set_output_embeddings(None)
    if is_tied and not ends:
        module.all_tied_weights_keys = {}
    for child_name, child in list(decoder.named_children()):
        if child_name in _LAYERS:
            for index in range(len(child)):
                if not part.first <= index < part.last:
                    del child._modules[str(index)]
        elif child_name in _EMBEDDINGS:
            if not (ends if is_tied else part.embedding):
                setattr(decoder, child_name, None)
        elif child_name in _POSITIONS:
            if not part.embedding:
                setattr(decoder, child_name, NoPositions())
        elif child_name in _NORMS:
            if not part.head:
                setattr(decoder, child_name, torch.nn.Identity())
        elif any(True for _ in child.parameters()):
            raise UsageError(f"{name} cannot run in stages: nothing is known of its module {child_name}")


def renumber(module: Any, part: LayerRange) -> Entrance | None:
    """Count the layers of a module after `cut` from 0. Return the entrance of a range without embedding."""
    decoder = module.get_decoder()
    layers = layers_of(decoder)
    layers._modules = {str(i): layer for i, layer in enumerate(layers)}
    for each in layers.modules():
        if isinstance(getattr(each, "layer_idx", None), int):
            each.layer_idx -= part.first
    config = copy.copy(decoder.config)  # the head may read the numbers of the whole model
    config.num_hidden_layers = part.num_layers
    for key in _BY_LAYER:
        if getattr(config, key, None):
            setattr(config, key, getattr(config, key)[part.first : part.last])
    decoder.config = config
    if part.embedding:
        return None
    return Entrance(layers[0] if part.num_layers else norm_of(decoder))


def different_layers(config: Any) -> tuple[int, ...]:
    """Return the first layer of each type that the configuration of a decoder distinguishes, in order."""
    lists = [kinds for key in (*_BY_LAYER, "no_rope_layers") if (kinds := getattr(config, key, None))]
    first: dict[tuple[object, ...], int] = {}
    for i in range(config.num_hidden_layers):
        first.setdefault(tuple(kinds[i] for kinds in lists), i)
    return tuple(first.values())


def drop_unused_end(module: Any, part: LayerRange) -> None:
    """Drop the second module of a tied pair at one end of the model, so that nobody packs its weights anew.

    Call after loading: transformers ties weights that `cut` left in two modules.
    """
    if not part.head:
        module.set_output_embeddings(None)
    elif not part.embedding:
        decoder = module.get_decoder()
        for name, _ in list(decoder.named_children()):
            if name in _EMBEDDINGS:
                setattr(decoder, name, None)


def layers_of(decoder: Any) -> Any:
    return _child(decoder, _LAYERS)


def norm_of(decoder: Any) -> Any:
    return _child(decoder, _NORMS)


def _child(decoder: Any, names: tuple[str, ...]) -> Any:
    return next(child for name, child in decoder.named_children() if name in names)


def _drop_other_towers(module: Any, decoder: Any) -> None:
    """Drop all parts but decoder and head: vision, audio."""
    kept = {id(decoder), id(module.get_output_embeddings())}
    for parent in list(module.modules()):
        if parent is not decoder and any(each is decoder for each in parent.modules()):
            for name, child in list(parent.named_children()):
                if id(child) not in kept and not any(each is decoder for each in child.modules()):
                    setattr(parent, name, None)
