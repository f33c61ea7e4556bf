"""Convert a GGUF file to a folder in Hugging Face layout.

Reading a GGUF file takes 12 s of CPU on every start; loading the converted folder takes half a second.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_engine.extras import needed_for
from aici_engine.store.paths import ELSEWHERE, atomic_folder


def convert_gguf(gguf: Path, out: Path, *, shard_bytes: int = 1 << 28) -> None:
    """Write the folder `out` (config, f32 safetensors, tokenizer.json, chat template), completely or not at all.

    Replaces `out`. The caller must hold `exclusive(out.name)` and have checked that `out` is not a model folder.
    Weights are f32, because the values of 4-bit formats (scale * q + min) fit neither bf16 nor f16 exactly.
    `shard_bytes`: bytes of weights in memory at a time, unless one tensor is larger. Raises UsageError if the file
    cannot be read as a model, UnavailableError if `out` cannot be written.
    """
    with needed_for(f"the conversion of {gguf.name}"):
        # Imported here: all of them are slow to import.
        import torch  # noqa: F401
        import transformers  # noqa: F401
        from safetensors import SafetensorError

        from aici_engine.store.gguf_check import check_gguf

    metadata, num_weights = check_gguf(gguf)
    free = shutil.disk_usage(out.parent).free
    if free < 4 * num_weights:
        raise UnavailableError(
            f"{out.parent} has {free / 1e9:.1f} GB free: the weights of {gguf.name} take {4 * num_weights / 1e9:.1f}",
            hint=ELSEWHERE,
        )
    try:
        with atomic_folder(out) as staging:
            with _quiet_transformers():
                _convert(gguf, metadata, staging, shard_bytes)
            if not (staging / "tokenizer.json").is_file():
                raise UsageError(f"{gguf}: the tokenizer cannot be written as tokenizer.json")
    except AiciError:
        raise
    except SafetensorError as err:  # only writing raises SafetensorError here
        raise UnavailableError(f"models cannot be stored in {out.parent}: {err}", hint=ELSEWHERE) from err
    except Exception as err:  # gguf and transformers raise many types for a broken file
        raise UsageError(f"{gguf} cannot be read as a model: {err}") from err


def _convert(gguf: Path, metadata: Mapping[str, Any], out: Path, shard_bytes: int) -> None:
    # Imported here: torch takes 1.5 s to import, and most commands do not convert.
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    from aici_engine.store.gguf_config import complete_config

    # AutoModelForCausalLM.from_pretrained(gguf_file=...) would require the package accelerate.
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    complete_config(config, metadata, gguf)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}  # a tied head is listed once
    places: dict[str, str] = {}
    for number, shard in enumerate(
        _shards(_weights(gguf, str(metadata["general.architecture"]), model), shard_bytes), 1
    ):
        if wrong := sorted(name for name, tensor in shard.items() if tensor.shape != wanted.get(name, tensor.shape)):
            raise ValueError(f"weights do not fit the architecture: {wrong[0]} has another shape")
        file = f"model-{number:05}.safetensors"
        save_file(shard, out / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    if missing := sorted(set(wanted) - set(places)):
        raise ValueError(f"weights do not fit the architecture: {missing[0]} is missing")
    index = {"metadata": {}, "weight_map": places}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))
    config.save_pretrained(out)
    GenerationConfig.from_model_config(config).save_pretrained(out)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)


def _weights(gguf: Path, arch: str, model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of the model one by one, as (name, tensor).

    transformers' load_gguf_checkpoint does the same, with all parameters in memory: 28 GB for a model of 7 B.
    """
    import torch
    from gguf import GGUFReader, dequantize
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    from aici_engine.store.gguf_config import ROPE_TENSORS

    make: Any = TENSOR_PROCESSORS.get(arch, TensorProcessor)
    processor = make(config=model.config.to_dict())
    names = get_gguf_hf_weights_map(model, processor)
    collected: dict[str, Any] = {}  # parameters in several pieces in the file
    for tensor in GGUFReader(gguf).tensors:
        done = processor.process(
            weights=dequantize(tensor.data, tensor.tensor_type),
            name=tensor.name,
            tensor_key_mapping=names,
            parsed_parameters={"tensors": collected},
        )
        if done.name in names:
            yield names[done.name], torch.tensor(done.weights)
        elif done.name and done.name.removesuffix(".weight") not in ROPE_TENSORS:
            raise ValueError(f"weights do not fit the architecture: {tensor.name} is not a parameter")
    yield from collected.items()


def _shards(weights: Iterable[tuple[str, Any]], most_bytes: int) -> Iterator[dict[str, Any]]:
    shard: dict[str, Any] = {}
    for name, tensor in weights:
        shard[name] = tensor.float().contiguous()
        if sum(each.nbytes for each in shard.values()) >= most_bytes:
            yield shard
            shard = {}
    if shard:
        yield shard


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # The GGUF reader draws a tqdm bar that no setting of transformers disables.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
