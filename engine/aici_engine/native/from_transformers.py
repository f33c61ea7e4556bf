"""Extract configuration and packed weights of the C decoder from a transformers model.

Transformers writes the differences between families as code; here the differences are data in `DecoderConfig`, or are
folded into the weights. `backend.py` says how to add a family.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from aici_engine.cache.storage import LayerShape
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.torch_tensors import to_numpy
from aici_engine.native import gpt2_names
from aici_engine.native.bindings import Format
from aici_engine.native.decoder_config import DecoderConfig
from aici_engine.native.matrix_layout import LANES, pack
from aici_engine.native.rope import PLAIN_TYPES, inverse_frequencies


class Activation(NamedTuple):
    """activation(x) = x / (1 + exp(-(linear x + cubic x^3)))."""

    linear: float
    cubic: float


_ACTIVATIONS: Final = (Activation(1.0, 0.0), Activation(1.5957691216, 0.0713548163))
"""SiLU, and the tanh form of GELU: 0.5 x (1 + tanh(y)) = x / (1 + exp(-2 y)) with y = sqrt(2 / pi) (x + 0.044715 x^3).
"""


def extract(
    model: HuggingFaceStage, weights: Format, part: LayerRange
) -> tuple[DecoderConfig, dict[str, npt.NDArray[Any]]]:
    """Return the configuration and the named tensors of `part`, a range inside of `model.part`. `model` has no
    `unsupported_reason`.

    A packed matrix contributes several tensors (`layers.0.qkv.values`, `layers.0.qkv.scales`, ...). Layers have their
    numbers in the whole model. With tied embeddings, the matrix has the name of the head.
    """
    decoder = text_decoder(model.module)
    first = model.part.first
    numbers = range(part.first - first, part.last - first)
    config = decoder.config
    is_tied = bool(model.module.config.get_text_config(decoder=True).tie_word_embeddings)
    ropes = [_rope(decoder, i) for i in numbers]
    known: dict[str, Any] = {}
    if numbers:
        known |= _of_layers(decoder, model.layers[numbers[0]], ropes[0], numbers[0])
    if part.head:
        known |= _of_norms(config, decoder.norm)
    if part.embedding:
        known |= {"embedding_scale": _embedding_scale(config, decoder.embed_tokens)}
    if isinstance(model, HuggingFaceModel):
        known |= {"context": model.context, "eos_tokens": sorted(model.eos_tokens)}
    decoder_config = DecoderConfig(
        name=model.name,
        part=part,
        weight_format=weights,
        hidden_size=config.hidden_size,
        vocab_size=model.vocab_size,
        tied_embeddings=is_tied,
        logit_softcap=getattr(config, "final_logit_softcapping", None) or 0.0,
        windows=[model.layers[i].window for i in numbers],
        rope_scales=[scale for _, scale in ropes],
        **known,
    )
    tensors: dict[str, npt.NDArray[Any]] = {}
    for i, (inv_freqs, _) in zip(numbers, ropes, strict=True):
        tensors[f"layers.{first + i}.inv_freqs"] = np.array(inv_freqs, np.float32)
        packed = _layer(decoder.layers[i], weights)
        tensors |= {f"layers.{first + i}.{name}": tensor for name, tensor in packed.items()}
    if part.head:
        tensors["norm"] = to_numpy(_norm(decoder.norm) / getattr(config, "logits_scaling", 1.0))
    if part.embedding and hasattr(decoder, "embed_positions"):
        tensors |= _named("positions", _packed(decoder.embed_positions.weight, Format.F32))
    if part.head or (part.embedding and is_tied):
        tensors |= _named("head", _packed(model.module.lm_head.weight, decoder_config.embedding_format))
    if part.embedding and not is_tied:
        tensors |= _named("embedding", _packed(decoder.embed_tokens.weight, decoder_config.embedding_format))
    return decoder_config, tensors


def _of_layers(decoder: Any, shape: LayerShape, rope: "Rope", first: int) -> dict[str, Any]:
    """Return the fields in which all layers agree. `shape`, `rope`: of layer `first`."""
    layer = decoder.layers[first]
    activation = activation_of(layer.mlp)
    assert activation is not None
    return {
        "intermediate_size": layer.mlp.down_proj.weight.shape[1],
        "num_heads": decoder.config.num_attention_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.key_dim,
        "rotary_dim": 2 * len(rope[0]),
        "joint_qk_norms": _has_joint_qk_norms(layer.self_attn, shape.key_dim),
        "gated_mlp": _is_gated(layer.mlp),
        "query_scale": shape.scale,
        "activation_linear": activation.linear,
        "activation_cubic": activation.cubic,
        "attention_softcap": shape.cap,
    } | _of_norms(decoder.config, next(iter(_norms(layer).values())))


def _of_norms(config: Any, norm: Any) -> dict[str, Any]:
    """Return the fields in which all norms agree."""
    is_layer_norm = isinstance(norm, torch.nn.LayerNorm)
    return {"layer_norm": is_layer_norm, "norm_eps": _epsilon(norm) / _branch_scale(config) ** 2}


def _embedding_scale(config: Any, embedding: Any) -> float:
    scale = float(getattr(embedding, "embed_scale", 1.0)) * getattr(config, "embedding_multiplier", 1.0)
    return float(scale / _branch_scale(config))


def _branch_scale(config: Any) -> float:
    """Granite scales the output of attention and MLP. Dividing the hidden states by the scale is equivalent."""
    return float(getattr(config, "residual_multiplier", 1.0))


def text_decoder(module: Any) -> Any:
    """Return the text decoder, also of a model with vision, with the module names of Llama."""
    if hasattr(module, "transformer"):
        return gpt2_names.with_llama_names(module)
    return getattr(module.model, "language_model", module.model)


def activation_of(mlp: Any) -> Activation | None:
    """Identify the activation of `mlp` by its values. Return None if the kernels do not support the function."""
    act = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn
    x = torch.linspace(-6, 6, 97)
    for activation in _ACTIVATIONS:
        if torch.allclose(act(x), x * (activation.linear * x + activation.cubic * x**3).sigmoid(), atol=1e-5):
            return activation
    return None


def _layer(layer: Any, weights: Format) -> dict[str, npt.NDArray[Any]]:
    attention, mlp = layer.self_attn, layer.mlp
    gate_up, gate_up_bias = _joined(mlp, "gate_up_proj", *(["gate_proj"] * _is_gated(mlp)), "up_proj")
    if _is_gated(mlp):
        gate_up, gate_up_bias = _paired(gate_up), None if gate_up_bias is None else _paired(gate_up_bias)
    qkv, qkv_bias = _joined(attention, "qkv_proj", "q_proj", "k_proj", "v_proj")
    return {
        **{name: to_numpy(_norm(norm)) for name, norm in _norms(layer).items()},
        **_named("qkv", _packed(qkv, weights, qkv_bias)),
        **_named("out", _packed(attention.o_proj.weight, weights, attention.o_proj.bias)),
        **_named("gate_up", _packed(gate_up, weights, gate_up_bias)),
        **_named("down", _packed(mlp.down_proj.weight, weights, mlp.down_proj.bias)),
    }


def _is_gated(mlp: Any) -> bool:
    return hasattr(mlp, "gate_up_proj") or hasattr(mlp, "gate_proj")


def _joined(module: Any, whole: str, *parts: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weight and bias of the module `whole`, or of the concatenated `parts` if `module` has no `whole`."""
    found = [getattr(module, name) for name in ([whole] if hasattr(module, whole) else parts)]
    bias = None if found[0].bias is None else torch.cat([part.bias for part in found])
    return torch.cat([part.weight for part in found]), bias


