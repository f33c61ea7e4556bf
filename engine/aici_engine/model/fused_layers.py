"""The layers of a transformers decoder, compiled for a GPU.

Such a decoder launches some forty kernels a layer, most of which read and write a few numbers. Matrix products and
attention are not changed.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from aici_engine.fusion import prepare
from aici_engine.model import attention
from aici_engine.model.layer_range import layers_of, norm_of


def fuse_layers(module: Any, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile the layers and the last norm of a transformers decoder, in place. The layers share the compiled code.

    A layer is cut at the attention, which `paged_attention` computes outside of compiled code. `backend`: of
    torch.compile.
    """
    prepare()
    compiler: Any = torch.compiler
    transformers.AttentionInterface.register(attention.IMPLEMENTATION, compiler.disable(attention.paged_attention))
    decoder = module.get_decoder()
    for layer in (*layers_of(decoder), norm_of(decoder)):
        layer.compile(dynamic=True, backend=backend)
