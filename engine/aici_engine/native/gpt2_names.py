"""Adapter: the modules of GPT-2 under the names of Llama."""

from types import SimpleNamespace
from typing import Any


def with_llama_names(module: Any) -> Any:
    decoder = module.transformer
    return SimpleNamespace(
        config=module.config,
        embed_tokens=decoder.wte,
        embed_positions=decoder.wpe,
        layers=[_layer(layer) for layer in decoder.h],
        norm=decoder.ln_f,
    )


def _layer(layer: Any) -> Any:
    attention, mlp = layer.attn, layer.mlp
    return SimpleNamespace(
        input_layernorm=layer.ln_1,
        self_attn=SimpleNamespace(qkv_proj=_linear(attention.c_attn), o_proj=_linear(attention.c_proj)),
        post_attention_layernorm=layer.ln_2,
        mlp=SimpleNamespace(up_proj=_linear(mlp.c_fc), act_fn=mlp.act, down_proj=_linear(mlp.c_proj)),
    )


def _linear(conv: Any) -> Any:
    """A Conv1D as a Linear: the weight of a Conv1D is transposed."""
    return SimpleNamespace(weight=conv.weight.T, bias=conv.bias)
