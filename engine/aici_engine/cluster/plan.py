"""Divide the layers of a model over unequal nodes. Pure: no files, no sockets, no clocks.

A plan gives every node a range of layers, or nothing. Stages are in the order of the layers, and the driver is last.
A plan has, in this order of importance:

1. room for the wanted pages of the KV cache, or for as many as fit;
2. the least time of the slowest stage, which bounds the tokens per second of many requests;
3. the least network round trip around the stages;
4. the least sum of the stages' times, which is the time of a token;
5. the most even times.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise, permutations
from math import ceil
from typing import Final, NamedTuple

from aici_base.errors import UsageError
from aici_engine.cluster.headers import ModelSizes
from aici_engine.config import Dtype
from aici_engine.model.stage_range import LayerRange

HOP_S: Final = 0.0004
"""The time of a hop between two stages beside the network: messages, and waking processes. Measured with two stages on
the loopback device, encrypted: 0.32 ms with 1 token, 0.46 ms with 16."""
_OTHER_WORK: Final = 1.15
"""The time of a stage, over the time of its matrices: attention, norms, sampling. Measured with the default model."""
_MOST_PERMUTED: Final = 6
_MIB: Final = 1 << 20
_PS: Final = 10**12
_UNBOUNDED: Final = 1 << 200
_FLOPS_PER_BYTE: Final[Mapping[Dtype, float]] = {"float32": 1.8, "bfloat16": 2.2, "int8": 4.6, "int4": 5.0}
"""Assumed for a node without measured `flops_per_s`: AVX2 kernels, as many threads as the memory rate needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The planner's view of a node.

    `budget_bytes`: memory for weights, pages and scratch memory of a stage, without the process itself, and including
    what the stage holds already. `bytes_per_s`: the kernels' rate of reading weights. `flops_per_s`: the kernels' rate
    of computing batches, by format of the weights; empty: estimated from `bytes_per_s`. `rtt_s`: the round trip between
    node and driver. `held`: loaded ranges of this model in this format.
    """

    name: str
    budget_bytes: int
    bytes_per_s: float
    flops_per_s: Mapping[Dtype, float] = field(default_factory=dict)
    rtt_s: float = 0.0
    held: tuple[LayerRange, ...] = ()

    def compute_rate(self, dtype: Dtype) -> float:
        """Return floating-point operations per second with weights in `dtype`."""
        return self.flops_per_s.get(dtype) or self.bytes_per_s * _FLOPS_PER_BYTE[dtype]


class PlannedStage(NamedTuple):
    """A node and its range. `page_bytes`: of one page, in all layers of the range. `work_bytes`: scratch memory.

    `read_s`: time to read the weights once, the least time of a step.
    """

    node: NodeInfo
    part: LayerRange
    weight_bytes: int
    page_bytes: int
    work_bytes: int
    read_s: float

    def num_bytes(self, num_pages: int) -> int:
        return self.weight_bytes + self.work_bytes + num_pages * self.page_bytes

    def num_mib(self, num_pages: int) -> int:
        return -(-self.num_bytes(num_pages) // _MIB)


class ExpectedSpeed(NamedTuple):
    """Expected speed of decoding `batch` requests with short contexts.

    `step_s`: one step of all requests, one flight at a time. `tokens_per_s`: the same, of all requests together.
    `tokens_per_s_in_flights`: with the requests divided among several flights.
    """

    batch: int
    step_s: float
    tokens_per_s: float
    tokens_per_s_in_flights: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to divide. `num_pages`: the wanted pages of `page_size` tokens; `min_pages`: the fewest that are of use."""

    sizes: ModelSizes
    dtype: Dtype
    num_pages: int
    min_pages: int = 1
    page_size: int = 16
    max_batch_tokens: int = 512
    max_num_seqs: int = 32

    @property
    def least_pages(self) -> int:
        return min(self.min_pages, self.num_pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """Stages in order, the driver last; the driver may have no layers. `spares`: nodes without a range.

    `num_pages`: pages of the KV cache that fit in every stage, at most the wanted. `hops_s`: the time of a step between
    the stages. `alone`: the fastest node that could run the model without the others, if there is one.
    """

    request: PlanRequest
    stages: tuple[PlannedStage, ...]
    spares: tuple[NodeInfo, ...]
    num_pages: int
    hops_s: float
    alone: PlannedStage | None

    def lines(self) -> list[str]:
        """Return the plan for people, a line for every stage and one for the whole."""
        found = []
        for stage in self.stages:
            part = stage.part
            layers = f"layers {part.first} to {part.last - 1}" if part.num_layers else "the head"
            room = f"{stage.num_mib(self.num_pages)} of {stage.node.budget_bytes / _MIB:.0f} MiB"
            found.append(f"plan: {stage.node.name}: {layers}, {room}")
        one, many = self.speed(1).tokens_per_s, self.speed(16).tokens_per_s_in_flights
        whole = f"plan: {self.num_pages} pages; about {one:.1f} tokens/s for one request, {many:.0f} for 16"
        return [*found, whole]

    def speed(self, batch: int) -> ExpectedSpeed:
        """Return the expected speed of decoding `batch` requests."""
        return _speed(self.stages, self.hops_s, self.request, batch)

    def speed_alone(self, batch: int) -> ExpectedSpeed | None:
        """Return the expected speed of the node `alone`."""
        return _speed((self.alone,), 0.0, self.request, batch) if self.alone else None


def make_plan(
    request: PlanRequest,
    nodes: Sequence[NodeInfo],
    *,
    driver: str,
    rtts: Mapping[tuple[str, str], float] | None = None,
    keep: bool = True,
    in_order: bool = False,
) -> PipelinePlan:
    """Return the best plan. `driver`: the name of the node with the scheduler and the head.

    `rtts`: round trips between pairs of nodes in seconds; of a missing pair, the larger `rtt_s` counts. `keep`: if
    possible, nodes keep the ranges that they hold, and no weights are read. `in_order`: the stages are in the order of
    `nodes`, and each has a layer at least; of layers of unequal sizes, cuts that fit may be overlooked then.

    Raises UsageError if the model does not fit, with the missing bytes; or if names are wrong.
    """
    names = [node.name for node in nodes]
    if driver not in names or len(set(names)) < len(names):
        raise UsageError(
            f"the driver {driver!r} is not among the nodes {', '.join(names) or '(none)'}"
            if driver not in names
            else f"two nodes have the same name: {', '.join(names)}",
            hint="give every node a name of its own, the driver too",
        )
    last = next(node for node in nodes if node.name == driver)
    others = [node for node in nodes if node is not last]
    if in_order and len(others) > request.sizes.num_layers:
        raise UsageError(
            f"a stage would have nothing to compute: {request.sizes.num_layers} layers for {len(others)} stages",
            hint="use fewer stages",
        )
    around = _RoundTrips(rtts or {})

    def search_over(others: Sequence[NodeInfo], last: NodeInfo) -> _Search:
        orders = [(*others, last)] if in_order else around.orders(others, last)
        return _Search(request, orders, least_layers=int(in_order))

    search = search_over(others, last)
    order, fixed = _kept_in_order(others) if in_order else _kept(others)
    if keep and fixed:
        keeping = _Search(request, [(*order, last)], fixed, least_layers=int(in_order))
        search = keeping if keeping.fits(request.least_pages) else search
    if not search.fits(request.least_pages):
        raise _too_large(request, nodes, last, search_over)
    stages = search.best(search.most_pages())
    order = tuple(stage.node for stage in stages)
    room = [(stage.node.budget_bytes - stage.num_bytes(0)) // stage.page_bytes for stage in stages if stage.page_bytes]
    alone = [_stage(request, node, request.sizes.whole) for node in nodes]
    return PipelinePlan(
        request=request,
        stages=stages,
        spares=tuple(node for node in nodes if node not in order),
        num_pages=min(request.num_pages, *room),
        hops_s=around.around(order) + HOP_S * len(order) if len(order) > 1 else 0.0,
        alone=min(
            (stage for stage in alone if stage.num_bytes(request.least_pages) <= stage.node.budget_bytes),
            key=lambda stage: stage.read_s,
            default=None,
        ),
    )


Order = tuple[NodeInfo, ...]
"""Nodes in the order of the layers, the driver last."""


class _Search:
    """Search for cuts in several orders of the nodes. `fixed`: ranges that nodes keep, by name. `least_layers`: 0 or 1,
    of every node but the driver.

    Times are whole picoseconds, so that a sum does not depend on the order of its terms.
    """

    def __init__(
        self,
        request: PlanRequest,
        orders: Sequence[Order],
        fixed: Mapping[str, LayerRange] | None = None,
        *,
        least_layers: int = 0,
    ) -> None:
        self._request = request
        self._orders = orders
        self._fixed = fixed or {}
        self._least_layers = least_layers
        sizes, dtype = request.sizes, request.dtype
        self._num_layers = sizes.num_layers
        single = [LayerRange(i, i + 1, embedding=False, head=False) for i in range(sizes.num_layers)]
        self._weights = [0, *accumulate(sizes.weight_bytes(layer, dtype) for layer in single)]
        self._pages = [0, *accumulate(sizes.token_bytes(layer, dtype) * request.page_size for layer in single)]
        self._ends = {
            (embedding, head): sizes.weight_bytes(part, dtype) + _work_bytes(request, part)
            for embedding in (False, True)
            for head in (False, True)
            for part in [LayerRange(0, 0, embedding, head)]
        }
        self._times = {
            node.name: [0, *accumulate(_ps(sizes.read_bytes(layer, dtype), node) for layer in single)]
            for node in orders[0]
        }
        self._driver = orders[0][-1].name
        self._head_time = _ps(sizes.read_bytes(LayerRange(0, 0, embedding=False, head=True), dtype), orders[0][-1])

    def fits(self, num_pages: int) -> bool:
        return any(self._fill(order, num_pages, _UNBOUNDED) is not None for order in self._orders)

    def most_pages(self) -> int:
        """Return the number of pages that fit, at most the wanted. Call only if `least_pages` fit."""
        counts = range(self._request.least_pages, self._request.num_pages + 1)
        return counts[bisect_right(counts, False, key=lambda count: not self.fits(count)) - 1]

    def best(self, num_pages: int) -> tuple[PlannedStage, ...]:
        """Return the best stages. Call only if `num_pages` fit."""
        bound, chosen = _UNBOUNDED, self._orders[0]
        for order in self._orders:
            while (cuts := self._fill(order, num_pages, bound - 1)) is not None:
                times = (self._time(node, *cut) for node, cut in zip(order, pairwise(cuts), strict=True))
                bound, chosen = max(times), order
        cuts = self._least_sum(chosen, num_pages, bound)
        parts = [self._part(node, *cut) for node, cut in zip(chosen, pairwise(cuts), strict=True)]
        return tuple(
            _stage(self._request, node, part)
            for node, part in zip(chosen, parts, strict=True)
            if part.num_layers or part.head
        )

    def _fill(self, order: Order, num_pages: int, bound: int) -> list[int] | None:
        """Give each node in turn as many layers as its memory and `bound` allow.

        Returns the first layer of every node, followed by the number of layers; or None if layers are left.
        """
        cuts = [0]
        for place in range(len(order)):
            ends = self._allowed_ends(order, place, cuts[-1], num_pages, bound)
            if not ends:
                return None
            cuts.append(ends[-1])
        return cuts

    def _least_sum(self, order: Order, num_pages: int, bound: int) -> list[int]:
        """Return the cuts with the least sum of times within `bound`, then the least sum of squares.

        Dynamic programming over (node, layers before). Call only if `_fill` finds cuts.
        """
        reached: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [0])}
        for place, node in enumerate(order):
            before, reached = reached, {}
            for first, (time, squares, cuts) in before.items():
                for end in self._allowed_ends(order, place, first, num_pages, bound):
                    more = self._time(node, first, end)
                    found = (time + more, squares + more**2, [*cuts, end])
                    reached[end] = min(reached.get(end, found), found)
        return reached[self._num_layers][2]

    def _allowed_ends(self, order: Order, place: int, first: int, num_pages: int, bound: int) -> range:
        """Return the ends of the ranges from `first` that the node at `place` may have."""
        node = order[place]
        if place == len(order) - 1:
            ends = range(self._num_layers, self._num_layers + 1)
        elif kept := self._fixed.get(node.name):
            ends = range(kept.last, kept.last + (first == kept.first))
        else:
            after = order[place + 1 : -1]
            ahead = ((self._fixed[other.name].first, i) for i, other in enumerate(after) if other.name in self._fixed)
            end, num_between = next(ahead, (self._num_layers, len(after)))
            ends = range(first + self._least_layers, end - num_between * self._least_layers + 1)

        def is_too_much(end: int) -> bool:
            part = self._part(node, first, end)
            if not part.num_layers and not part.head:
                return False
            num_bytes = self._weights[end] - self._weights[first] + self._ends[part.embedding, part.head]
            num_bytes += num_pages * (self._pages[end] - self._pages[first])
            return num_bytes > node.budget_bytes or self._time(node, first, end) > bound

        return ends[: bisect_right(ends, False, key=is_too_much)]

    def _part(self, node: NodeInfo, first: int, end: int) -> LayerRange:
        return LayerRange(first, end, embedding=first == 0 < end, head=node.name == self._driver)

    def _time(self, node: NodeInfo, first: int, end: int) -> int:
        times = self._times[node.name]
        return times[end] - times[first] + (self._head_time if node.name == self._driver else 0)


