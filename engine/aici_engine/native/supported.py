"""Which models the C decoder runs."""

from dataclasses import replace
from typing import Final

from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.native.from_transformers import activation_of, text_decoder
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.paged_attention import MAX_HEAD_DIM, fits

FAMILIES: Final = frozenset(
    f"{name}ForCausalLM"
    for name in (
        *("Llama", "Mistral", "Qwen2", "Qwen3", "Phi3", "Gemma", "Gemma2", "Gemma3"),
        *("Granite", "SmolLM3", "Olmo2", "Olmo3"),
    )
) | {"Gemma3ForConditionalGeneration", "GPT2LMHeadModel"}
_ROPE_TYPES: Final = frozenset({"default", "linear", "llama3", "yarn", "longrope"})
"""RoPE types with frequencies that do not depend on the sequence. For longrope this holds within the served context."""


def unsupported_reason(model: HuggingFaceStage, *, page_size: int) -> str | None:
    """Why the C decoder cannot run a model or a range of its layers, or None."""
    if model.name not in FAMILIES:
        return f"the native decoder does not support {model.name}"
    decoder = text_decoder(model.module)
    config = decoder.config
    if page_size % LANES:
        return f"page_size is {page_size}: the kernels need a multiple of {LANES}"
    if config.hidden_size % 32:
        return f"hidden_size is {config.hidden_size}: the kernels need a multiple of 32"
    if not model.layers:
        return None
    first = model.layers[0]
    kinds = decoder.rotary_emb.rope_type if hasattr(decoder, "rotary_emb") else "default"
    if unknown := {*(kinds.values() if isinstance(kinds, dict) else [kinds])} - _ROPE_TYPES:
        return f"the native decoder does not support the RoPE type {', '.join(sorted(unknown))}"
    if activation_of(decoder.layers[0].mlp) is None:
        return "the native decoder supports only the activations SiLU and GELU (tanh)"
    if first.has_sinks or any(replace(layer, window=first.window) != first for layer in model.layers):
        return "the native decoder does not support attention sinks, or layers that differ in more than the window"
    if not fits(first.key_dim) or first.key_dim != first.value_dim:
        return f"head_dim is {first.key_dim}: the kernels need a multiple of {LANES} up to {MAX_HEAD_DIM}"
    intermediate_size = decoder.layers[0].mlp.down_proj.weight.shape[1]
    if intermediate_size % 32 or config.num_attention_heads * first.key_dim % 32:
        return "intermediate size and attention size must be multiples of 32"
    return None
