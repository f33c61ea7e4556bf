"""The process of `aici node join`: starts and keeps the stages of one machine, and keeps the machine in the cluster.

The daemon computes nothing and opens no connections. Drivers connect to it and ask for stages; a stage outlives its
driver, every failure of Ray and a cut network, and ends with the daemon.
"""

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from aici_base.errors import AiciError
from aici_engine.cluster import ray_labels, ray_start
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.control_socket import ControlServer
from aici_engine.cluster.frames import HeldRange, Ping, Pong
from aici_engine.cluster.kept_process import KeptProcess
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.link_server import KeyPair, Peer, PeerFrame, PeerJoined, PeerLost, StageServer
from aici_engine.cluster.node_messages import (
    MAX_STAGES,
    EndStage,
    KillStage,
    NodeReport,
    NoteRange,
    RunStage,
    StageReport,
    ToNode,
    decode_to_node,
    timeless,
)
from aici_engine.cluster.token import ClusterToken
from aici_engine.private_folder import PrivateFolder

STAGE_READY_S: Final = 120.0
_END_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """`listen`: without a key. `head`: HOST:PORT of the cluster's Ray; None without Ray. `stage_command`: starts a
    stage, which prints its address as the first line. `engine_command`: the same for the host of an engine.
    `machine`: a report without stages, as measured."""

    listen: StageAddress
    keys: KeyPair
    token: ClusterToken
    machine: NodeReport
    stage_command: list[str]
    control: Path
    head: str | None = None
    insecure: bool = False
    engine_command: list[str] = field(default_factory=list)
    stage_environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _KeptStage:
    process: KeptProcess
    held: HeldRange | None = None
    held_start: int = 0
    """The life of the process in which the range was noted."""

    def report(self, pipeline: str) -> StageReport:
        process = self.process
        return StageReport(
            pipeline=pipeline,
            address=process.answer or "",
            pid=process.pid or 0,
            num_starts=process.num_starts,
            age_s=round(process.age_s, 1),
            held=self.held if process.num_starts == self.held_start else None,
            trouble=process.last_words()[-4000:] if process.answer is None and process.num_starts > 1 else "",
        )


