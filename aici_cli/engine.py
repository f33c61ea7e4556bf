"""`aici engine`: an engine for a server on another machine."""

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from aici_base.errors import NotFoundError, UsageError
from aici_cli.output import say
from aici_cli.stage_flags import TOKEN_HELP, place, stage_memory


def engine(
    listen: Annotated[
        str, typer.Option(metavar="tcp://HOST:PORT", help="Where the server connects to; port 0 takes a free port.")
    ] = "tcp://127.0.0.1:0",
    model: Annotated[
        list[str] | None, typer.Option(help="A model on this machine (default: the default model). Repeat for more.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help=TOKEN_HELP)] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="The engine's key, made on first use. With a port in --listen, the address never changes."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for the engine, such as 12GiB (default: the server's part of it)."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: one a core).")] = None,
    name: Annotated[str | None, typer.Option(help="The name for people (default: the machine's name).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption: for private networks that are safe otherwise.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run an engine for `aici serve --engines`, until Ctrl-C or SIGTERM.

    The first line on standard output is the address, tcp://HOST:PORT#KEY. The server decides the model, which must be
    on this machine too. The engine keeps its weights when the server goes, and waits for the next server.
    """
    from aici_engine.cluster.key_file import read_or_create_keys
    from aici_engine.cluster.link import LinkGroup
    from aici_engine.cluster.token import ClusterToken, default_token_path
    from aici_engine.server.remote.engine_host import EngineHost
    from aici_engine.server.telemetry import logs
    from aici_engine.store.resolve import resolve_model
    from aici_runtime import process

    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"--log-level {log_level} is not known", hint="use DEBUG, INFO, WARNING or ERROR")
    form = "text" if sys.stderr.isatty() else "json"
    logs.set_up(level=log_level.upper(), log_format="text" if form == "text" else "json", process="host")
    where = place(listen, flag="--listen")
    memory_bytes = stage_memory(memory)
    folders = [resolve_model(each, say=say) for each in model or []]
    with contextlib.suppress(NotFoundError):
        folders = folders or [resolve_model(None, fetch=False)]
    process.set_name("aici-host")
    process.raise_descriptors()  # connections of strangers take some
    token_path = token_file or default_token_path()
    token, is_new = ClusterToken.read_or_create(token_path)
    if is_new:
        say(f"made a new cluster token: {token_path}; copy the file to the other machines")
    links = LinkGroup(token, role="engine", name=name or socket.gethostname(), insecure=insecure)

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with EngineHost(
            links,
            where,
            folders,
            keys=None if key_file is None else read_or_create_keys(key_file),
            memory_bytes=memory_bytes,
            num_threads=threads,
            log_level=log_level.upper(),
            log_format="text" if form == "text" else "json",
        ) as host:
            print(host.address, flush=True)
            await stop.wait()

    with links:
        asyncio.run(run())
