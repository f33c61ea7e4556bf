"""Storage for tests: rows that were never written are NaN, so that a read shows."""

import numpy as np

from aici_engine.cache.storage import KVStorage

_BF16_NAN = 0x7FC0


def fill_with_nan(storage: KVStorage) -> None:
    for array in (*storage.keys, *storage.values):
        if array.dtype == np.uint8:  # scales of f32 among the bytes
            array[:] = 0xFF
        else:
            array[:] = _BF16_NAN if array.dtype == np.uint16 else float("nan")