def _paired(rows: torch.Tensor) -> torch.Tensor:
    """Interleave the rows: from all of gate, all of up, to 16 of gate, 16 of up, 16 of gate, and so on."""
    return rows.reshape(2, -1, LANES, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _norms(layer: Any) -> dict[str, Any]:
    """Return the norms by place. `post_attention_layernorm` is the norm after attention in families that also have
    `post_feedforward_layernorm`, and the norm before the MLP in all others.
    """
    if hasattr(layer, "post_feedforward_layernorm"):
        names = {"after_attention": "post_attention_layernorm", "before_mlp": "pre_feedforward_layernorm"}
    else:
        names = {"before_mlp": "post_attention_layernorm"}
    names |= {"before_attention": "input_layernorm", "after_mlp": "post_feedforward_layernorm"}
    found = {place: getattr(layer, name, None) for place, name in names.items()}
    found |= {place: getattr(layer.self_attn, f"{place[0]}_norm", None) for place in ("query_norm", "key_norm")}
    return {place: norm for place, norm in found.items() if norm is not None}


def _norm(norm: Any) -> torch.Tensor:
    """Return the factors of a norm, followed by the biases of a LayerNorm. Some families store factor - 1."""
    weight: torch.Tensor = norm.weight.detach().float()
    if isinstance(norm, torch.nn.LayerNorm):
        return torch.cat([weight, torch.zeros_like(weight) if norm.bias is None else norm.bias.float()])
    # `forward` leaves out the hook by which states enter a stage.
    offset: torch.Tensor = norm.forward(torch.ones_like(weight)) - weight
    return weight + offset.mean().round()


def _epsilon(norm: Any) -> float:
    return float(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


def _has_joint_qk_norms(attention: Any, head_dim: int) -> bool:
    return hasattr(attention, "q_norm") and len(attention.q_norm.weight) != head_dim


Rope = tuple[tuple[float, ...], float]
"""Inverse frequencies, and the factor of cosines and sines."""


def _rope(decoder: Any, layer: int) -> Rope:
    if not hasattr(decoder, "rotary_emb"):
        return (0.0,), 1.0
    rotary, kinds = decoder.rotary_emb, getattr(decoder.config, "layer_types", None)
    prefix = f"{kinds[layer]}_" if kinds and hasattr(rotary, f"{kinds[layer]}_inv_freq") else ""
    inv_freqs = tuple(getattr(rotary, f"{prefix}inv_freq").tolist())
    if not getattr(decoder.layers[layer].self_attn, "use_rope", True):
        return (0.0,) * len(inv_freqs), 1.0
    if not prefix and getattr(rotary, "rope_type", None) in PLAIN_TYPES:
        # As in `known_model.py`: torch's power differs in the last bit from machine to machine.
        own = inverse_frequencies(decoder.config.rope_parameters, 2 * len(inv_freqs))
        return tuple(own.tolist()), 1.0
    return inv_freqs, float(getattr(rotary, f"{prefix}attention_scaling"))


def _named(name: str, parts: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {f"{name}.{kind}": part for kind, part in parts.items()}


def _packed(weight: torch.Tensor, form: Format, bias: torch.Tensor | None = None) -> dict[str, npt.NDArray[Any]]:
    return pack(to_numpy(weight), form, None if bias is None else to_numpy(bias))
