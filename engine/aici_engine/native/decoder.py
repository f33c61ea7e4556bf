"""What the kernels' decoder consists of, taken from a transformers model: what families do in code is data here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from aici_base.ids import TokenId
from aici_engine.model.runner import HuggingFaceModel
from aici_engine.native import gpt2
from aici_engine.native.bindings import Format
from aici_engine.native.weights import LANES, pack


class Gate(NamedTuple):
    """What the gate makes of x: x / (1 + exp(-(linear x + cubic x^3)))."""

    linear: float
    cubic: float


_GATES: Final = (Gate(1.0, 0.0), Gate(1.5957691216, 0.0713548163))
"""SiLU, and GELU by tanh: 0.5 x (1 + tanh(y)) is x / (1 + exp(-2 y)), its y being sqrt(2 / pi) (x + 0.044715 x^3)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`width`: of a head; `turned`: how much of it is. `windows`, `rotations`: of each layer. `rope_scales`: of each
    rotation. The rest as in `aici_llama` (`src/llama.c`), and in Model."""

    name: str
    weights: Format
    hidden: int
    inner: int
    query_heads: int
    key_heads: int
    width: int
    turned: int
    windows: list[int]
    rotations: list[int]
    rope_scales: list[float]
    joint_norms: bool
    centered: bool
    gated: bool
    epsilon: float
    embedding_scale: float
    query_scale: float
    gate: list[float]
    score_cap: float
    logit_cap: float
    vocab_size: int
    context: int
    eos_tokens: list[TokenId]
    tied: bool

    @property
    def outer(self) -> Format:
        """Of the embedding and the head: half a byte is too coarse where each number stands for a whole token."""
        return Format.INT8 if self.weights is Format.INT4 else self.weights


def take(model: HuggingFaceModel, weights: Format) -> tuple[Shape, dict[str, torch.Tensor]]:
    """Of a model that has no `obstacle`: norms and `frequencies` as they are, matrices by their parts
    (`layers.0.qkv.values`)."""
    decoder = text_decoder(model.module)
    config, head, embedding, first = decoder.config, model.module.lm_head.weight, decoder.embed_tokens, model.layers[0]
    rotations, of_layers = _rotations(decoder)
    gate = gate_of(decoder.layers[0].mlp)
    assert gate is not None
    # Granite multiplies what its branches add: states that are so much smaller come to the same.
    branch_scale = getattr(config, "residual_multiplier", 1.0)
    embedding_scale = float(getattr(embedding, "embed_scale", 1.0)) * getattr(config, "embedding_multiplier", 1.0)
    shape = Shape(
        name=model.name,
        weights=weights,
        hidden=config.hidden_size,
        inner=decoder.layers[0].mlp.down_proj.weight.shape[1],
        query_heads=config.num_attention_heads,
        key_heads=first.num_kv_heads,
        width=first.key_dim,
        turned=2 * len(rotations[0][0]),
        windows=[layer.window for layer in model.layers],
        rotations=of_layers,
        rope_scales=[scale for _, scale in rotations],
        joint_norms=_has_joint_norms(decoder.layers[0].self_attn, first.key_dim),
        centered=isinstance(decoder.norm, torch.nn.LayerNorm),
        gated=_is_gated(decoder.layers[0].mlp),
        epsilon=_epsilon(decoder.norm) / branch_scale**2,
        embedding_scale=embedding_scale / branch_scale,
        query_scale=first.scale,
        gate=list(gate),
        score_cap=first.cap,
        logit_cap=getattr(config, "final_logit_softcapping", None) or 0.0,
        vocab_size=model.vocab_size,
        context=model.context,
        eos_tokens=sorted(model.eos_tokens),
        tied=embedding.weight is head,
    )
    tensors = {
        "frequencies": torch.tensor([frequencies for frequencies, _ in rotations]),
        "rope_scales": torch.tensor(shape.rope_scales),
        "norm": _norm(decoder.norm) / getattr(config, "logits_scaling", 1.0),
    }
    for i, layer in enumerate(decoder.layers):
        tensors |= {f"layers.{i}.{name}": tensor for name, tensor in _layer(layer, weights).items()}
    if hasattr(decoder, "embed_positions"):
        tensors |= _named("positions", pack(decoder.embed_positions.weight, Format.F32))
    tensors |= _named("head", pack(head, shape.outer))
    if not shape.tied:
        tensors |= _named("embedding", pack(embedding.weight, shape.outer))
    return shape, tensors


def text_decoder(module: Any) -> Any:
    """Of a model that sees pictures, too; its parts have the names that Llama's have."""
    if hasattr(module, "transformer"):
        return gpt2.renamed(module)
    return getattr(module.model, "language_model", module.model)


