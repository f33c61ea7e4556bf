"""Linear layers with integer weights, computed by the kernels, for transformers models without a native decoder."""

from collections.abc import Iterator
from typing import Any

import torch

from aici_engine.model.quantize import is_grouped
from aici_engine.model.torch_tensors import to_numpy
from aici_engine.native.bindings import Format
from aici_engine.native.matrix_layout import matrix, pack
from aici_engine.native.thread_pool import ThreadPool


class NativeLinear(torch.nn.Module):
    """A linear layer. `weight` (N, K) and `bias` (N,) are packed once; later changes have no effect."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, form: Format, pool: ThreadPool) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        arrays = pack(to_numpy(weight.float()), form, None if bias is None else to_numpy(bias))
        parts = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for name, part in parts.items():
            self.register_buffer(f"packed_{name}", part, persistent=False)
        self._c = matrix(parts, form)
        self._pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., K) to (..., N) in f32."""
        rows = x.reshape(-1, self.in_features).float().contiguous()
        out = torch.empty(len(rows), self._c.rows)
        library = self._pool.library
        memory = self._pool.scratch(library.aici_linear_memory(self._c, len(rows)))
        library.aici_linear(self._pool.pointer, self._c, rows.data_ptr(), len(rows), memory, out.data_ptr())
        return out[:, : self.out_features].view(*x.shape[:-1], -1)


def use_integers(module: Any, form: Format, pool: ThreadPool) -> None:
    """Replace the linear layers of a transformers model by NativeLinear. The head becomes int8.

    Layers whose number of inputs is not a multiple of 32 stay, as does the embedding.
    """
    head = module.get_output_embeddings()
    for parent, name, part, weight in list(linears(module)):
        setattr(parent, name, NativeLinear(weight, part.bias, Format.INT8 if part is head else form, pool))


def linears(module: Any) -> Iterator[tuple[Any, str, Any, torch.Tensor]]:
    """Yield (parent, name, layer, weight) for all linear layers with a multiple of 32 inputs. weight: outputs by
    inputs.
    """
    from transformers.pytorch_utils import Conv1D

    for parent in module.modules():
        for name, part in parent.named_children():
            if isinstance(part, torch.nn.Linear | Conv1D):
                # A Conv1D is a Linear with a transposed weight.
                weight = part.weight.T if isinstance(part, Conv1D) else part.weight
                if is_grouped(weight):
                    yield parent, name, part, weight
