"""Round the weights of a transformers model to a format of integers, as floats."""

from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from aici_engine.model.quantize import dequantize, is_grouped, quantize_int4, quantize_int8


def round_weights(module: Any, *, bits: int) -> None:
    """Replace the matrices of a transformers model by their quantized values, as floats.

    The result is the reference for the native kernels, and serves machines without kernels, at the speed of f32.
    Embedding and head are rounded to int8.
    """
    ends = [end.weight for end in (module.get_input_embeddings(), module.get_output_embeddings()) if end is not None]
    weights = {id(end): (end, 8, False) for end in ends}  # tied: one entry
    for part in module.modules():
        if isinstance(part, torch.nn.Linear | Conv1D):
            # A Conv1D is a Linear with a transposed weight.
            weights.setdefault(id(part.weight), (part.weight, bits, isinstance(part, Conv1D)))
    for weight, bits_here, is_transposed in weights.values():
        matrix = weight.data.T if is_transposed else weight.data
        if is_grouped(matrix):
            numbers = matrix.float().numpy()
            back = torch.from_numpy(dequantize(*(quantize_int8(numbers) if bits_here == 8 else quantize_int4(numbers))))
            weight.data = (back.T if is_transposed else back).to(weight.dtype)
