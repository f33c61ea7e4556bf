"""`aici cluster`: one model over several machines."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aici_base.errors import UsageError
from aici_cli.output import print_json, say
from aici_cli.tables import print_table
from aici_engine.config import DTYPE_HELP, DTYPES

if TYPE_CHECKING:
    from aici_engine.cluster.headers import ModelSizes
    from aici_engine.cluster.plan import NodeInfo, PipelinePlan
    from aici_engine.config import Dtype

app = typer.Typer(help="Run one model over several machines.", no_args_is_help=True, rich_markup_mode=None)

_BATCHES: Final = (1, 16)
_COLUMNS: Final = ("node", "layers", "also", "weights", "cache", "scratch", "of", "ms/step")
_SYNTAX: Final = "NAME=12GiB:25GB/s, and if known :0.3ms (round trip to the driver) and :200GFLOP/s"
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "memory": {"B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40},
    "rate": {"MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12},
    "round trip": {"us": 1e-6, "ms": 1e-3, "s": 1.0},
    "compute": {"GFLOP/s": 1e9, "TFLOP/s": 1e12},
}


@app.command()
def plan(
    model: Annotated[str, typer.Argument(help="A name, folder, .gguf file or hub repository.")],
    node: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=MEMORY:RATE",
            help=f"A machine: {_SYNTAX}. MEMORY is for weights and cache. Repeat per machine.",
        ),
    ],
    driver: Annotated[str | None, typer.Option(help="The node with the server (default: the last --node).")] = None,
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    context: Annotated[int, typer.Option(min=1, help="Tokens of a request, prompt and answer together.")] = 4096,
    sequences: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Divide the layers of a model over machines, and print memory and expected speed. No machine is contacted.

    Reads only the headers of the model's files. Exits with 2 if the model does not fit, and says by how much.
    """
    from aici_engine.cluster.plan import PlanRequest, make_plan

    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is not known", hint=f"use one of {', '.join(DTYPES)}")
    nodes = [parse_node(text) for text in node]
    sizes, meant = _sizes(model, dtype)
    pages = -(-min(context, sizes.context) // (page_size := 16))
    request = PlanRequest(
        sizes=sizes,
        dtype=meant,
        num_pages=pages * sequences,
        min_pages=pages,
        page_size=page_size,
        max_num_seqs=max(32, sequences),
    )
    found = make_plan(request, nodes, driver=driver or nodes[-1].name)
    if json:
        print_json(_document(found))
    else:
        _print_plan(found, dtype, assumed=any(not each.flops_per_s for each in nodes))


@app.command()
def status(
    server: Annotated[
        str | None,
        typer.Option(
            envvar="AICI_API_BASE",
            help="The URL of the server, with a key behind #key= (default: http://127.0.0.1:4242).",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and show every change.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; with --watch, a line per change.")] = False,
) -> None:
    """Show the pipeline of a server: stages, ranges, epoch, pages, times, interruptions."""
    from aici.remote.address import DEFAULT_URL
    from aici.remote.connection import Server
    from aici_cli.cluster_status import show

    show(Server(server or DEFAULT_URL), watch=watch, json=json)


def parse_node(text: str) -> "NodeInfo":
    """Read `NAME=12GiB:25GB/s[:RTT][:FLOPs]`. The units tell the values apart. Raises UsageError."""
    from aici_engine.cluster.plan import NodeInfo

    name, equals, rest = text.partition("=")
    values: dict[str, float] = {}
    for part in rest.split(":"):
        found = re.fullmatch(r"([0-9.]+)\s*([A-Za-z/]+)", part.strip())
        kind = next((kind for kind, units in _UNITS.items() if found and found[2] in units), None)
        if found is None or kind is None or kind in values or found[1].count(".") > 1 or found[1] == ".":
            raise UsageError(f"--node {text!r}: {part!r} is no value with a unit", hint=f"write {_SYNTAX}")
        values[kind] = float(found[1]) * _UNITS[kind][found[2]]
    if not name or not equals or not values.get("memory") or not values.get("rate"):
        raise UsageError(f"--node {text!r} needs a name, memory and a memory rate", hint=f"write {_SYNTAX}")
    compute = values.get("compute")
    return NodeInfo(
        name=name,
        budget_bytes=int(values["memory"]),
        bytes_per_s=values["rate"],
        flops_per_s=dict.fromkeys(DTYPES, compute) if compute else {},
        rtt_s=values.get("round trip", 0.0),
    )


def _sizes(model: str, dtype: str) -> "tuple[ModelSizes, Dtype]":
    """Return the sizes of the model's parts, and the format that `dtype` means."""

    from aici_engine.cluster.headers import ModelSizes
    from aici_engine.store.resolve import resolve_model

    path = Path(model).expanduser()
    sizes = ModelSizes.of(path if path.is_file() else resolve_model(model, fetch=False))
    return sizes, next(each for each in DTYPES if each == (sizes.dtype if dtype == "auto" else dtype))


def _document(plan: "PipelinePlan") -> dict[str, Any]:
    request = plan.request
    return {
        "model": request.sizes.name,
        "dtype": request.dtype,
        "num_pages": plan.num_pages,
        "page_size": request.page_size,
        "stages": [
            {
                "node": stage.node.name,
                "first": stage.part.first,
                "last": stage.part.last,
                "embedding": stage.part.embedding,
                "head": stage.part.head,
                "weight_bytes": stage.weight_bytes,
                "cache_bytes": stage.page_bytes * plan.num_pages,
                "work_bytes": stage.work_bytes,
                "budget_bytes": stage.node.budget_bytes,
                "read_s": stage.read_s,
            }
            for stage in plan.stages
        ],
        "spares": [node.name for node in plan.spares],
        "hops_s": plan.hops_s,
        "speed": [plan.speed(batch)._asdict() for batch in _BATCHES],
        "alone": plan.alone
        and {
            "node": plan.alone.node.name,
            "speed": [alone._asdict() for batch in _BATCHES if (alone := plan.speed_alone(batch))],
        },
    }


def _print_plan(plan: "PipelinePlan", dtype: str, *, assumed: bool) -> None:
    request = plan.request
    print_table(_COLUMNS, _rows(plan), num_left=3)
    tokens = plan.num_pages * request.page_size
    print(f"\n{request.dtype} weights; room for {tokens} tokens in {plan.num_pages} pages of {request.page_size}")
    if plan.num_pages < request.num_pages:
        print(f"the wanted {request.num_pages * request.page_size} tokens do not fit: fewer requests run at a time")
    for batch in _BATCHES:
        speed, alone = plan.speed(batch), plan.speed_alone(batch)
        line = f"batch {batch}: {speed.step_s * 1000:.1f} ms a step, {speed.tokens_per_s:.0f} tokens/s"
        if batch > 1 and len(plan.stages) > 1:
            line += f"; {speed.tokens_per_s_in_flights:.0f} tokens/s with several steps in flight"
        if alone and plan.alone and len(plan.stages) > 1:
            line += f" (node {plan.alone.node.name} alone: {alone.tokens_per_s:.0f} tokens/s)"
        print(line)
    if len(plan.stages) > 1:
        print("A single request gains no speed from more nodes: it passes one node after the other.")
    if assumed:
        print("Larger batches: estimated from the memory rate; give GFLOP/s of the nodes for a better estimate.")
    if dtype == "auto" and request.dtype == "float32":
        print("dtype auto: the first start may find a smaller format without loss; --dtype int4 plans for int4.")


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB" if num_bytes >= 1 << 30 else f"{num_bytes / (1 << 20):.0f} MiB"


@app.command()
def token(
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token (default: cluster-token in the folder of settings).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the file of the cluster's token, and make the file if there is none. The token itself is not printed.

    Machines with the same token are one cluster. Copy the file by a safe way, such as scp.
    """
    from aici_engine.cluster.token import ClusterToken, default_token_path

    path = token_file or default_token_path()
    found, is_new = ClusterToken.read_or_create(path)
    if json:
        print_json({"path": str(path), "cluster": found.cluster, "is_new": is_new})
        return
    print(path)
    say(f"{'made a new token' if is_new else 'the token'} of cluster {found.cluster}")


def _rows(plan: "PipelinePlan") -> Iterator[tuple[str, ...]]:
    """Yield the texts of `_COLUMNS` for every stage, and the names of spare nodes."""
    for stage in plan.stages:
        part = stage.part
        layers = f"{part.first}-{part.last - 1}" if part.num_layers else "none"
        also = " ".join(["embedding"] * part.embedding + ["head"] * part.head)
        sizes = (stage.weight_bytes, stage.page_bytes * plan.num_pages, stage.work_bytes, stage.node.budget_bytes)
        yield stage.node.name, layers, also, *map(_gib, sizes), f"{stage.read_s * 1000:.1f}"
    for node in plan.spares:
        yield node.name, "spare"
