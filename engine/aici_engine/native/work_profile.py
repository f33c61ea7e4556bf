"""Where the time of the kernels goes, and the speed that the processor allows."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from aici_engine.native.bindings import CProfile, Format
from aici_engine.native.thread_pool import ThreadPool

KINDS: Final = ("products", "head", "attention", "rest")
"""`products` of the layers, the product of the `head`, `attention`, and the `rest`, which has no operations."""
_TRIES: Final = 7


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one kind. An operation is an addition or a multiplication."""

    seconds: float
    operations: float

    @property
    def rate(self) -> float:
        """Operations per second; 0 without time."""
        return self.operations / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class WorkProfile:
    """The work of all kinds, complete after the block of `profile_work`."""

    works: dict[str, Work] = field(default_factory=dict)


@contextmanager
def profile_work(pool: ThreadPool) -> Iterator[WorkProfile]:
    """Record the work of all jobs of the pool in the block. One profile of a pool at a time."""
    counts, profile = CProfile(), WorkProfile()
    pool.library.aici_pool_profile(pool.pointer, ctypes.byref(counts))
    try:
        yield profile
    finally:
        pool.library.aici_pool_profile(pool.pointer, None)
        works = map(Work, counts.seconds, counts.operations)
        profile.works = dict(zip(KINDS, works, strict=True))


def peak_rate(pool: ThreadPool, form: Format, *, rounds: int = 100_000) -> float:
    """Return the operations per second of a plain loop of the instructions that multiply `form`, on all threads."""
    rates = []
    for _ in range(_TRIES):
        with profile_work(pool) as profile:
            pool.library.aici_peak(pool.pointer, form, rounds)
        rates.append(profile.works["products"].rate)
    return max(rates)