class _RoundTrips:
    """Round trips between nodes. `pairs`: measured ones, in seconds."""

    def __init__(self, pairs: Mapping[tuple[str, str], float]) -> None:
        self._pairs = pairs

    def between(self, a: NodeInfo, b: NodeInfo) -> float:
        known = self._pairs.get((a.name, b.name), self._pairs.get((b.name, a.name)))
        return max(a.rtt_s, b.rtt_s) if known is None else known

    def around(self, order: Sequence[NodeInfo]) -> float:
        """Return half of the round trips from the last node to the first, to the second, and back to the last."""
        return sum(self.between(a, b) for a, b in pairwise((order[-1], *order))) / 2 if len(order) > 1 else 0.0

    def orders(self, others: Sequence[NodeInfo], driver: NodeInfo) -> list[Order]:
        """Return orders to try, the shortest way around first.

        All orders of few nodes. Of many nodes, for every first node the order in which the nearest node is next.
        """
        few = len(others) < _MOST_PERMUTED
        found = permutations(others) if few else (self._nearest_next(first, others) for first in others)
        return sorted(((*order, driver) for order in found), key=self.around)

    def _nearest_next(self, first: NodeInfo, others: Sequence[NodeInfo]) -> Order:
        order, left = [first], [node for node in others if node is not first]
        while left:
            order.append(min(left, key=lambda node: self.between(order[-1], node)))
            left.remove(order[-1])
        return tuple(order)


