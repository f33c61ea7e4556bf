"""A transformers decoder behind the `Model` interface."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from aici_base.ids import TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model import cuda_graphs, flash_attention
from aici_engine.model.attention import AttentionKernel, StepContext
from aici_engine.model.batch import StepBatch
from aici_engine.model.cuda_graphs import PaddedBatch, Record, RecordedSteps
from aici_engine.step_input import Chunk


class HuggingFaceModel:
    """A transformers decoder after the probe. `load.load_model` creates instances."""

    def __init__(
        self,
        module: Any,
        *,
        layers: Sequence[LayerShape],
        vocab_size: int,
        context: int,
        eos_tokens: frozenset[TokenId],
        name: str,
        kernel: AttentionKernel | None = None,
        record: Record | None = None,
    ) -> None:
        """`kernel`: attention kernel for the layers that the kernel serves; torch computes the others. `record`:
        records decode steps for replay. The defaults depend on the device: on a GPU, FlashAttention and CUDA graphs.
        """
        self.layers = list(layers)
        self.vocab_size = vocab_size
        self.context = context
        self.eos_tokens = eos_tokens
        self.name = name
        self.dtype: torch.dtype = module.dtype
        self.device: torch.device = module.device
        self.module = module
        self._kernel = kernel or flash_attention.kernel_for(self.device, self.dtype, self.layers)
        self._record = record or (cuda_graphs.record if self.device.type == "cuda" else None)
        self._steps: dict[int, RecordedSteps] = {}

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage:
        kernel = self._kernel
        records = (
            self._record is not None
            and kernel is not None
            and page_size % kernel.page_size == 0
            and all(map(kernel.serves, self.layers))
        )
        # One more page than `num_pages`: the spare page of padding rows.
        storage = KVStorage(
            self.layers, num_pages=num_pages + records, page_size=page_size, dtype=self.dtype, device=self.device
        )
        if self._record is not None and records:
            max_pages = min(num_pages, -(-self.context // page_size))
            new = partial(
                PaddedBatch, max_pages=max_pages, page_size=page_size, spare=PageId(num_pages), device=self.device
            )
            self._steps[id(storage)] = RecordedSteps(partial(self._run_padded, storage), new, self._record)
        return storage

    @property
    def token_bytes(self) -> int:
        return sum(layer.num_elements for layer in self.layers) * self.dtype.itemsize

    @torch.inference_mode()
    def forward(self, storage: KVStorage, chunks: Sequence[Chunk]) -> torch.Tensor:
        recorded = self._steps.get(id(storage))
        logits = None if recorded is None else recorded(chunks)
        return self._run(storage, StepBatch(chunks, storage.page_size, self.device)) if logits is None else logits

    def _run(self, storage: KVStorage, batch: StepBatch | PaddedBatch) -> torch.Tensor:
        output = self.module(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            logits_to_keep=batch.logit_rows,
            aici=StepContext(storage, batch, self.layers, self._kernel),
        )
        logits: torch.Tensor = output.logits[0]
        return logits.float()

    def _run_padded(self, storage: KVStorage, batch: PaddedBatch) -> torch.Tensor:
        batch.read()
        return self._run(storage, batch)
