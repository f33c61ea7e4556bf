"""`aici node`: this machine as a part of a cluster."""

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from aici_base.errors import UnavailableError, UsageError
from aici_cli.output import print_json, say

app = typer.Typer(help="Make this machine a part of a cluster.", no_args_is_help=True, rich_markup_mode=None)

TokenFile = Annotated[
    Path | None,
    typer.Option(help="The file of the cluster's token (default: cluster-token in the folder of settings)."),
]
Name = Annotated[str | None, typer.Option(help="The node's name (default: the machine's).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def join(
    head: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]",
            help="The cluster's address, as `aici serve --cluster` prints it. Without it, the node waits for servers "
            "that know its own address (`aici serve --nodes`).",
        ),
    ] = None,
    token_file: TokenFile = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model on this machine, whose files stages read; others are sent here. Repeat for more."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for stages, such as 12GiB (default: 80 % of the free).")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of a stage (default: one a core).")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label of the node; repeat for more.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where servers connect to (default: any free port).")
    ] = None,
    name: Name = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Find the cluster on the local network (`aici serve --announce`).")
    ] = False,
) -> None:
    """Join a cluster, and keep stages on this machine until Ctrl-C, SIGTERM or `aici node leave`.

    The first line on standard output is the node's address.
    """
    from aici_cli.stage_flags import place, stage_memory
    from aici_engine.cluster import ray_start
    from aici_engine.cluster.control_socket import socket_path
    from aici_engine.cluster.discovery import discover as find_cluster
    from aici_engine.cluster.key_file import read_or_create_keys
    from aici_engine.cluster.node_daemon import NodeDaemon, NodeSettings
    from aici_engine.cluster.node_info import process_bytes
    from aici_engine.cluster.node_settings import default_name, host_towards, key_file, measure
    from aici_engine.cluster.ray_labels import to_labels
    from aici_engine.cluster.token import ClusterToken, default_token_path
    from aici_engine.store.resolve import resolve_model
    from aici_runtime import process

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if discover and head is not None:
        raise UsageError("--discover finds the cluster's address: give no HOST:PORT with it")
    if head is not None:
        place(head, flag="the cluster's address")
    memory_bytes = stage_memory(memory)
    path = token_file or default_token_path()
    token = ClusterToken.read(path)
    for each in model or []:
        resolve_model(each, say=say)  # a name that is wrong would stop every stage
    if discover:
        say(f"looking for cluster {token.cluster}")
        head = find_cluster(token)
    name = name or default_name()
    labels = dict(_label(text) for text in label or [])
    to_labels(name, "", labels)  # refuses what Ray does not take
    if head is not None:
        ray_start.check_installed()
        if os.geteuid() == 0:
            say("Ray runs as root here, and whoever has the cluster's token may run programs as this user")
    host = "127.0.0.1" if head is None else host_towards(head)
    where = place(listen or _endpoint(host), flag="--listen")
    say(f"measuring {name}")
    machine = measure(name, memory_bytes=memory_bytes, num_threads=threads, labels=labels)
    if not machine.budget_bytes:
        raise UnavailableError(
            f"no memory is left for stages: {machine.free_bytes >> 20} MiB are free, and the process of a stage takes "
            f"about {process_bytes() >> 20} MiB",
            hint="end other programs on this machine",
        )
    command = partial(
        _command,
        where.host,
        token_file=path,
        models=model or [],
        memory_bytes=machine.budget_bytes + process_bytes(),
        threads=threads,
        name=name,
    )
    settings = NodeSettings(
        listen=where,
        keys=read_or_create_keys(key_file(name)),
        token=token,
        machine=machine,
        stage_command=command("stage"),
        engine_command=command("engine"),
        control=socket_path(name),
        head=head,
    )
    process.raise_descriptors()  # connections of strangers take some
    with NodeDaemon(settings) as daemon:
        print(daemon.address, flush=True)
        say(f"node {name}: {machine.budget_bytes / 2**30:.1f} GiB at {machine.bytes_per_s / 1e9:.1f} GB/s for stages")
        daemon.wake_on_signals()
        daemon.run()


@app.command()
def status(name: Name = None, json: Json = False) -> None:
    """Print the state of this machine's node daemon and its stages."""
    from aici_engine.cluster.control_socket import ask, socket_path
    from aici_engine.cluster.node_settings import default_name

    (report,) = ask(socket_path(name or default_name()), "status")
    if json:
        print_json(report)
        return
    state = "leaving" if report["is_leaving"] else {"off": "alone"}.get(report["ray"], report["ray"])
    print(f"node {report['name']} at {report['address'].partition('#')[0]}: {state}")
    if report["trouble"]:
        say(report["trouble"])
    print(f"memory for stages: {report['budget_bytes'] / 2**30:.1f} GiB")
    for stage in report["stages"]:
        held = stage["held"]
        layers = f"layers {held['first']} to {held['last'] - 1}" if held else "no layers noted"
        running = f"process {stage['pid']} for {stage['age_s']:.0f} s" if stage["address"] else "starting"
        print(f"stage of {stage['pipeline']}: {layers}, {running}, start {stage['num_starts']}")
        if stage["trouble"]:
            say(stage["trouble"])


@app.command()
def drain(
    name: Name = None,
    back: Annotated[bool, typer.Option("--back", help="Take stages again.")] = False,
) -> None:
    """Take no new stages, and wait until servers have moved the stages that run here to other nodes.

    A server moves a stage as soon as other nodes have room for it. The daemon goes on, and keeps its place.
    """
    _ask_and_wait("undrain" if back else "drain", name)


@app.command()
def leave(
    name: Name = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait: servers lose the stages that run here.")] = False,
) -> None:
    """Drain this machine, then end its node daemon."""
    _ask_and_wait("leave now" if now else "leave", name)


def _ask_and_wait(command: str, name: str | None) -> None:
    from aici_engine.cluster.control_socket import ask, socket_path
    from aici_engine.cluster.node_settings import default_name

    for answer in ask(socket_path(name or default_name()), command):
        if answer["stages"] and command in ("drain", "leave"):
            num_stages = answer["stages"]
            say(f"waiting for {num_stages} {'stage' if num_stages == 1 else 'stages'} to move to other nodes")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--label {text!r} has no value", hint="write --label KEY=VALUE")
    return key, value


def _endpoint(host: str) -> str:
    """Return an address with any free port."""
    return f"tcp://[{host}]:0" if ":" in host else f"tcp://{host}:0"


def _command(
    host: str, part: str, *, token_file: Path, models: list[str], memory_bytes: int, threads: int | None, name: str
) -> list[str]:
    command = [sys.executable, "-P", "-m", "aici_cli", part, "--listen", _endpoint(host), "--name", name]
    command += ["--token-file", str(token_file), "--memory", f"{memory_bytes}B"]
    command += [f"--threads={threads}"] * (threads is not None)
    return command + [part for model in models for part in ("--model", model)]