def gate_of(mlp: Any) -> Gate | None:
    """Found by what it gives, whatever it is called; None if the kernels do not know it."""
    act = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn
    x = torch.linspace(-6, 6, 97)
    for gate in _GATES:
        if torch.allclose(act(x), x * (gate.linear * x + gate.cubic * x**3).sigmoid(), atol=1e-5):
            return gate
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
    """Weight and bias of what some families keep in one piece, others in several."""
    found = [getattr(module, name) for name in ([whole] if hasattr(module, whole) else parts)]
    bias = None if found[0].bias is None else torch.cat([part.bias for part in found])
    return torch.cat([part.weight for part in found]), bias


def _paired(rows: torch.Tensor) -> torch.Tensor:
    """All rows of the gate, then all of up, to sixteen of the one, sixteen of the other, and so on."""
    return rows.reshape(2, -1, LANES, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _norms(layer: Any) -> dict[str, Any]:
    """One and the same name stands for two places: it depends on what others there are."""
    if hasattr(layer, "post_feedforward_layernorm"):
        names = {"after_attention": "post_attention_layernorm", "before_mlp": "pre_feedforward_layernorm"}
    else:
        names = {"before_mlp": "post_attention_layernorm"}
    names |= {"before_attention": "input_layernorm", "after_mlp": "post_feedforward_layernorm"}
    found = {place: getattr(layer, name, None) for place, name in names.items()}
    found |= {place: getattr(layer.self_attn, f"{place[0]}_norm", None) for place in ("query_norm", "key_norm")}
    return {place: norm for place, norm in found.items() if norm is not None}


def _norm(norm: Any) -> torch.Tensor:
    """What it multiplies by, of which some families keep that less 1; and what a LayerNorm adds."""
    weight: torch.Tensor = norm.weight.detach().float()
    if isinstance(norm, torch.nn.LayerNorm):
        return torch.cat([weight, torch.zeros_like(weight) if norm.bias is None else norm.bias.float()])
    offset: torch.Tensor = norm(torch.ones_like(weight)) - weight
    return weight + offset.mean().round()


def _epsilon(norm: Any) -> float:
    return float(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


def _has_joint_norms(attention: Any, width: int) -> bool:
    return hasattr(attention, "q_norm") and len(attention.q_norm.weight) != width


Rotation = tuple[tuple[float, ...], float]
"""Frequencies, and what cosines and sines are multiplied by."""


def _rotations(decoder: Any) -> tuple[list[Rotation], list[int]]:
    """Those that there are, and each layer's."""
    found: dict[Rotation, int] = {}
    of_layers = [found.setdefault(_rotation(decoder, i), len(found)) for i in range(len(decoder.layers))]
    return list(found), of_layers


def _rotation(decoder: Any, layer: int) -> Rotation:
    if not hasattr(decoder, "rotary_emb"):
        return (0.0,), 1.0
    rotary, kinds = decoder.rotary_emb, getattr(decoder.config, "layer_types", None)
    prefix = f"{kinds[layer]}_" if kinds and hasattr(rotary, f"{kinds[layer]}_inv_freq") else ""
    frequencies = tuple(getattr(rotary, f"{prefix}inv_freq").tolist())
    if not getattr(decoder.layers[layer].self_attn, "use_rope", True):
        return (0.0,) * len(frequencies), 1.0
    return frequencies, float(getattr(rotary, f"{prefix}attention_scaling"))


def _named(name: str, parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{name}.{kind}": part for kind, part in parts.items()}
