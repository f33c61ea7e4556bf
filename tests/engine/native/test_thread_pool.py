"""A thread that the operating system has stopped delays no other thread, and changes no bit."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from aici_engine.native import library
from aici_engine.native.bindings import Format
from aici_engine.native.linear import NativeLinear
from aici_engine.native.thread_pool import ThreadPool
from tests.engine.native.test_native_model import ABLE

pytestmark = [
    pytest.mark.skipif(not ABLE, reason="no kernels for this processor"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]


def thread_ids() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


@contextmanager
def busy_core(core: int) -> Iterator[None]:
    """Keep one core busy."""
    code = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def starve(thread: int, core: int) -> None:
    """Let the thread run only while nobody else wants its core."""
    os.sched_setaffinity(thread, {core})
    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def run_products(layer: NativeLinear, x: torch.Tensor, count: int) -> tuple[float, list[torch.Tensor]]:
    begin = time.perf_counter()
    results = [layer(x + number % 7) for number in range(count)]
    return time.perf_counter() - begin, results


@pytest.mark.parametrize("tokens", [1, 9, 100])
def test_a_thread_without_a_core_delays_nobody(tokens: int) -> None:
    random = torch.Generator().manual_seed(3)
    weight, x = torch.randn(640, 512, generator=random), torch.randn(tokens, 512, generator=random)
    alone = NativeLinear(weight, None, Format.INT8, ThreadPool(library.of_level(ABLE[-1]), 1))
    before = thread_ids()
    shared = NativeLinear(weight, None, Format.INT8, ThreadPool(library.of_level(ABLE[-1]), 2))
    [worker] = thread_ids() - before
    core = min(os.sched_getaffinity(0))
    run_products(alone, x, 20)
    with busy_core(core):
        starve(worker, core)
        alone_s, wanted = run_products(alone, x, 1000)
        shared_s, got = run_products(shared, x, 1000)
    assert all(np.array_equal(a, b) for a, b in zip(wanted, got, strict=True))
    # A pool that waits for the worker at every phase takes hundreds of times as long.
    assert shared_s < 20 * alone_s
