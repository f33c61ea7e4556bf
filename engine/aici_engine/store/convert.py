"""GGUF to Hugging Face layout, once: reading a GGUF takes 12 s of CPU each time, the converted folder half a second."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from aici_engine.store.paths import appearing
from aici_runtime.errors import AiciError, UsageError
from aici_runtime.tokenizer.gguf import read_metadata


def convert_gguf(gguf: Path, out: Path) -> None:
    """Write `out` (config, f32 safetensors, tokenizer.json, chat template); it appears whole or not at all.

    Only inside `exclusive(out.name)`, and if `out` is no model folder: what stands there is replaced.
    f32, because the products of 4-bit formats (scale * q + min) fit neither bf16 nor f16 exactly.
    """
    try:
        with appearing(out) as staging:
            with _quiet_transformers():
                _convert(gguf, staging)
            if not (staging / "tokenizer.json").is_file():
                raise AiciError(f"{gguf}: its tokenizer has no tokenizer.json form")
    except AiciError:
        raise
    except Exception as err:  # a file can be broken in more ways than there are kinds of errors
        raise UsageError(f"{gguf} cannot be read as a model: {err}") from err


def _convert(gguf: Path, out: Path) -> None:
    # Torch weighs a second and a half to import, and most commands never convert.
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    from aici_engine.store.gguf_config import mend

    # from_pretrained(gguf_file=...) would do, but wants the package accelerate for what these lines need none for.
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    mend(config, read_metadata(gguf), gguf)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(
        {name: torch.as_tensor(weight).float() for name, weight in weights.items()}, strict=False, assign=True
    )
    model.tie_weights()
    # Computed buffers (rotary frequencies) live on meta too, but are not saved: the folder's loader computes them.
    lost = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if lost or unexpected:
        raise ValueError(f"weights do not fit the architecture: missing {lost or missing}, unexpected {unexpected}")
    model.generation_config = GenerationConfig.from_model_config(config)
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # The GGUF reader draws a tqdm bar of its own, which no switch of transformers reaches.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