def _kept(others: Sequence[NodeInfo]) -> tuple[Order, dict[str, LayerRange]]:
    """Return an order in which nodes keep ranges that they hold, and these ranges by name. The other nodes stand where
    layers are missing."""
    fixed: dict[str, LayerRange] = {}
    holders: list[NodeInfo] = []
    gaps: list[int] = []
    covered = 0
    held = [(part.first, -part.last, i, part) for i, node in enumerate(others) for part in node.held]
    for first, _, i, part in sorted(held, key=lambda each: each[:3]):
        node = others[i]
        if first < covered or not part.num_layers or part.embedding != (first == 0) or node.name in fixed:
            continue
        if first > covered:
            gaps.append(len(holders))
        holders.append(node)
        fixed[node.name] = part
        covered = part.last
    gaps.append(len(holders))
    free = [node for node in others if node.name not in fixed]
    order: list[NodeInfo] = []
    for place in range(len(holders) + 1):
        order += [node for i, node in enumerate(free) if gaps[i % len(gaps)] == place]
        order += holders[place : place + 1]
    return tuple(order), fixed


def _kept_in_order(others: Sequence[NodeInfo]) -> tuple[Order, dict[str, LayerRange]]:
    """As `_kept`, in the order of `others`."""
    fixed: dict[str, LayerRange] = {}
    covered = 0
    for node in others:
        for part in node.held[:1]:
            if part.num_layers and part.first >= covered and part.embedding == (part.first == 0):
                fixed[node.name] = part
                covered = part.last
    return tuple(others), fixed


