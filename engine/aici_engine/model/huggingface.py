"""A transformers decoder behind the `Model` interface."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model import cuda_graphs
from aici_engine.model.attention import AttentionKernel
from aici_engine.model.batch import StepBatch
from aici_engine.model.cuda_graphs import PaddedBatch, Record, RecordedSteps
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.stage_model import LayerRange
from aici_engine.pooling import FinalStates
from aici_engine.step_input import Chunk


class HuggingFaceModel(HuggingFaceStage):
    """A transformers decoder after the probe: the range of all layers. `load.load_model` creates instances."""

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
        """`record`: records decode steps for replay. The default depends on the device: on a GPU, CUDA graphs."""
        whole = LayerRange(0, len(layers), embedding=True, head=True)
        super().__init__(module, whole, layers=layers, vocab_size=vocab_size, name=name, kernel=kernel)
        self.context = context
        self.eos_tokens = eos_tokens
        self.states_size: int = module.get_output_embeddings().weight.shape[1]
        self.same_bits = False
        self._record = record or (cuda_graphs.record if self.device.type == "cuda" else None)
        self._steps: dict[int, RecordedSteps] = {}

    def warm_up(self, storage: KVStorage) -> None:
        """See `AheadModel`: steps are compiled and recorded at their first call."""
        pages = [PageId(page) for page in range(min(2, len(storage.keys[0]) // storage.page_size))]
        self.forward(storage, [Chunk(SeqId(0), [TokenId(0)] * 2, 0, pages[:1], 1)])
        for num in range(1, len(pages) + 1):
            self.forward(storage, [Chunk(SeqId(page), [TokenId(0)], 0, [page], 1) for page in pages[:num]])

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage:
        kernel = self._kernel
        records = (
            self._record is not None
            and kernel is not None
            and page_size % kernel.page_size == 0
            and all(map(kernel.serves, self.layers))
        )
        # One more page than `num_pages`: the spare page of padding rows.
        storage = super().make_storage(num_pages=num_pages + records, page_size=page_size)
        if self._record is not None and records:
            max_pages = min(num_pages, -(-self.context // page_size))
            new = partial(
                PaddedBatch, max_pages=max_pages, page_size=page_size, spare=PageId(num_pages), device=self.device
            )
            self._steps[id(storage)] = RecordedSteps(partial(self._run_padded, storage), new, self._record)
        return storage

    @torch.inference_mode()
    def forward(
        self, storage: KVStorage, chunks: Sequence[Chunk], final_states: FinalStates | None = None
    ) -> torch.Tensor:
        if final_states is not None:
            return self._forward_with_states(storage, chunks, final_states)
        recorded = self._steps.get(id(storage))
        logits = None if recorded is None else recorded(chunks)
        return self.run(storage, chunks, None) if logits is None else logits

    @torch.inference_mode()
    def forward_ahead(self, storage: KVStorage, chunks: Sequence[Chunk], tokens: torch.Tensor) -> torch.Tensor:
        """See `AheadModel`."""
        recorded = self._steps.get(id(storage))
        logits = None if recorded is None else recorded(chunks, tokens)
        if logits is not None:
            return logits
        batch = StepBatch(chunks, storage.page_size, self.device, tokens)
        return self._run_tokens(storage, batch)

    def _forward_with_states(
        self, storage: KVStorage, chunks: Sequence[Chunk], final_states: FinalStates
    ) -> torch.Tensor:
        batch = StepBatch(chunks, storage.page_size, self.device)

        def take(_module: Any, _inputs: Any, output: Any) -> None:
            final_states[:] = output.last_hidden_state[0][batch.state_rows].float().cpu().numpy()

        hook = self.module.get_decoder().register_forward_hook(take)
        try:
            return self._run_tokens(storage, batch)
        finally:
            hook.remove()

    def _run_padded(self, storage: KVStorage, batch: PaddedBatch) -> torch.Tensor:
        batch.read()
        return self._run_tokens(storage, batch)
