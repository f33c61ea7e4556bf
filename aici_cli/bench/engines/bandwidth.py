"""Memory bandwidth, and the weight bytes of a decoding step: together the speed limit of any engine at batch 1."""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

from aici_engine.config import Dtype

WEIGHT_BITS: dict[Dtype, float] = {"float32": 32.0, "bfloat16": 16.0, "int8": 8.5, "int4": 5.0}
"""Bits per weight of a matrix, including the share of scales (and minimums, for int4) of a group of 32."""

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_SIZE = 512 << 20
_ROUNDS = 7


def read_bandwidth(threads: int) -> float:
    """Return the memory bandwidth in bytes per second: the best of several passes over an array larger than the caches.

    Measured in a separate process. The array is in huge pages, as our weights are: small pages have half the speed.
    """
    env = os.environ | {"THP_MEM_ALLOC_ENABLE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, str(threads)], stdout=subprocess.PIPE, check=True, env=env
    )
    return float(done.stdout)


def weight_bytes(model: Path, dtype: Dtype) -> float:
    """Return the weight bytes that a step of our engine reads with `dtype`.

    Vectors are f32; with int4, the head is int8.
    """
    sizes = {}
    for file in model.glob("*.safetensors"):
        with file.open("rb") as data:
            (length,) = struct.unpack("<Q", data.read(8))
            header = json.loads(data.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                size = 1
                for extent in tensor["shape"]:
                    size *= extent
                matrix = "float32" if len(tensor["shape"]) < 2 else dtype
                is_end = dtype == "int4" and matrix == dtype and name in (_EMBEDDING, _HEAD)
                sizes[name] = size * WEIGHT_BITS["int8" if is_end else matrix] / 8
    # A step reads only one row per token of an untied embedding.
    return sum(sizes.values()) - (sizes.get(_EMBEDDING, 0.0) if _HEAD in sizes else 0.0)


def _measure(threads: int) -> float:
    import torch

    torch.set_num_threads(threads)
    array = torch.ones(_SIZE // 4)
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        array.sum()
        best = min(best, time.perf_counter() - began)
    return _SIZE / best


if __name__ == "__main__":
    print(_measure(int(sys.argv[1])))
