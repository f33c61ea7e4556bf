"""The messages between a driver and a node daemon.

    driver -> node daemon     AskReport, Ping, RunStage, KillStage, EndStage, NoteRange
    node daemon -> driver     NodeReport, after the greeting, as the answer to each message, and after each change;
                              Pong, as the answer to Ping

A daemon starts a stage by name alone: command line, models and memory are the daemon's own.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from aici_engine.cluster import frames
from aici_engine.cluster.frames import Buffer, Count, HeldRange, Name, Number, Ping, Pong, Refused

MAX_STAGES: Final = 64
"""Of a node. A longer report could not be read."""
PipelineName: TypeAlias = Annotated[str, Meta(max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Without control characters: names are printed on terminals and in logs."""


class AskReport(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="ask"):
    """Answered by a NodeReport."""


class RunStage(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="run"):
    """Keep a stage for this pipeline from now on. A running stage stays unchanged, with all weights.

    `kind`: "engine" keeps the host of a whole engine in the place of a stage (`aici engine`).
    A leaving node, or a node with MAX_STAGES, starts no stage: the report comes without the stage.
    """

    pipeline: PipelineName
    kind: Literal["stage", "engine"] = "stage"


class KillStage(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="kill"):
    """The stage at `address` does not answer: kill its process, and start another. Another address has no effect."""

    pipeline: PipelineName
    address: Name


class EndStage(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="end"):
    """The pipeline does not need the stage on the node any more."""

    pipeline: PipelineName


class NoteRange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="note"):
    """The stage at `address` holds this range. A later driver finds the range in the reports."""

    pipeline: PipelineName
    address: Name
    held: HeldRange


class StageReport(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`address`: of the stage; empty while it starts. `num_starts`: lives of the process so far. `age_s`: of this life.
    `trouble`: the last words of a process with repeated ends."""

    pipeline: PipelineName
    address: Name
    pid: Count
    num_starts: Count
    age_s: float
    held: HeldRange | None = None
    trouble: Annotated[str, Meta(max_length=1 << 14)] = ""


class NodeReport(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="node"):
    """A machine, measured by `aici_engine.cluster.node_info`, and the machine's stages.

    `is_leaving`: the machine is about to leave, and takes no new stages. `ray`: "off", "joining" or "joined".
    """

    name: Name
    free_bytes: Number
    budget_bytes: Number
    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    device: Name
    num_cores: Count
    num_threads: Count
    level: Name
    labels: Mapping[str, str]
    is_leaving: bool
    ray: Name
    stages: Annotated[list[StageReport], Meta(max_length=MAX_STAGES)]


ToNode: TypeAlias = AskReport | Ping | RunStage | KillStage | EndStage | NoteRange
FromNode: TypeAlias = NodeReport | Pong | Refused

decode_to_node: Final[Callable[[Buffer], ToNode]] = frames.decoder(ToNode)
decode_from_node: Final[Callable[[Buffer], FromNode]] = frames.decoder(FromNode)


def timeless(report: NodeReport) -> NodeReport:
    """Return the report without the figures of the moment."""
    return replace(report, stages=[replace(stage, age_s=0.0) for stage in report.stages])
