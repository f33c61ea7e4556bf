"""`aici stage`: a range of layers of a model that runs on several machines."""

import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.output import say
from aici_cli.stage_flags import TOKEN_HELP, place, stage_memory
from aici_engine.config import Device


def stage(
    listen: Annotated[
        str, typer.Option(metavar="tcp://HOST:PORT", help="Where the driver connects to; port 0 takes a free port.")
    ] = "tcp://127.0.0.1:0",
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model on this machine; without it, the driver sends the weights. Repeat for more."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help=TOKEN_HELP)] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="The stage's key, made on first use. With a port in --listen, the address never changes."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for the stage, such as 12GiB (default: 80 % of the free)."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: one a core).")] = None,
    device: Annotated[Device, typer.Option(help="The computing device: cpu, cuda, or auto: the driver's.")] = "auto",
    tp: Annotated[
        int, typer.Option(metavar="K", min=1, help="Tensor parallel: K processes of this machine share the heads.")
    ] = 1,
    name: Annotated[str | None, typer.Option(help="The stage's name for people (default: the machine's name).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption: for private networks that are safe otherwise.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Compute a range of layers for `aici serve --stages`, until Ctrl-C or SIGTERM.

    The first line on standard output is the stage's address, tcp://HOST:PORT#KEY. The stage keeps its weights when the
    driver goes, and waits for the next driver.
    """
    from aici_engine.engine import import_engine
    from aici_engine.server.telemetry import logs
    from aici_engine.store.resolve import resolve_model
    from aici_runtime import process

    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"--log-level {log_level} is not known", hint="use DEBUG, INFO, WARNING or ERROR")
    logs.set_up(level=log_level.upper(), log_format="text" if sys.stderr.isatty() else "json", process="stage")
    where = place(listen, flag="--listen")
    memory_bytes = stage_memory(memory)
    folders = [resolve_model(each, say=say) for each in model or []]
    import_engine()

    from aici_engine.cluster.key_file import read_or_create_keys
    from aici_engine.cluster.link import LinkGroup
    from aici_engine.cluster.stage_loader import StageLoader
    from aici_engine.cluster.stage_process import StageProcess, own_facts
    from aici_engine.cluster.token import ClusterToken, default_token_path
    from aici_engine.model.tensor_store import TensorStore

    process.set_name("aici-stage")
    process.raise_descriptors()  # connections of strangers take some
    token_path = token_file or default_token_path()
    token, is_new = ClusterToken.read_or_create(token_path)
    if is_new:
        say(f"made a new cluster token: {token_path}; copy the file to the other machines")
    links = LinkGroup(token, role="stage", name=name or socket.gethostname(), insecure=insecure)
    facts = own_facts(memory_bytes=memory_bytes, device="cpu" if device == "auto" else device, num_threads=threads)
    loader = StageLoader(
        folders,
        store=TensorStore(),
        device=None if device == "auto" else device,
        num_threads=threads,
        num_ranks=tp,
        memory_bytes=facts.memory_bytes,
    )
    keys = None if key_file is None else read_or_create_keys(key_file)
    with StageProcess(links, where, loader, facts, keys=keys) as running:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: running.stop())
        links.wake_on_signals()
        print(running.address, flush=True)
        running.run()
