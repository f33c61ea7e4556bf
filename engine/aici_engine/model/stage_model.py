"""A range of a decoder's layers: one stage of a pipeline."""

from collections.abc import Sequence
from typing import Any, Protocol

from aici_engine.arrays import Array
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model.stage_range import LayerRange as LayerRange
from aici_engine.step_input import Chunk


class StageModel(Protocol):
    """Computes a range of layers. Keeps no state between steps; keys and values live in the `KVStorage` of the caller.

    `layers`, `dtype`: shapes and number type of the KV cache of this range. `states_dtype`: the number type of hidden
    states between stages. Types are numpy's or torch's, as the arrays are. `device`: see `Model`.
    """

    part: LayerRange
    layers: list[LayerShape]
    hidden_size: int
    vocab_size: int
    states_dtype: Any
    dtype: Any
    device: Any

    @property
    def token_bytes(self) -> int:
        """KV cache bytes per token, all layers of this range together."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of this range."""

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage: ...

    def run(self, storage: KVStorage, chunks: Sequence[Chunk], states: Array | None) -> Array:
        """Compute the tokens of all chunks.

        `states` (T, hidden_size): the output of the layers before, in the order of the chunks' tokens; `None` for a
        range with the embedding. A range without the embedding does not read token ids. Returns states (T, hidden_size)
        in `states_dtype`, or for a range with the head logits (R, vocab_size) in f32: `num_logits` rows per chunk, in
        the order of the chunks. A range with the head and without layers takes only those R rows of states. The next
        call invalidates the result.
        """
