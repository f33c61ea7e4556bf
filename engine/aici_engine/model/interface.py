"""What the engine asks of a model: one forward pass over a ragged batch."""

from collections.abc import Sequence
from typing import Protocol

import torch

from aici_base.ids import TokenId
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model.batch import Chunk


class Model(Protocol):
    """Knows nothing of sequences or pages beyond one step's chunks.

    `layers`, `dtype`: of the cache. `eos_tokens`: any of them ends a sequence. `context`: positions that it was made
    for.
    """

    layers: list[LayerShape]
    vocab_size: int
    context: int
    eos_tokens: frozenset[TokenId]
    name: str
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes of cache that a token takes, over all layers."""

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage: ...

    def forward(self, storage: KVStorage, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Logits (R, vocabulary) in f32, on `device`: `num_logits` rows for each chunk, in order; the caller may change
        them until the next call.

        The keys and values of all chunks are in `storage` afterwards.
        """
