"""Facts about a machine: memory, speed, device."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aici_engine.cache.memory import available_bytes
from aici_engine.cluster.headers import WEIGHT_BYTES
from aici_engine.cluster.plan import NodeInfo
from aici_engine.config import Dtype
from aici_engine.cpu_threads import default_threads
from aici_engine.extras import missing
from aici_engine.model.stage_range import LayerRange

if TYPE_CHECKING:
    from aici_engine.native.thread_pool import ThreadPool

_WITH_TORCH: Final = 320 << 20
_WITHOUT_TORCH: Final = 160 << 20
DEFAULT_FRACTION: Final = 0.8
_FORMATS: Final[Mapping[Dtype, str]] = {"float32": "F32", "bfloat16": "BF16", "int8": "INT8", "int4": "INT4"}
_COLUMNS: Final = 2048
_LARGE: Final = 96 << 20
"""Bytes of the matrix that measures the memory rate: more than the caches of most processors hold."""
_SMALL: Final = 1 << 20
_ROWS: Final = 16
_LEAST_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """`free_bytes`: memory left by the machine and the container. `budget_bytes`: the part of it for weights, pages and
    scratch memory of a stage. `bytes_per_s`, `flops_per_s`: see `NodeInfo`. `level`: of the kernels; empty without
    kernels. `num_cores`: that this process may use.
    """

    free_bytes: int
    budget_bytes: int
    bytes_per_s: float
    flops_per_s: Mapping[Dtype, float]
    device: str
    num_cores: int
    num_threads: int
    level: str

    def node_info(self, name: str, *, rtt_s: float = 0.0, held: tuple[LayerRange, ...] = ()) -> NodeInfo:
        """Return what the planner needs."""
        return NodeInfo(
            name=name,
            budget_bytes=self.budget_bytes,
            bytes_per_s=self.bytes_per_s,
            flops_per_s=self.flops_per_s,
            rtt_s=rtt_s,
            held=held,
        )


def process_bytes() -> int:
    """Return the memory that a node sets aside beside weights, pages and scratch memory: for the process of a stage, or
    for an engine and its controller runtime. Where torch is installed, a model may need torch.

    Measured without torch, in MiB: 48 for a stage that computes, 103 for an idle engine and runtime.

    >>> process_bytes() >> 20 in (160, 320)
    True
    """
    return _WITHOUT_TORCH if missing(("torch",)) else _WITH_TORCH


def describe_node(
    *, fraction: float = DEFAULT_FRACTION, memory_bytes: int | None = None, num_threads: int | None = None
) -> NodeDescription:
    """Measure this machine; takes about a second, with the threads of the kernels.

    `fraction`: of the free memory, for a stage and its process. `memory_bytes`: instead of the free memory, never more
    than is free. `num_threads`: of the kernels; None: see `default_threads`.
    """
    from aici_engine.native import library

    threads = num_threads or default_threads()
    free = available_bytes()
    bytes_per_s, flops_per_s = measure_rates(num_threads=threads)
    return NodeDescription(
        free_bytes=free,
        budget_bytes=budget(free, fraction=fraction, memory_bytes=memory_bytes),
        bytes_per_s=bytes_per_s,
        flops_per_s=flops_per_s,
        device="cpu",
        num_cores=len(os.sched_getaffinity(0)),
        num_threads=threads,
        level=library.describe().level,
    )


def measure_rates(*, device: str = "cpu", num_threads: int | None = None) -> tuple[float, Mapping[Dtype, float]]:
    """Return `bytes_per_s` and `flops_per_s` of a device; takes about a second. See `NodeInfo`."""
    from aici_engine.native import library
    from aici_engine.native.thread_pool import ThreadPool

    native = library.describe()
    if native.library is None or device != "cpu":
        return _torch_rates(device)
    pool = ThreadPool(native.library, num_threads or default_threads())
    return _bytes_per_s(pool), {dtype: _flops_per_s(pool, dtype) for dtype in WEIGHT_BYTES}


def budget(free_bytes: int, *, fraction: float = DEFAULT_FRACTION, memory_bytes: int | None = None) -> int:
    """Return the bytes for weights, pages and scratch memory of a stage."""
    share = int(free_bytes * fraction) if memory_bytes is None else min(memory_bytes, free_bytes)
    return max(0, share - process_bytes())


def _bytes_per_s(pool: "ThreadPool") -> float:
    """Return the rate at which the kernels read int8 weights for one token."""
    return _rate(pool, "int8", num_bytes=_LARGE, rows=1) * WEIGHT_BYTES["int8"]


def _flops_per_s(pool: "ThreadPool", dtype: Dtype) -> float:
    """Return the rate of a matrix in the caches for a batch of tokens."""
    return _rate(pool, dtype, num_bytes=_SMALL, rows=_ROWS) * 2 * _ROWS


def _rate(pool: "ThreadPool", dtype: Dtype, *, num_bytes: int, rows: int) -> float:
    """Return weights per second of a product of `rows` tokens, the best of several."""
    import numpy as np

    from aici_engine.arrays import address_of
    from aici_engine.native.bindings import Format
    from aici_engine.native.matrix_layout import blank, matrix

    num_rows = max(16, int(num_bytes / _COLUMNS / WEIGHT_BYTES[dtype]) // 16 * 16)
    form = Format[_FORMATS[dtype]]
    parts = blank(num_rows, _COLUMNS, form)
    c = matrix(parts, form)
    tokens, out = np.ones((rows, _COLUMNS), np.float32), np.empty((rows, num_rows), np.float32)
    memory = pool.scratch(pool.library.aici_linear_memory(c, rows))
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < _LEAST_S:
        start = time.perf_counter()
        pool.library.aici_linear(pool.pointer, c, address_of(tokens), rows, memory, address_of(out))
        best = min(best, time.perf_counter() - start)
    del parts  # `c` refers to its memory
    return num_rows * _COLUMNS / best


def _torch_rates(device: str) -> tuple[float, dict[Dtype, float]]:
    """Return the rates of torch in f32, for GPUs, and for machines without kernels: every format is computed in f32
    there."""
    import torch

    weight = torch.ones(_LARGE // 4 // _COLUMNS, _COLUMNS, device=device)
    tokens = torch.ones(_ROWS, _COLUMNS, device=device)

    def best(rows: int) -> float:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            torch.nn.functional.linear(tokens[:rows], weight)[0, 0].item()
            times.append(time.perf_counter() - start)
        return min(times)

    flops = 2 * _ROWS * weight.numel() / best(_ROWS)
    return weight.nbytes / best(1), dict.fromkeys(WEIGHT_BYTES, flops)
