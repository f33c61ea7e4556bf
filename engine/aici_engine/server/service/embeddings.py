"""Embeddings of many prompts, some at a time, so that other requests find places among the running sequences."""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aici_base.errors import AiciError, UsageError
from aici_engine.server.link.wire import EmbeddingOut
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation, Service

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Vector: TypeAlias = "npt.NDArray[np.float32]"
T = TypeVar("T")


def check_embeddings(service: Service) -> None:
    """Raise UsageError if the engine of this server computes no embeddings."""
    if not service.info.states_size:
        raise UsageError(
            f"{service.name} gives no embeddings here: the model is divided over stages",
            hint="serve the model in one process",
            param="model",
        )


async def embed(
    service: Service, principal: Principal, generations: Sequence[Generation], encode: Callable[[Vector], T]
) -> list[T]:
    """Return the encoded vectors, which are not normalized, in the order of `generations`. All of them have `pooling`.

    At most half of the engine's places are used at a time. `encode` is called when a vector arrives, so that the event
    loop encodes a long list in small parts. The first failure ends all. Raises RateLimitError if the queue is full.
    """
    # numpy takes 14 MB and a tenth of a second: loaded by the first request for embeddings, beside the event loop.
    await asyncio.to_thread(importlib.import_module, "numpy")
    found: dict[int, T] = {}
    # The workers share the iterator: each takes the next prompt.
    waiting = iter(enumerate(generations))

    async def work() -> None:
        for index, generation in waiting:
            found[index] = encode(await _vector(service, principal, generation))

    places = min(
        len(generations), max(1, service.info.max_num_seqs // 2), principal.max_concurrency or len(generations)
    )
    async with service.admit(principal, places):
        workers = [asyncio.create_task(work()) for _ in range(places)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return [found[index] for index in range(len(generations))]


def normalized(vector: Vector, dimensions: int | None) -> Vector:
    """Return the first `dimensions` numbers (None: all) with length 1. Raises AiciError for zeros and NaN."""
    import numpy as np

    kept = vector[:dimensions].astype(np.float64)
    length = float(np.sqrt(kept @ kept))
    if not 0.0 < length < np.inf:
        raise AiciError(f"the model's states have no direction: their length is {length}")
    return (kept / length).astype(np.float32)


async def _vector(service: Service, principal: Principal, generation: Generation) -> Vector:
    import numpy as np

    vector = None
    async with service.start(principal, generation) as stream:
        async for event in stream:
            if isinstance(event, EmbeddingOut):
                vector = np.frombuffer(event.vector, "<f4")
        stream.result()
    assert vector is not None, "a stream that has not failed has given its vector"
    return vector
