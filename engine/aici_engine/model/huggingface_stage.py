"""A range of a transformers decoder's layers."""

from collections.abc import Sequence
from typing import Any

import torch

from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model import flash_attention
from aici_engine.model.attention import AttentionKernel, StepContext
from aici_engine.model.batch import StepBatch
from aici_engine.model.cuda_graphs import PaddedBatch
from aici_engine.model.layer_range import Entrance
from aici_engine.model.stage_model import LayerRange
from aici_engine.model.torch_storage import torch_storage
from aici_engine.step_input import Chunk


class HuggingFaceStage:
    """A range of a transformers decoder after the probe: a `StageModel`. `load.load_stage` creates instances.

    Storage and `layers` count from 0: the first layer of the range.
    """

    def __init__(
        self,
        module: Any,
        part: LayerRange,
        *,
        layers: Sequence[LayerShape],
        vocab_size: int,
        name: str,
        kernel: AttentionKernel | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """`kernel`: attention kernel for the layers that the kernel serves; torch computes the others. The default is
        FlashAttention on a GPU, and none on the CPU. `entrance`: takes the states of a range without embedding.
        """
        self.part = part
        self.layers = list(layers)
        self.vocab_size = vocab_size
        self.hidden_size: int = module.config.get_text_config(decoder=True).hidden_size
        self.name = name
        self.dtype: torch.dtype = module.dtype
        self.states_dtype: torch.dtype = module.dtype
        self.device: torch.device = module.device
        self.module = module
        self._kernel = kernel or flash_attention.kernel_for(self.device, self.dtype, self.layers)
        self._entrance = entrance

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage:
        return torch_storage(
            self.layers, num_pages=num_pages, page_size=page_size, dtype=self.dtype, device=self.device
        )

    @property
    def token_bytes(self) -> int:
        return sum(layer.num_elements for layer in self.layers) * self.dtype.itemsize

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights, in the modules. Tied weights count once, packed weights as packed."""
        tensors = (*self.module.parameters(), *self.module.buffers())
        return sum(tensor.nbytes for tensor in {id(each): each for each in tensors}.values())

    @torch.inference_mode()
    def run(self, storage: KVStorage, chunks: Sequence[Chunk], states: torch.Tensor | None) -> torch.Tensor:
        batch = StepBatch(chunks, storage.page_size, self.device)
        if states is None:
            out = self._run_tokens(storage, batch)
        elif self.part.num_layers:
            out = self._run_states(storage, batch, states[batch.chunk_order.to(states.device)], batch.position_ids)
        else:
            # Without attention, a row does not depend on its position, and all rows are asked for.
            positions = torch.zeros(1, len(states), dtype=torch.long, device=self.device)
            return self._run_states(storage, batch, states, positions, rows=0)
        return out if self.part.head else torch.empty_like(out).index_copy_(0, batch.chunk_order, out)

    def _run_tokens(self, storage: KVStorage, batch: StepBatch | PaddedBatch) -> torch.Tensor:
        return self._call(storage, batch, batch.position_ids, batch.logit_rows, input_ids=batch.input_ids)

    def _run_states(
        self,
        storage: KVStorage,
        batch: StepBatch,
        states: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        assert self._entrance is not None, "a range with the embedding takes token ids"
        states = states.to(self.device, self.states_dtype)[None]
        with self._entrance.entering(states):
            return self._call(
                storage, batch, positions, batch.logit_rows if rows is None else rows, inputs_embeds=states
            )

    def _call(
        self,
        storage: KVStorage,
        batch: StepBatch | PaddedBatch,
        positions: torch.Tensor,
        rows: torch.Tensor | int,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        """Run the module. Return logits in f32 of the `rows` (0: of all tokens), or states of all tokens."""
        options = {
            **inputs,
            "position_ids": positions,
            "use_cache": False,
            "aici": StepContext(storage, batch, self.layers, self._kernel),
        }
        if self.part.head:
            logits: torch.Tensor = self.module(**options, logits_to_keep=rows).logits[0]
            return logits.float()
        states: torch.Tensor = self.module.get_decoder()(**options).last_hidden_state[0]
        return states