def _stage(request: PlanRequest, node: NodeInfo, part: LayerRange) -> PlannedStage:
    sizes, dtype = request.sizes, request.dtype
    return PlannedStage(
        node=node,
        part=part,
        weight_bytes=sizes.weight_bytes(part, dtype),
        page_bytes=sizes.token_bytes(part, dtype) * request.page_size,
        work_bytes=_work_bytes(request, part),
        read_s=sizes.read_bytes(part, dtype) / node.bytes_per_s,
    )


def _work_bytes(request: PlanRequest, part: LayerRange) -> int:
    return request.sizes.work_bytes(part, max_batch_tokens=request.max_batch_tokens, max_num_seqs=request.max_num_seqs)


def _speed(stages: Sequence[PlannedStage], hops_s: float, request: PlanRequest, batch: int) -> ExpectedSpeed:
    def times(rows: int) -> list[float]:
        return [
            _OTHER_WORK
            * max(stage.read_s, rows * request.sizes.flops(stage.part) / stage.node.compute_rate(request.dtype))
            for stage in stages
        ]

    step_s = sum(times(batch)) + hops_s
    num_flights = min(batch, len(stages))
    in_flight = times(-(-batch // num_flights))
    all_flights_s = max(num_flights * max(in_flight), sum(in_flight) + hops_s)
    return ExpectedSpeed(batch, step_s, batch / step_s, batch / all_flights_s)


def _too_large(
    request: PlanRequest,
    nodes: Sequence[NodeInfo],
    driver: NodeInfo,
    search_over: Callable[[Sequence[NodeInfo], NodeInfo], _Search],
) -> UsageError:
    """Find the node that needs the least additional memory."""
    most = sum(_stage(request, driver, request.sizes.whole).num_bytes(request.least_pages) for _ in nodes)

    def fits(node: NodeInfo, missing: int) -> bool:
        changed = {each.name: each for each in nodes}
        changed[node.name] = replace(node, budget_bytes=max(0, node.budget_bytes) + missing)
        others = [changed[each.name] for each in nodes if each is not driver]
        return search_over(others, changed[driver.name]).fits(request.least_pages)

    best, tight = most, driver
    for node in (driver, *(node for node in nodes if node is not driver)):
        if fits(node, best - 1):
            best, tight = bisect_right(range(best), False, key=lambda missing: fits(node, missing)), node
    needed = max(0, tight.budget_bytes) + best
    scale, unit = (1 << 30, "GiB") if needed >= 1 << 30 else (1 << 20, "MiB")
    missing = ceil(best / scale * 10) / 10
    has = tight.budget_bytes / scale
    return UsageError(
        f"the model does not fit: short by {missing:.1f} {unit}: "
        f"node {tight.name} would need {has + missing:.1f} of {has:.1f}",
        hint="add a node or memory, or take a smaller dtype or a shorter context",
    )


def _ps(num_bytes: int, node: NodeInfo) -> int:
    return round(num_bytes * _PS / node.bytes_per_s)
