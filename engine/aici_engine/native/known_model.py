"""The configurations of the families that the kernels load without transformers.

config.json means the same as to transformers: settings that a family's class does not read have no effect, and defaults
are those of the class. `known_model` says what is unknown, and transformers loads the model instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aici_base.ids import TokenId
from aici_engine.model.stage_range import LayerRange
from aici_engine.model_check import LARGEST_NUMBER
from aici_engine.native.bindings import Format
from aici_engine.native.decoder_config import DecoderConfig
from aici_engine.native.rope import inverse_frequencies

MAX_HEAD_DIM: Final = 256
"""Largest head_dim of the kernels."""
_SILU: Final = (1.0, 0.0)
_ACTIVATIONS: Final = {"silu": _SILU, "swish": _SILU}


class NotKnownError(Exception):
    """The reason why transformers must load the model."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family with the modules of Llama. `name`: of its class in transformers.

    `qkv_bias`, `out_bias`, `mlp_bias`: the setting that switches the bias on, or whether there is a bias.
    `default_eos`: without `eos_token_id`. `default_window`: without `sliding_window`; `windows_by_layer`: `layer_types`
    says where.
    """

    name: str
    qkv_bias: str | bool = False
    out_bias: str | bool = False
    mlp_bias: str | bool = False
    qk_norms: bool = False
    default_eos: int | None = None
    default_window: int | None = None
    windows_by_layer: bool = False


FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family("LlamaForCausalLM", "attention_bias", "attention_bias", "mlp_bias", default_eos=2),
    "mistral": Family("MistralForCausalLM", default_eos=2, default_window=4096),
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True, default_window=4096, windows_by_layer=True),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        "attention_bias",
        "attention_bias",
        qk_norms=True,
        default_window=4096,
        windows_by_layer=True,
    ),
}
"""By `model_type`."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`config`: of the whole decoder, with weights in f32. `inv_freqs`: of RoPE, the same in all layers."""

    config: DecoderConfig
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norms: bool
    inv_freqs: npt.NDArray[np.float32]

    def cut(self, part: LayerRange) -> "KnownModel":
        """Return a range of the whole model. Only whole models know their context and the tokens that end a text."""
        layers = slice(part.first, part.last)
        windows, rope_scales = self.config.windows[layers], self.config.rope_scales[layers]
        config = replace(self.config, part=part, windows=windows, rope_scales=rope_scales, context=0, eos_tokens=[])
        return replace(self, config=config)


def known_model(settings: Mapping[str, Any], generation: Mapping[str, Any]) -> KnownModel:
    """Return the configuration of a decoder from config.json and generation_config.json. Raises NotKnownError."""
    family = FAMILIES.get(str(settings.get("model_type")))
    if family is None:
        raise NotKnownError(f"its model_type is {settings.get('model_type')!r}")
    if settings.get("quantization_config"):
        raise NotKnownError("its weights are stored quantized")
    hidden_size, num_heads = _count(settings, "hidden_size"), _count(settings, "num_attention_heads")
    num_layers, intermediate_size = _count(settings, "num_hidden_layers"), _count(settings, "intermediate_size")
    num_kv_heads = num_heads if settings.get("num_key_value_heads") is None else _count(settings, "num_key_value_heads")
    if family.name == "Qwen3ForCausalLM" or settings.get("head_dim") is not None:
        head_dim = _count(settings, "head_dim")
    else:
        head_dim = hidden_size // num_heads
    if hidden_size % 32 or intermediate_size % 32 or num_heads * head_dim % 32:
        raise NotKnownError("a size is no multiple of 32")
    if not head_dim or head_dim % 16 or head_dim > MAX_HEAD_DIM or num_heads % num_kv_heads:
        raise NotKnownError(f"it has {num_heads} heads of {head_dim} numbers for {num_kv_heads} heads of keys")
    activation = _ACTIVATIONS.get(str(settings.get("hidden_act")))
    if activation is None:
        raise NotKnownError(f"its activation is {settings.get('hidden_act')!r}")
    vocab_size = _count(settings, "vocab_size")
    config = DecoderConfig(
        name=family.name,
        part=LayerRange(0, num_layers, embedding=True, head=True),
        weight_format=Format.F32,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=bool(settings.get("tie_word_embeddings", False)),
        logit_softcap=0.0,
        intermediate_size=intermediate_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rotary_dim=head_dim,
        windows=_windows(settings, family, num_layers),
        rope_scales=[1.0] * num_layers,
        gated_mlp=True,
        query_scale=head_dim**-0.5,
        activation_linear=activation[0],
        activation_cubic=activation[1],
        norm_eps=_number(settings, "rms_norm_eps"),
        embedding_scale=1.0,
        context=_count(settings, "max_position_embeddings"),
        eos_tokens=_eos_tokens(settings, generation, family, vocab_size),
    )
    return KnownModel(
        config,
        qkv_bias=_is_on(settings, family.qkv_bias),
        out_bias=_is_on(settings, family.out_bias),
        mlp_bias=_is_on(settings, family.mlp_bias),
        qk_norms=family.qk_norms,
        inv_freqs=_frequencies(settings, head_dim),
    )


