"""Memory bandwidth: with the weight bytes of a decoding step, the speed limit of any engine at batch 1."""

import os
import subprocess
import sys
import time

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
