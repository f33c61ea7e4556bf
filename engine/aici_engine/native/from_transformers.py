"""Extract configuration and packed weights of the C decoder from a transformers model.

Transformers writes the differences between families as code; here the differences are data in `DecoderConfig`, or are
folded into the weights. `backend.py` says how to add a family.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from aici_base.ids import TokenId
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.stage_model import LayerRange
from aici_engine.native import gpt2_names
from aici_engine.native.bindings import Format
from aici_engine.native.matrix_layout import LANES, pack


class Activation(NamedTuple):
    """activation(x) = x / (1 + exp(-(linear x + cubic x^3)))."""

    linear: float
    cubic: float


_ACTIVATIONS: Final = (Activation(1.0, 0.0), Activation(1.5957691216, 0.0713548163))
"""SiLU, and the tanh form of GELU: 0.5 x (1 + tanh(y)) = x / (1 + exp(-2 y)) with y = sqrt(2 / pi) (x + 0.044715 x^3).
"""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The configuration of the C decoder. `aici_decoder` in `src/decoder.c` explains the fields with the same names.

    `part`: the layers that the weights are for. `weight_format`: of the layers. `head_dim`: numbers per attention head.
    `rotary_dim`: how many of them RoPE rotates. `windows`, `ropes`: per layer of `part`, the sliding window (0: none)
    and the index of the rotary embedding. `rope_scales`: per rotary embedding. `name`, `vocab_size`, `context`,
    `eos_tokens`: see `Model`.
    """

    name: str
    part: LayerRange
    weight_format: Format
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    windows: list[int]
    ropes: list[int]
    rope_scales: list[float]
    joint_qk_norms: bool
    layer_norm: bool
    gated_mlp: bool
    norm_eps: float
    embedding_scale: float
    query_scale: float
    activation: list[float]
    attention_softcap: float
    logit_softcap: float
    vocab_size: int
    context: int
    eos_tokens: list[TokenId]
    tied_embeddings: bool

    @property
    def embedding_format(self) -> Format:
        """The format of embedding and head.

        With int4 layers, both are int8: 4 bits are too coarse for the row of a token.
        """
        return Format.INT8 if self.weight_format is Format.INT4 else self.weight_format


def extract(model: HuggingFaceModel, weights: Format) -> tuple[DecoderConfig, dict[str, torch.Tensor]]:
    """Return the configuration and the named tensors of a model without `unsupported_reason`.

    A packed matrix contributes several tensors (`layers.0.qkv.values`, `layers.0.qkv.scales`, ...).
    """
    decoder = text_decoder(model.module)
    config, head, embedding, first = decoder.config, model.module.lm_head.weight, decoder.embed_tokens, model.layers[0]
    ropes, of_layers = _ropes(decoder)
    activation = activation_of(decoder.layers[0].mlp)
    assert activation is not None
    # Granite scales the output of attention and MLP. Dividing the hidden states by the scale is equivalent.
    branch_scale = getattr(config, "residual_multiplier", 1.0)
    embedding_scale = float(getattr(embedding, "embed_scale", 1.0)) * getattr(config, "embedding_multiplier", 1.0)
    decoder_config = DecoderConfig(
        name=model.name,
        part=LayerRange(0, len(decoder.layers), embedding=True, head=True),
        weight_format=weights,
        hidden_size=config.hidden_size,
        intermediate_size=decoder.layers[0].mlp.down_proj.weight.shape[1],
        num_heads=config.num_attention_heads,
        num_kv_heads=first.num_kv_heads,
        head_dim=first.key_dim,
        rotary_dim=2 * len(ropes[0][0]),
        windows=[layer.window for layer in model.layers],
        ropes=of_layers,
        rope_scales=[scale for _, scale in ropes],
        joint_qk_norms=_has_joint_qk_norms(decoder.layers[0].self_attn, first.key_dim),
        layer_norm=isinstance(decoder.norm, torch.nn.LayerNorm),
        gated_mlp=_is_gated(decoder.layers[0].mlp),
        norm_eps=_epsilon(decoder.norm) / branch_scale**2,
        embedding_scale=embedding_scale / branch_scale,
        query_scale=first.scale,
        activation=list(activation),
        attention_softcap=first.cap,
        logit_softcap=getattr(config, "final_logit_softcapping", None) or 0.0,
        vocab_size=model.vocab_size,
        context=model.context,
        eos_tokens=sorted(model.eos_tokens),
        tied_embeddings=embedding.weight is head,
    )
    tensors = {
        "inv_freqs": torch.tensor([inv_freqs for inv_freqs, _ in ropes]),
        "rope_scales": torch.tensor(decoder_config.rope_scales),
        "norm": _norm(decoder.norm) / getattr(config, "logits_scaling", 1.0),
    }
    for i, layer in enumerate(decoder.layers):
        tensors |= {f"layers.{i}.{name}": tensor for name, tensor in _layer(layer, weights).items()}
    if hasattr(decoder, "embed_positions"):
        tensors |= _named("positions", pack(decoder.embed_positions.weight, Format.F32))
    tensors |= _named("head", pack(head, decoder_config.embedding_format))
    if not decoder_config.tied_embeddings:
        tensors |= _named("embedding", pack(embedding.weight, decoder_config.embedding_format))
    return decoder_config, tensors


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


