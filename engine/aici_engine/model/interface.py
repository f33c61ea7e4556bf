"""The model interface of the engine: one forward pass over a ragged batch."""

from collections.abc import Sequence
from typing import Any, Protocol

from aici_base.ids import TokenId
from aici_engine.arrays import Array
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.pooling import FinalStates
from aici_engine.step_input import Chunk


class Model(Protocol):
    """A decoder. A model keeps no state between steps; keys and values live in the `KVStorage` of the caller.

    `layers`, `dtype`: shapes and number type of the KV cache; the type is numpy's or torch's, as the arrays are.
    `eos_tokens`: any member ends a sequence. `context`: the largest number of positions. `device`: where the logits
    are; its text is cpu or cuda. `states_size`: the numbers of a final state. `same_bits`: the logits of a token are
    the same bits alone and in a chunk.
    """

    layers: list[LayerShape]
    vocab_size: int
    context: int
    eos_tokens: frozenset[TokenId]
    name: str
    dtype: Any
    device: Any
    states_size: int
    same_bits: bool = False

    @property
    def token_bytes(self) -> int:
        """KV cache bytes per token, all layers together."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory."""

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage: ...

    def forward(self, storage: KVStorage, chunks: Sequence[Chunk], final_states: FinalStates | None = None) -> Array:
        """Compute the tokens of all chunks, and write their keys and values to `storage`.

        Returns logits (R, vocab_size) in f32 on `device`: `num_logits` rows per chunk, in the order of the chunks. The
        caller may overwrite the rows; the next call invalidates them. `final_states` (S, states_size) takes the states
        of `num_states` tokens per chunk, in the same order; given if and only if a chunk wants states.
        """
