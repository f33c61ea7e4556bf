"""Which implementation runs a model: our kernels where they can, transformers and torch elsewhere."""

import json
import logging
from pathlib import Path
from typing import Any, Final

import torch

from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.load import load_model
from aici_engine.model.place import Place
from aici_engine.model.quantize import dequantize, quantize_int4, quantize_int8, round_weights
from aici_engine.model.runner import Model
from aici_engine.native.library import load
from aici_engine.native.model import FORMATS, NativeModel, obstacle

_SAMPLES: Final = 6
_LOSSLESS: Final = 1e-4
"""Of a matrix: what is lost by packing weights again that were stored so. Rounding others costs a hundred times it."""

_log = logging.getLogger(__name__)


def make_model(config: EngineConfig, place: Place) -> Model:
    """Raises UsageError if the folder holds no decoder, or one that nothing here can run."""
    dtype = _stored(config.model_dir) if config.dtype == "auto" else config.dtype
    model = load_model(config.model_dir, dtype=dtype, device=place.device)
    if not place.on_cpu:
        return model
    library, why = load(), obstacle(model.module, page_size=place.page_size)
    if library is not None and why is None:
        return NativeModel(
            model.module,
            library,
            weights=FORMATS[_smallest(model.module, dtype) if config.dtype == "auto" else dtype],
            context=model.context,
            eos_tokens=model.eos_tokens,
            num_threads=torch.get_num_threads(),
        )
    _log.info("torch runs the model: %s", why or "there are no kernels for this processor")
    if config.dtype in ("int8", "int4"):
        round_weights(model.module, bits=8 if config.dtype == "int8" else 4)
    return model


def _stored(folder: Path) -> Dtype:
    """As the folder's own configuration says; half precision would not hold what bf16 does, nor the other way round."""
    path = folder / "config.json"
    config = json.loads(path.read_bytes()) if path.is_file() else {}
    return "bfloat16" if config.get("dtype", config.get("torch_dtype")) == "bfloat16" else "float32"


def _smallest(module: Any, dtype: Dtype) -> Dtype:
    """The smallest format that these weights lose nothing in: those of a GGUF file were integers once."""
    matrices = [part.weight for part in module.model.layers.modules() if isinstance(part, torch.nn.Linear)]
    samples = [matrix.detach().float() for matrix in matrices[:: max(1, len(matrices) // _SAMPLES)]]
    if all(_is_lossless(matrix, dequantize(*quantize_int4(matrix))) for matrix in samples):
        return "int4"
    if all(_is_lossless(matrix, dequantize(*quantize_int8(matrix))) for matrix in samples):
        return "int8"
    return dtype


def _is_lossless(weight: torch.Tensor, packed: torch.Tensor) -> bool:
    return bool((weight - packed).norm() <= _LOSSLESS * weight.norm())
