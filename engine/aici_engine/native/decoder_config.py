"""The configuration of the C decoder: the differences between families as data."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_engine.model.stage_range import LayerRange
from aici_engine.native.bindings import Format

FORMATS: Final = {"float32": Format.F32, "bfloat16": Format.BF16, "int8": Format.INT8, "int4": Format.INT4}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The configuration of the C decoder. `aici_decoder` in `src/decoder.c` explains the fields with the same names.

    `part`: the layers that the weights are for. `weight_format`: of the layers. `head_dim`: numbers per attention head.
    `rotary_dim`: how many of them RoPE rotates. `windows`, `rope_scales`: per layer of `part`, the sliding window
    (0: none) and the factor of cosines and sines. `name`, `vocab_size`: see `Model`. `context`, `eos_tokens`: see
    `Model`; only whole models know them. Fields with a default describe what a range may lack.
    """

    name: str
    part: LayerRange
    weight_format: Format
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    logit_softcap: float
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    rotary_dim: int = 0
    windows: list[int] = field(default_factory=list)
    rope_scales: list[float] = field(default_factory=list)
    joint_qk_norms: bool = False
    gated_mlp: bool = False
    query_scale: float = 0.0
    activation_linear: float = 0.0
    activation_cubic: float = 0.0
    attention_softcap: float = 0.0
    layer_norm: bool = False
    norm_eps: float = 0.0
    embedding_scale: float = 0.0
    context: int = 0
    eos_tokens: list[TokenId] = field(default_factory=list)

    @property
    def embedding_format(self) -> Format:
        """The format of embedding and head.

        With int4 layers, both are int8: 4 bits are too coarse for the row of a token.
        """
        return Format.INT8 if self.weight_format is Format.INT4 else self.weight_format


def join(configs: Sequence[DecoderConfig], part: LayerRange) -> DecoderConfig:
    """Return the configuration of `part` from those of its sections, in layer order.

    Raises UsageError if two layers differ in more than window and RoPE.
    """
    joined: dict[str, Any] = {"part": part}
    for name in (each.name for each in fields(DecoderConfig) if each.name != "part"):
        values = [getattr(config, name) for config in configs]
        if name in ("windows", "rope_scales"):
            joined[name] = [value for of_section in values for value in of_section]
            continue
        known = [value for value in values if value]  # other sections lack it
        if any(value != known[0] for value in known):
            raise UsageError(f"the native decoder does not support {configs[0].name}: its layers differ in {name}")
        joined[name] = (known or values)[0]
    return DecoderConfig(**joined)
