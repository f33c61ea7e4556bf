"""The FlashAttention of torch, on the pages of the cache."""

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from aici_engine.cache import view
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model.batch import StepBatch
from aici_engine.model.compute_device import GPU_PAGE
from aici_engine.model.cuda_graphs import PaddedBatch

Attend = Callable[..., Any]
"""The signature of torch.nn.attention.varlen.varlen_attn."""

_MAX_HEAD_DIM: Final = 256
_AMPERE: Final = (8, 0)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlashKernel:
    """Plain softmax attention: without softcap and sinks."""

    attend: Attend
    page_size: int

    def serves(self, layer: LayerShape) -> bool:
        return layer.plain

    def __call__(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        storage: KVStorage,
        batch: StepBatch | PaddedBatch,
        *,
        layer: int,
        shape: LayerShape,
    ) -> torch.Tensor:
        view.write(storage, layer, batch.write_rows, keys, values)
        cached = (
            tensor.view(-1, storage.page_size, *tensor.shape[1:])
            for tensor in (storage.keys[layer], storage.values[layer])
        )
        pages = batch.pages
        found: torch.Tensor = self.attend(
            queries,
            *cached,
            pages.query_starts,
            pages.key_starts,
            pages.max_queries,
            pages.max_keys,
            scale=shape.scale,
            # FlashAttention counts the keys to the left of the query; our window includes the query.
            window_size=(shape.window - 1, 0),
            enable_gqa=queries.shape[1] != keys.shape[1],
            seqused_k=pages.lens,
            block_table=pages.table,
            # By default, torch 2.13 splits long sequences and loses rows (pytorch issue 194167). With one split, the
            # result of a row does not depend on the rest of the batch, either.
            num_splits=1,
        )
        return found


def kernel_for(device: torch.device, dtype: torch.dtype, layers: Sequence[LayerShape]) -> FlashKernel | None:
    """Return the kernel, or None if FlashAttention cannot run: it needs an NVIDIA GPU (Ampere or newer), `suits`, and a
    torch that `reads_pages`."""
    if device.type != "cuda" or torch.version.cuda is None or not suits(dtype, layers):
        return None
    if torch.cuda.get_device_capability(device) < _AMPERE:
        return None
    from torch.nn.attention.varlen import varlen_attn

    if not reads_pages(varlen_attn):
        _log.warning(
            "torch %s has no FlashAttention for pages: attention is slow; torch 2.13 has it", torch.__version__
        )
        return None
    return FlashKernel(varlen_attn, GPU_PAGE)


def reads_pages(attend: Attend) -> bool:
    """Whether `attend` takes tables of pages. The function of torch 2.11 does not."""
    return "block_table" in inspect.signature(attend).parameters


def suits(dtype: torch.dtype, layers: Sequence[LayerShape]) -> bool:
    """Whether FlashAttention supports the dtype (bf16, f16) and all head dimensions (multiples of 8 up to 256)."""
    return dtype in (torch.bfloat16, torch.float16) and all(
        shape.key_dim == shape.value_dim <= _MAX_HEAD_DIM and shape.key_dim % 8 == 0 for shape in layers
    )
