"""The layers of each node, now and after a failure."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.assembly import StagePlaces
from aici_engine.cluster.frames import HeldRange, decode_from_stage
from aici_engine.cluster.link import LinkGroup, StageLink
from aici_engine.cluster.members import Members, RoomClaim
from aici_engine.cluster.node_links import NodeLinks, NodeView
from aici_engine.cluster.node_messages import EndStage, KillStage, NoteRange, RunStage, StageReport
from aici_engine.cluster.plan import NodeInfo, PipelinePlan, PlannedStage, PlanRequest, make_plan
from aici_engine.cluster.token import ClusterToken
from aici_engine.config import DTYPES
from aici_engine.model.stage_range import LayerRange

SPARE_AFTER_S: Final = 2.0
"""A node away for longer is replaced, if a free node can take over and no other range moves."""
_PATIENCE_S: Final = 0.5
_PROBE_S: Final = 3.0
_GLANCE_S: Final = 0.1
_MIB: Final = 1 << 20

_log = logging.getLogger(__name__)


class ClusterPlacement:
    """Plans a pipeline over the nodes of a cluster, and lets the node daemons keep the stages.

    `pipeline`: the name under which daemons keep the stages; a driver of the same name finds the stages of the driver
    before it. `driver`: this machine. `model`: the digest of the model. `min_nodes`: no plan is made without so many
    nodes beside this machine. `replan_after_s`: after so long, the plan is made without an absent node.

    `find` is called by one thread at a time; the placement has no thread of its own.
    """

    def __init__(
        self,
        members: Members,
        links: NodeLinks,
        token: ClusterToken,
        request: PlanRequest,
        driver: NodeInfo,
        *,
        pipeline: str,
        model: bytes,
        min_nodes: int = 1,
        replan_after_s: float = 60.0,
        insecure: bool = False,
    ) -> None:
        self.plan: PipelinePlan | None = None
        self._members = members
        self._links = links
        self._token = token
        self._request = request
        self._driver = driver
        self._pipeline = pipeline
        self._model = model
        self._min_nodes = min_nodes
        self._replan_after_s = replan_after_s
        self._insecure = insecure
        self._given: set[str] = set()
        """The addresses of stages in the last answer of `find`."""
        self._ended: set[str] = set()
        """The addresses of stages told to end, because the nodes leave."""
        self._trouble = ""
        self._lock = threading.Lock()
        links.watch(self._let_leave)

    def wait(self) -> StagePlaces:
        """Wait without an end until the stages run. Every reason to wait is logged once."""
        while True:
            since = self._links.num_changes
            try:
                return self.find()
            except UnavailableError as error:
                if error.message != self._trouble:
                    _log.info("%s", error.message)
                self._trouble = error.message
                self._links.wait_change(since, _PATIENCE_S)

    def keep_pages(self, num_pages: int) -> None:
        """Plan for exactly so many pages from now on: the cache of a pipeline never changes its size."""
        self._request = replace(self._request, num_pages=num_pages, min_pages=num_pages)

    def find(self) -> StagePlaces:
        """Return where the stages are. Call again when a stage is lost.

        Raises UnavailableError if the stages do not run yet, or if there are too few nodes.
        """
        self._kill_silent()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            since = self._links.num_changes
            try:
                with self._lock:
                    return self._places()
            except UnavailableError:
                left = deadline - time.monotonic()
                if left <= 0 or not self._links.wait_change(since, left):
                    raise

    def close(self, *, keep_stages: bool = False) -> None:
        """Give everything back; stages end unless `keep_stages`."""
        with self._lock:
            if not keep_stages:
                for view in self._links.nodes():
                    self._links.send(view.member.address, EndStage(self._pipeline))
            self._members.claim([])
        self._links.close()
        self._members.close()

    def status(self) -> list[dict[str, Any]]:
        """Return the nodes as JSON values. For any thread."""
        now = time.monotonic()
        plan = self.plan
        parts = {} if plan is None else {stage.node.name: stage.part for stage in _remote(plan)}
        found = []
        for view in self._links.nodes():
            stage, part = self._stage(view), parts.get(view.name)
            found.append(
                {
                    "name": view.name,
                    "address": view.member.address.partition("#")[0],
                    "state": _state(view),
                    "away_s": 0 if view.lost_at is None else round(now - view.lost_at),
                    "trouble": view.trouble,
                    "rtt_s": view.rtt_s,
                    "budget_bytes": 0 if view.report is None else view.report.budget_bytes,
                    "bytes_per_s": 0.0 if view.report is None else view.report.bytes_per_s,
                    "ray": "" if view.report is None else view.report.ray,
                    "labels": {} if view.report is None else dict(view.report.labels),
                    "first": None if part is None else part.first,
                    "last": None if part is None else part.last,
                    "stage_starts": 0 if stage is None else stage.num_starts,
                }
            )
        return found

    # Planning.

    def _places(self) -> StagePlaces:
        views = self._links.nodes()
        nodes = {view.name: view for view in views if self._is_usable(view)}
        if self.plan is None or not _names(self.plan) <= set(nodes):
            self.plan = self._new_plan(views, nodes)
            self._tell_plan(self.plan)
        stages = _remote(self.plan)
        running = {stage.node.name: self._stage(nodes[stage.node.name]) for stage in stages}
        for name, stage in running.items():
            if stage is None:
                self._links.send(nodes[name].member.address, RunStage(self._pipeline))
        if missing := [name for name, stage in running.items() if stage is None or not stage.address]:
            words = [f" ({stage.trouble.splitlines()[-1]})" for stage in running.values() if stage and stage.trouble]
            raise UnavailableError(f"a stage is starting on {', '.join(missing)}{''.join(words[:1])}")
        addresses = {name: stage.address for name, stage in running.items() if stage is not None}
        for planned in stages:
            name, part = planned.node.name, planned.part
            held = HeldRange(self._model, part.first, part.last, part.embedding, part.head, self._request.dtype)
            self._links.send(nodes[name].member.address, NoteRange(self._pipeline, addresses[name], held))
        for name, view in nodes.items():
            if name not in running and self._stage(view) is not None:
                self._links.send(view.member.address, EndStage(self._pipeline))
        self._given = set(addresses.values())
        return StagePlaces(
            tuple(StageAddress.parse(addresses[stage.node.name]) for stage in stages),
            tuple(stage.part.last for stage in stages),
        )

    def _new_plan(self, views: Sequence[NodeView], nodes: Mapping[str, NodeView]) -> PipelinePlan:
        """Raises UnavailableError while it is better to wait."""
        if len(nodes) < self._min_nodes and self.plan is None:
            raise UnavailableError(f"waiting for nodes: {len(nodes)} of {self._min_nodes} have joined{_why(views)}")
        try:
            plan = self._plan_without_leaving(nodes.values()) or self._plan_over(list(nodes.values()))
        except UsageError as error:
            self._claim_more()
            raise UnavailableError(f"waiting for nodes: {error.message}{_why(views)}", hint=error.hint) from error
        if not _remote(plan):
            raise UsageError(
                "this machine alone is faster than with the nodes of the cluster",
                hint="start the server without the flags of a cluster",
            )
        if self.plan is not None:
            away = [view for view in views if view.name in _names(self.plan) - set(nodes)]
            self._wait_for(away, moves=_moves(self.plan, plan))
        return plan

    def _plan_without_leaving(self, views: Iterable[NodeView]) -> PipelinePlan | None:
        """Return a plan over the nodes that stay; None if they have no room, or if this machine alone would compute."""
        staying = [view for view in views if not _is_leaving(view)]
        with suppress(UsageError):
            plan = self._plan_with_spares(staying) or self._plan_over(staying)
            return plan if _remote(plan) else None
        return None

    def _plan_over(self, views: Sequence[NodeView], taking: Mapping[str, LayerRange] | None = None) -> PipelinePlan:
        """`taking`: ranges taken over from other nodes, by the names of the new nodes."""
        infos = [self._info(view) for view in views]
        taken = [replace(info, held=(taking[info.name],)) if taking and info.name in taking else info for info in infos]
        return make_plan(self._request, [*taken, self._driver], driver=self._driver.name)

    def _plan_with_spares(self, staying: Sequence[NodeView]) -> PipelinePlan | None:
        """Return a plan in which nodes without a range take over the lost ranges, and no other range moves."""
        if (old := self.plan) is None:
            return None
        spares = {view.name: view.report.budget_bytes for view in staying if view.report is not None}
        lost = [stage for stage in _remote(old) if stage.node.name not in spares]
        free = sorted(spares.keys() - _names(old), key=lambda name: spares[name])
        taking: dict[str, LayerRange] = {}
        for stage in sorted(lost, key=lambda stage: stage.num_bytes(old.num_pages)):
            for name in free:
                if name not in taking and spares[name] >= stage.num_bytes(old.num_pages):
                    taking[name] = stage.part
                    break
            else:
                return None
        with suppress(UsageError):
            plan = self._plan_over(staying, taking)
            return None if _moves(old, plan) else plan
        return None

    def _wait_for(self, away: Sequence[NodeView], *, moves: bool) -> None:
        """Raise UnavailableError while absent nodes of the plan may still come back."""
        for view in away:
            lost_s = 0.0 if view.lost_at is None else time.monotonic() - view.lost_at
            patience_s = self._replan_after_s if moves else min(self._replan_after_s, SPARE_AFTER_S)
            if not view.member.is_gone and not _is_leaving(view) and lost_s < patience_s:
                raise UnavailableError(f"node {view.name} is away: {view.trouble or 'the node is silent'}")

    def _info(self, view: NodeView) -> NodeInfo:
        report = view.report
        assert report is not None
        stage = self._stage(view)
        held = None if stage is None else stage.held
        if held is not None and (held.model, held.dtype) != (self._model, self._request.dtype):
            held = None
        return NodeInfo(
            name=view.name,
            budget_bytes=report.budget_bytes,
            bytes_per_s=report.bytes_per_s,
            flops_per_s={dtype: report.flops_per_s[dtype] for dtype in DTYPES if dtype in report.flops_per_s},
            rtt_s=view.rtt_s,
            held=(LayerRange(held.first, held.last, held.embedding, held.head),) if held else (),
        )

    def _stage(self, view: NodeView) -> StageReport | None:
        stages = view.report.stages if view.report is not None else []
        return next((stage for stage in stages if stage.pipeline == self._pipeline), None)

    def _is_usable(self, view: NodeView) -> bool:
        """Return whether a stage can run on the node now. A leaving node keeps its stage."""
        is_there = view.report is not None and view.lost_at is None
        return is_there and (not _is_leaving(view) or self._stage(view) is not None)

    # What the nodes are told.

    def _kill_silent(self) -> None:
        """Kill stages of the last answer that are silent while their daemons answer."""
        for address in self._given - self._ended:
            view = self._daemon_of(address)
            if view is not None and not self._answers(address) and address not in self._ended:
                _log.warning("the stage on %s does not answer: it is started anew", view.name)
                self._links.send(view.member.address, KillStage(self._pipeline, address))

    def _daemon_of(self, address: str) -> NodeView | None:
        """Return the reachable node whose report has the stage at `address`."""
        for view in self._links.nodes():
            stage = self._stage(view)
            if stage is not None and view.lost_at is None and stage.address == address:
                return view
        return None

    def _answers(self, address: str) -> bool:
        """Return whether the stage answers, or is known to be gone."""
        with LinkGroup(self._token, role="node", name="probe", insecure=self._insecure) as group, suppress(AiciError):
            stage = StageAddress.parse(address)
            link = StageLink(group, stage, decode_from_stage, max_body_bytes=0, connect_s=_PROBE_S)
            deadline = time.monotonic() + _PROBE_S
            while time.monotonic() < deadline:
                if link.is_ready(_GLANCE_S) or self._daemon_of(address) is None:
                    return True
        return False

    def _let_leave(self) -> None:
        """End the stage on a leaving node, as soon as other nodes can take the layers. Then the stage is lost,
        and `find` is called."""
        with self._lock:
            views = self._links.nodes()
            for view in views:
                stage = self._stage(view)
                if (
                    _is_leaving(view)
                    and view.lost_at is None
                    and stage is not None
                    and self._plan_without_leaving(filter(self._is_usable, views)) is not None
                ):
                    _log.info("node %s leaves: its layers move", view.name)
                    self._ended.add(stage.address)
                    self._links.send(view.member.address, EndStage(self._pipeline))

    def _tell_plan(self, plan: PipelinePlan) -> None:
        self._members.claim([RoomClaim(name=s.node.name, mib=s.num_mib(plan.num_pages)) for s in _remote(plan)])
        for line in plan.lines():
            _log.info("%s", line)

    def _claim_more(self) -> None:
        """Ask for a further machine with all the missing room: an autoscaler acts upon the request."""
        sizes, dtype = self._request.sizes, self._request.dtype
        pages = self._request.least_pages * self._request.page_size * sizes.token_bytes(sizes.whole, dtype)
        rooms = [view.report.budget_bytes for view in self._links.nodes() if self._is_usable(view) and view.report]
        short = sizes.weight_bytes(sizes.whole, dtype) + pages - sum(rooms) - self._driver.budget_bytes
        self._members.claim([RoomClaim(name=None, mib=max(1, -(-short // _MIB)))])


def _state(view: NodeView) -> str:
    if view.lost_at is not None:
        return "gone" if view.member.is_gone else "away"
    return "leaving" if _is_leaving(view) else "ready"


def _is_leaving(view: NodeView) -> bool:
    return view.report is not None and view.report.is_leaving


def _remote(plan: PipelinePlan) -> tuple[PlannedStage, ...]:
    """Return the stages without the driver's."""
    return plan.stages[:-1]


def _names(plan: PipelinePlan) -> set[str]:
    return {stage.node.name for stage in _remote(plan)}


def _moves(old: PipelinePlan, new: PipelinePlan) -> bool:
    """Return whether a node with a range in both plans gets a different range in the new plan."""
    before = {stage.node.name: stage.part for stage in old.stages}
    return any(before.get(stage.node.name, stage.part) != stage.part for stage in new.stages)


def _why(views: Sequence[NodeView]) -> str:
    """Return why known nodes are absent."""
    away = [f"{view.name}: {view.trouble}" for view in views if view.lost_at is not None and view.trouble]
    return f" ({'; '.join(away)})" if away else ""
