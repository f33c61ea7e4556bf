"""Choose the implementation of a model: the C decoder if possible, else transformers on torch.

The weights of the C decoder come from the cache, else straight from the files for a family of `known_model.py`, else
from transformers.

Adding a model family. Any decoder whose attention goes through transformers' AttentionInterface runs without a change
here. To run a family on the C decoder:

1. Add the prefix of the transformers class (`Llama` for `LlamaForCausalLM`) to `FAMILIES` in `supported.py`.
2. If the modules have other names than Llama's, map them as `gpt2_names.py` does, in `from_transformers.text_decoder`.
3. If the family computes something new, add a field to `DecoderConfig` (`decoder_config.py`), fill the field in
   `extract`, and add the same field to `CDecoder` (`bindings.py`), to `_SAME_NAMES` (`stage.py`) and to `aici_decoder`
   (`src/decoder.c`). A new RoPE type with fixed frequencies needs only a name in `_ROPE_TYPES` (`supported.py`).
4. If the family has the modules of Llama, an entry in `FAMILIES` of `known_model.py` lets it load without torch;
   `KNOWN` of `tests/engine/native/test_from_folder.py` compares the two readers.
5. If GGUF metadata needs completion, add the keys to `_KEYS` in `store/gguf_config.py`.
6. Tests: a tiny configuration in `FAMILIES` and the name in `NATIVE` of `tests/engine/model/test_models.py` compare the
   logits with transformers. Variants (biases, windows, softcaps) go to `FAMILIES` of
   `tests/engine/native/test_native_model.py`, GGUF files to `tests/engine/store/gguf_models.py`.
"""

import logging

from aici_base.errors import UsageError
from aici_engine.config import EngineConfig
from aici_engine.cpu_threads import default_threads
from aici_engine.extras import needed_for
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.interface import Model
from aici_engine.native import packed_cache
from aici_engine.native.from_folder import load_folder
from aici_engine.native.known_model import NotKnownError
from aici_engine.native.library import load
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.model import NativeModel
from aici_engine.native.thread_pool import ThreadPool

_log = logging.getLogger(__name__)


def make_model(config: EngineConfig, compute: ComputeDevice, beside: Model | None = None) -> Model:
    """Load the model of `config.model_dir`. `beside`: a model that never computes at the same time shares its threads.

    Raises UsageError if the folder holds no decoder that the engine can run.
    """
    library = load() if compute.on_cpu else None
    pool = beside.pool if isinstance(beside, NativeModel) else None
    if pool is None and library is not None:
        pool = ThreadPool(library, config.num_threads or default_threads())
    if pool is None:
        reason = "no kernels run here"
    elif compute.page_size % LANES:
        reason = f"the kernels need a page_size in multiples of {LANES}"
    elif config.lora is not None:
        reason = "it has an adapter, which torch merges"
    elif packed := packed_cache.load(config.model_dir, config.dtype):
        return NativeModel(packed, pool, config.kv_cache_dtype)
    else:
        try:
            packed = load_folder(config.model_dir, config.dtype)
        except NotKnownError as why:
            reason = str(why)
            _log.info("transformers loads the model: %s", reason)
        else:
            packed_cache.save(packed, config.model_dir, config.dtype)
            return NativeModel(packed, pool, config.kv_cache_dtype)
    with needed_for(f"the model in {config.model_dir}, because {reason}"):
        # Imported here: torch and transformers take two seconds to import.
        from aici_engine.native.torch_backend import make_torch_model
    model = make_torch_model(config, compute, pool)
    if config.kv_cache_dtype != "auto" and not isinstance(model, NativeModel):
        raise UsageError(
            f"keys and values in {config.kv_cache_dtype} need the kernels, which do not run the whole model: {reason}",
            hint="leave kv_cache_dtype out",
            cli_hint="leave --kv-cache-dtype out",
            param="kv_cache_dtype",
        )
    return model
