"""Divide a model over given stages, in the given order, by the facts that the stages report."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from aici_engine.cluster.frames import HeldRange, StageFacts, StageSpeed
from aici_engine.cluster.plan import NodeInfo, PipelinePlan, PlannedStage, PlanRequest, make_plan
from aici_engine.config import DTYPES
from aici_engine.model.stage_range import LayerRange

_log = logging.getLogger(__name__)


class MeasuredSpeed(NamedTuple):
    """`rtt_s`: the round trip between the driver and the stage."""

    speed: StageSpeed
    rtt_s: float


class StagePlanner:
    """Plans once, and plans again only if a stage comes back with too little memory for its range.

    `model`: the digest of the model; a range of this model that a stage holds already is kept if possible. `driver`:
    describes this process; called once.
    """

    def __init__(self, request: PlanRequest, *, model: bytes, driver: Callable[[], NodeInfo]) -> None:
        self._request = request
        self._model = model
        self._describe = driver
        self._plan: PipelinePlan | None = None

    @cached_property
    def _driver(self) -> NodeInfo:
        return self._describe()

    def plan(
        self,
        names: Sequence[str],
        facts: Sequence[StageFacts],
        measure: Callable[[], list[MeasuredSpeed]],
        *,
        num_pages: int | None,
    ) -> PipelinePlan:
        """Return the plan for these stages: the same stages at every call. `measure` is called only if needed.

        `num_pages`: the pages that the cache must have; `None`: as in the request. Raises as `make_plan`.
        """
        old: Sequence[PlannedStage] = () if self._plan is None else self._plan.stages[:-1]
        kept = [
            (stage.part,) if stage.num_bytes(num_pages or 0) <= each.memory_bytes else ()
            for stage, each in zip(old, facts, strict=False)
        ]
        if self._plan is not None and all(kept):
            return self._plan
        request = self._request
        if num_pages is not None:
            request = replace(request, num_pages=num_pages, min_pages=num_pages)
        nodes = [
            NodeInfo(
                name=name,
                budget_bytes=each.memory_bytes,
                bytes_per_s=speed.bytes_per_s,
                flops_per_s={dtype: speed.flops_per_s[dtype] for dtype in DTYPES if dtype in speed.flops_per_s},
                rtt_s=rtt_s,
                held=kept[i] if kept else self._held(each.held),
            )
            for i, (name, each, (speed, rtt_s)) in enumerate(zip(names, facts, measure(), strict=True))
        ]
        self._plan = make_plan(request, [*nodes, self._driver], driver=self._driver.name, in_order=True)
        for line in self._plan.lines():
            _log.info("%s", line)
        return self._plan

    def _held(self, held: HeldRange | None) -> tuple[LayerRange, ...]:
        if held is None or (held.model, held.dtype) != (self._model, self._request.dtype):
            return ()
        return (LayerRange(held.first, held.last, held.embedding, held.head),)
