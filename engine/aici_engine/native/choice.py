"""Which implementation runs a model: our kernels where they can, transformers and torch elsewhere."""

import logging

import torch

from aici_engine.config import EngineConfig
from aici_engine.model.load import load_model
from aici_engine.model.quantize import round_weights
from aici_engine.model.runner import Model
from aici_engine.native.library import load
from aici_engine.native.model import FORMATS, NativeModel, obstacle

_log = logging.getLogger(__name__)


def make_model(config: EngineConfig) -> Model:
    """Raises UsageError if the folder holds no decoder, or one that nothing here can run."""
    model = load_model(config.model_dir, dtype=config.dtype)
    library, why = load(), obstacle(model.module, page_size=config.page_size)
    if library is not None and why is None:
        return NativeModel(
            model.module,
            library,
            weights=FORMATS[config.dtype],
            context=model.context,
            eos_tokens=model.eos_tokens,
            num_threads=torch.get_num_threads(),
        )
    _log.info("torch runs the model: %s", why or "there are no kernels for this processor")
    if config.dtype in ("int8", "int4"):
        round_weights(model.module, bits=8 if config.dtype == "int8" else 4)
    return model