def _layer(layer: Any, weights: Format) -> dict[str, torch.Tensor]:
    attention, mlp = layer.self_attn, layer.mlp
    gate_up, gate_up_bias = _joined(mlp, "gate_up_proj", *(["gate_proj"] * _is_gated(mlp)), "up_proj")
    if _is_gated(mlp):
        gate_up, gate_up_bias = _paired(gate_up), None if gate_up_bias is None else _paired(gate_up_bias)
    qkv, qkv_bias = _joined(attention, "qkv_proj", "q_proj", "k_proj", "v_proj")
    return {
        **{name: _norm(norm) for name, norm in _norms(layer).items()},
        **_named("qkv", pack(qkv, weights, qkv_bias)),
        **_named("out", pack(attention.o_proj.weight, weights, attention.o_proj.bias)),
        **_named("gate_up", pack(gate_up, weights, gate_up_bias)),
        **_named("down", pack(mlp.down_proj.weight, weights, mlp.down_proj.bias)),
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
    offset: torch.Tensor = norm(torch.ones_like(weight)) - weight
    return weight + offset.mean().round()


def _epsilon(norm: Any) -> float:
    return float(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


def _has_joint_qk_norms(attention: Any, head_dim: int) -> bool:
    return hasattr(attention, "q_norm") and len(attention.q_norm.weight) != head_dim


Rope = tuple[tuple[float, ...], float]
"""Inverse frequencies, and the factor of cosines and sines."""


def _ropes(decoder: Any) -> tuple[list[Rope], list[int]]:
    """Return the distinct rotary embeddings, and for every layer the index of its embedding."""
    found: dict[Rope, int] = {}
    of_layers = [found.setdefault(_rope(decoder, i), len(found)) for i in range(len(decoder.layers))]
    return list(found), of_layers


def _rope(decoder: Any, layer: int) -> Rope:
    if not hasattr(decoder, "rotary_emb"):
        return (0.0,), 1.0
    rotary, kinds = decoder.rotary_emb, getattr(decoder.config, "layer_types", None)
    prefix = f"{kinds[layer]}_" if kinds and hasattr(rotary, f"{kinds[layer]}_inv_freq") else ""
    inv_freqs = tuple(getattr(rotary, f"{prefix}inv_freq").tolist())
    if not getattr(decoder.layers[layer].self_attn, "use_rope", True):
        return (0.0,) * len(inv_freqs), 1.0
    return inv_freqs, float(getattr(rotary, f"{prefix}attention_scaling"))


def _named(name: str, parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{name}.{kind}": part for kind, part in parts.items()}