def _count(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise NotKnownError(f"its {name} is {value!r}")
    return value


def _number(settings: Mapping[str, Any], name: str) -> float:
    value = settings.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LARGEST_NUMBER:
        raise NotKnownError(f"its {name} is {value!r}")
    return float(value)


def _is_on(settings: Mapping[str, Any], setting: str | bool) -> bool:
    return bool(settings.get(setting, False)) if isinstance(setting, str) else setting


def _windows(settings: Mapping[str, Any], family: Family, num_layers: int) -> list[int]:
    if family.default_window is None:
        return [0] * num_layers
    window = settings.get("sliding_window", family.default_window)
    if window is not None:
        window = _count({"sliding_window": window}, "sliding_window")
    if not family.windows_by_layer:
        if settings.get("layer_types") is not None:
            raise NotKnownError("its layers differ")
        return [window or 0] * num_layers
    if not settings.get("use_sliding_window", False):
        window = None
    kinds = settings.get("layer_types")
    if kinds is None:
        first = settings.get("max_window_layers", 28)
        if window is not None and not isinstance(first, int):
            raise NotKnownError(f"its max_window_layers is {first!r}")
        return [window if window is not None and i >= first else 0 for i in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise NotKnownError("its layer_types are not those of its layers")
    by_kind = {"full_attention": 0, "sliding_attention": window or 0}
    if unknown := {str(kind) for kind in kinds} - {*by_kind}:
        raise NotKnownError(f"its layers have {', '.join(sorted(unknown))}")
    return [by_kind[str(kind)] for kind in kinds]


def _frequencies(settings: Mapping[str, Any], head_dim: int) -> npt.NDArray[np.float32]:
    """Return the inverse frequencies. `rope_parameters` is the newer form of `rope_theta` and `rope_scaling`."""
    rope = settings.get("rope_parameters")
    if rope is None:
        scaling = settings.get("rope_scaling") or {}
        rope = {"rope_theta": settings.get("rope_theta"), **scaling} if isinstance(scaling, Mapping) else scaling
    if not isinstance(rope, Mapping):
        raise NotKnownError("its rope_parameters or rope_scaling are no object")
    if settings.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise NotKnownError("it rotates a part of each head")
    try:
        found = inverse_frequencies(rope, head_dim)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise NotKnownError(f"its rotation is not known: {error}") from error
    if not np.isfinite(found).all():
        raise NotKnownError("a frequency of its rotation is not finite")
    return found


def _eos_tokens(
    settings: Mapping[str, Any], generation: Mapping[str, Any], family: Family, vocab_size: int
) -> list[TokenId]:
    """Return the tokens that end a text, without numbers outside of the vocabulary: old configurations say -1."""
    found = generation.get("eos_token_id")
    if found is None:
        found = settings.get("eos_token_id", family.default_eos)
    tokens = [] if found is None else found if isinstance(found, list) else [found]
    if not all(type(token) is int for token in tokens):
        raise NotKnownError(f"its eos_token_id is {found!r}")
    return sorted(TokenId(token) for token in {*tokens} if 0 <= token < vocab_size)
