"""The figures of one engine process over time, asked for without ever waiting long."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from aici_base.errors import AiciError
from aici_engine.server.link import wire

_WINDOW: Final = 5
"""Samples that rates are computed over: two seconds, at two samples a second."""


class EngineState(Protocol):
    """An engine process that is up: an `EngineClient`."""

    @property
    def info(self) -> wire.EngineInfo | None: ...

    async def call(self, method: str) -> Any: ...


class _Sample(NamedTuple):
    at_s: float
    stats: Mapping[str, Any]


class EngineFigures:
    """Asks an engine for figures, with at most one question open.

    An engine that does not answer keeps the question, so the engine's watch sees an engine with work and notices a
    hang. `pipeline`: the state of a pipeline of stages in the last answer; None without a pipeline.
    """

    def __init__(self, engine: EngineState, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine = engine
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._samples: deque[_Sample] = deque(maxlen=_WINDOW)
        self._is_whole = False
        self.pipeline: Mapping[str, Any] | None = None

    def ask(self) -> "asyncio.Task[None]":
        """Ask the engine, unless a question is open. The returned task never fails."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._asking

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _ask(self) -> None:
        try:
            stats = await self.engine.call("stats")
            if not self._is_whole:
                self.pipeline = await self.engine.call("cluster")
                self._is_whole = self.pipeline is None
        except AiciError:
            self._samples.clear()
            self.pipeline, self._is_whole = None, False
            return
        if self._samples and stats["num_steps"] < self._samples[-1].stats["num_steps"]:
            self._samples.clear()  # a new engine, which counts from 0
        self._samples.append(_Sample(self._clock(), stats))

    def fields(self) -> dict[str, Any] | None:
        """Return the last answer and the rates; None before the first answer, and after the engine has died."""
        if not self._samples:
            return None
        stats = self._samples[-1].stats
        return {
            "running": stats["active_requests"],
            "waiting": stats["waiting_requests"],
            "pages": stats["num_pages"],
            "pages_used": round(stats["cache_usage"] * stats["num_pages"]),
            "preemptions": stats["num_preemptions"],
            "tokens": stats["tokens_generated"],
            "cached_tokens": stats["cached_tokens"],
            "guest_cpu_s": round(stats["guest_cpu_seconds"], 3),
            "steps": stats["num_steps"],
            **self._rates(),
        }

    def _rates(self) -> dict[str, float | None]:
        """Return tokens a second, and the mean seconds of a step and of its forward pass; None without a step in the
        last two seconds."""
        first, last = self._samples[0], self._samples[-1]
        num_steps = last.stats["num_steps"] - first.stats["num_steps"]

        def mean(name: str) -> float | None:
            return round((last.stats[name] - first.stats[name]) / num_steps, 6) if num_steps else None

        num_tokens = last.stats["tokens_generated"] - first.stats["tokens_generated"]
        return {
            "tokens_per_s": round(num_tokens / (last.at_s - first.at_s), 1) if last.at_s > first.at_s else 0.0,
            "step_s": mean("step_seconds"),
            "forward_s": mean("forward_seconds"),
        }