class NodeDaemon:
    """Runs on one thread, which must be the process's main thread. A context manager; leaving it ends all children."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._stages: dict[str, _KeptStage] = {}
        self._is_leaving = False
        self._stopping = False
        self._peers: set[Peer] = set()
        self._told: NodeReport | None = None
        self._watched: set[int] = set()
        with contextlib.ExitStack() as stack:
            self._group = stack.enter_context(
                LinkGroup(settings.token, role="node", name=settings.machine.name, insecure=settings.insecure)
            )
            self._server = stack.enter_context(
                StageServer(self._group, settings.listen, decode_to_node, max_body_bytes=0, keys=settings.keys)
            )
            self._control = stack.enter_context(ControlServer(settings.control, self._obey))
            self._ray: KeptProcess | None = None
            self._ray_told = self._ray_trouble = ""
            if settings.head is not None:
                self._ray = self._join(stack.enter_context(ray_start.ray_folder()), settings.head)
            stack.callback(self._end_children)
            self._stack = stack.pop_all()

    @property
    def address(self) -> StageAddress:
        """Where drivers connect to."""
        return self._server.address

    def wake_on_signals(self) -> None:
        """See LinkGroup."""
        self._group.wake_on_signals()

    def run(self) -> None:
        """Serve until somebody on this machine asks the node to leave, or a signal's handler raises."""
        while not self._stopping:
            self._turn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _turn(self) -> None:
        self._watch_fds()
        deadlines = [process.deadline for process in self._processes() if process.deadline is not None]
        wait_s = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        self._group.wait(wait_s)
        for process in self._processes():
            process.advance()
        while (event := self._server.receive(0)) is not None:
            match event:
                case PeerJoined(peer):
                    self._peers.add(peer)
                    self._server.send(peer, self._report())
                case PeerLost(peer):
                    self._peers.discard(peer)
                case PeerFrame(peer, Ping(number)):
                    self._server.send(peer, Pong(number))
                case PeerFrame(peer, message):
                    self._take(message)
                    self._server.send(peer, self._report())
        self._note_ray()
        self._control.advance()
        self._tell_changes()

    def _take(self, message: ToNode) -> None:
        match message:
            case RunStage(pipeline, kind):
                if pipeline in self._stages or self._is_leaving:
                    return
                if len(self._stages) == MAX_STAGES:
                    _log.warning("a further stage is not started: %d stages run here", MAX_STAGES)
                else:
                    _log.info("starting %s of %s", "a stage" if kind == "stage" else "an engine", pipeline)
                    command = self._settings.stage_command if kind == "stage" else self._settings.engine_command
                    self._stages[pipeline] = _KeptStage(self._stage_process(command))
            case KillStage(pipeline, address):
                stage = self._stages.get(pipeline)
                if stage is not None and stage.process.answer == address:
                    _log.warning("the stage of %s does not answer: killed", pipeline)
                    stage.process.kill()
            case EndStage(pipeline):
                if (stage := self._stages.pop(pipeline, None)) is not None:
                    _log.info("ending the stage of %s", pipeline)
                    stage.process.end(_END_S)
            case NoteRange(pipeline, address, held):
                stage = self._stages.get(pipeline)
                if stage is not None and stage.process.answer == address:
                    stage.held, stage.held_start = held, stage.process.num_starts

    def _stage_process(self, command: list[str]) -> KeptProcess:
        process = KeptProcess(
            command,
            listen=lambda line: line if line.startswith("tcp://") else None,
            ready_timeout_s=STAGE_READY_S,
            environment=self._settings.stage_environment,
        )
        process.advance()
        return process

    def _join(self, folder: PrivateFolder, head: str) -> KeptProcess:
        machine = self._settings.machine
        return ray_start.node(
            folder,
            self._settings.token.ray_token(),
            head_address=head,
            host=self.address.host,
            mib=machine.budget_bytes >> 20,
            labels=ray_labels.to_labels(machine.name, str(self.address), machine.labels),
        )

    def _note_ray(self) -> None:
        """Log whether the machine is in the cluster, once per change."""
        ray, head = self._ray, self._settings.head
        if ray is None or (ray.pid is not None and ray.answer is None) or not (ray.num_starts or ray.is_put_off):
            return
        if ray.answer is not None:
            told, self._ray_trouble = f"joined the cluster at {head}", ""
        else:
            why = "nobody listens there" if ray.is_put_off else ray_start.why_not(ray.last_words())
            told = self._ray_trouble = f"the cluster at {head} is not joined yet: {why}; the node keeps trying"
        if told != self._ray_told:
            self._ray_told = told
            _log.info("%s", told)

    def _report(self) -> NodeReport:
        ray = "off" if self._ray is None else "joining" if self._ray.answer is None else "joined"
        stages = [stage.report(pipeline) for pipeline, stage in self._stages.items()]
        return msgspec.structs.replace(self._settings.machine, is_leaving=self._is_leaving, ray=ray, stages=stages)

    def _tell_changes(self) -> None:
        report = self._report()
        if (told := timeless(report)) != self._told:
            self._told = told
            for peer in self._peers:
                self._server.send(peer, report)

    def _obey(self, command: str) -> tuple[str, bool]:
        """Answer a command of this machine's user. Return a line, and whether it is the last."""
        match command:
            case "status":
                report = {**_as_document(self._report()), "trouble": self._ray_trouble}
                return json.dumps({"address": str(self.address), **report}), True
            case "drain" | "leave":
                self._is_leaving = True
                if not self._stages:
                    self._stopping = command == "leave"
                    return json.dumps({"stages": 0}), True
                return json.dumps({"stages": len(self._stages)}), False
            case "leave now":
                self._stopping = True
                return json.dumps({"stages": len(self._stages)}), True
            case "undrain":
                self._is_leaving = False
                return json.dumps({"stages": len(self._stages)}), True
            case _:
                raise AiciError(f"the node does not know {command!r}", hint="use the same version of aici")

    def _processes(self) -> list[KeptProcess]:
        stages = [stage.process for stage in self._stages.values()]
        return stages if self._ray is None else [self._ray, *stages]

    def _watch_fds(self) -> None:
        """Let the group's `wait` look at the children and at the users of this machine."""
        fds = {fd for process in self._processes() for fd in process.fds} | set(self._control.fds)
        for fd in self._watched - fds:
            self._group.poller.unregister(fd)
        for fd in fds:
            self._group.poller.register(fd)
        self._watched = fds

    def _end_children(self) -> None:
        for process in self._processes():
            process.end(_END_S)


def _as_document(report: NodeReport) -> dict[str, Any]:
    stages = []
    for stage in report.stages:
        held = stage.held and {"first": stage.held.first, "last": stage.held.last, "embedding": stage.held.embedding}
        stages.append({**msgspec.structs.asdict(stage), "held": held})
    return {**msgspec.structs.asdict(report), "stages": stages}
