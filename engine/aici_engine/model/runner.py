"""One forward pass over a ragged batch."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from aici_engine.cache.storage import LayerShape, Storage
from aici_engine.model import batch as batches
from aici_engine.model import flash
from aici_engine.model.attention import Paged
from aici_engine.model.flash import Kernel
from aici_runtime.ids import TokenId


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

    def make_storage(self, *, num_pages: int, page_size: int) -> Storage: ...

    def forward(self, storage: Storage, chunks: Sequence[batches.Chunk]) -> torch.Tensor:
        """Logits (R, vocabulary) in f32: `num_logits` rows for each chunk, in order; the caller may change them until
        the next call.

        The keys and values of all chunks are in `storage` afterwards.
        """


class HuggingFaceModel:
    """A decoder of transformers whose layers were probed."""

    def __init__(
        self,
        module: Any,
        *,
        layers: Sequence[LayerShape],
        vocab_size: int,
        context: int,
        eos_tokens: frozenset[TokenId],
        name: str,
        kernel: Kernel | None = None,
    ) -> None:
        """`kernel`: attends where it can; without one it is the kernel that suits the device."""
        self.layers = list(layers)
        self.vocab_size = vocab_size
        self.context = context
        self.eos_tokens = eos_tokens
        self.name = name
        self.dtype: torch.dtype = module.dtype
        self.device: torch.device = module.device
        self.module = module
        self._kernel = kernel or flash.kernel_for(self.device, self.dtype, self.layers)

    def make_storage(self, *, num_pages: int, page_size: int) -> Storage:
        return Storage(self.layers, num_pages=num_pages, page_size=page_size, dtype=self.dtype, device=self.device)

    @property
    def token_bytes(self) -> int:
        return sum(layer.num_elements for layer in self.layers) * self.dtype.itemsize

    @torch.inference_mode()
    def forward(self, storage: Storage, chunks: Sequence[batches.Chunk]) -> torch.Tensor:
        step = batches.StepBatch(chunks, self.device)
        output = self.module(
            input_ids=step.input_ids,
            position_ids=step.position_ids,
            use_cache=False,
            logits_to_keep=step.logit_rows,
            aici=Paged(storage, step, self._kernel),
        )
        logits: torch.Tensor = output.logits[0]
        return logits.float()
