"""Check that a GGUF file is complete before conversion, for clear error messages."""

import math
from collections.abc import Mapping
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from aici_base.errors import UsageError
from aici_base.tokenizer.gguf import INCOMPLETE, Tensor, Value, read_header

_KINDS = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}


def check_gguf(path: Path) -> tuple[Mapping[str, Value], int]:
    """Return the metadata and the number of weights. Raises UsageError if the file is damaged or not supported."""
    metadata, tensors = read_header(path)
    pieces = metadata.get("split.count")
    if isinstance(pieces, int) and pieces > 1:
        raise UsageError(
            f"{path} is one piece of {pieces} of a model", hint="`llama-gguf-split --merge` makes one file of them"
        )
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise UsageError(f"{path} cannot be read as a model: the metadata name no architecture")
    num_layers = metadata.get(f"{arch}.block_count")
    if isinstance(num_layers, int) and num_layers > len(tensors):
        raise UsageError(
            f"{path} is damaged: the metadata say {num_layers} layers, but the file has {len(tensors)} tensors",
            hint=INCOMPLETE,
        )
    size = path.stat().st_size
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise UsageError(f"{path} is damaged: {tensor.name} occurs twice", hint=INCOMPLETE)
        names.add(tensor.name)
        if (end := tensor.start + _size(path, tensor)) > size:
            raise UsageError(f"{path} is cut off: {tensor.name} ends at byte {end} of {size}", hint=INCOMPLETE)
    return metadata, sum(math.prod(tensor.shape) for tensor in tensors)


def _size(path: Path, tensor: Tensor) -> int:
    """Return the size of the tensor in bytes."""
    if tensor.kind not in _KINDS:
        known = ", ".join(kind.name for kind in GGMLQuantizationType)
        raise UsageError(
            f"{path} cannot be read as a model: {tensor.name} is stored as type {tensor.kind}",
            hint=f"supported types: {known}",
        )
    per_block, block_bytes = _KINDS[tensor.kind]
    if tensor.shape[0] % per_block:
        raise UsageError(f"{path} is damaged: rows of {tensor.name} are not whole blocks", hint=INCOMPLETE)
    return math.prod(tensor.shape) // per_block * block_bytes
