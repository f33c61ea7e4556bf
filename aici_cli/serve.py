"""`aici serve`: one model for many clients."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.errors import NotFoundError, UsageError
from aici_engine.config import DEFAULT_DTYPE, DEVICE_HELP, DTYPE_HELP, Device, Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)


def serve(
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one, and says which.")] = 4242,
    name: Annotated[str | None, typer.Option(help="What clients call the model (default: its folder's name).")] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name that clients may use; several times.")] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="Keys, and what each may do; without it all may.")] = None,
    controllers: Annotated[
        Path | None, typer.Option(help="A folder of .wasm controllers, served under their names.")
    ] = None,
    max_queue: Annotated[int, typer.Option(min=0, help="Sequences that may wait; more are refused.")] = 256,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Sequences that run at a time.")] = 32,
    max_forks: Annotated[int, typer.Option(min=1, max=256, help="Sequences that a controller may make of one.")] = 16,
    max_batch_tokens: Annotated[int, typer.Option(min=2, help="Tokens of one forward pass.")] = 512,
    prefill_slowdown: Annotated[
        float, typer.Option(min=1, help="How many times as long a step may take for prompts, beside answers.")
    ] = 4.0,
    max_context: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sequence, if fewer than the model's.")
    ] = None,
    max_body_mib: Annotated[int, typer.Option(min=1, help="The largest request.")] = 32,
    request_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds for one request, waiting included.")
    ] = 600.0,
    drain_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds that running requests get at the end.")
    ] = 30.0,
    memory_fraction: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="The most of the memory available now that the cache may take.")
    ] = 0.4,
    prefix_cache: Annotated[
        bool, typer.Option(help="Compute once what several requests, or the turns of a chat, begin with.")
    ] = True,
    dtype: Annotated[Dtype, typer.Option(help=DTYPE_HELP)] = DEFAULT_DTYPE,
    device: Annotated[Device, typer.Option(help=DEVICE_HELP)] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: torch's choice).")] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A web page's origin that may call; several times.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    log_format: Annotated[
        str | None, typer.Option(help="json or text (default: text on a terminal, else json).")
    ] = None,
) -> None:
    """Serve a model: OpenAI, Anthropic, AICI REST and LMTP, until Ctrl-C or SIGTERM."""
    from aici_engine.config import EngineConfig
    from aici_engine.server.api.serve import serve as run_server
    from aici_engine.server.config import RequestLimits, ServerConfig
    from aici_engine.server.telemetry import logs
    from aici_engine.store.resolve import resolve_model

    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"--log-level {log_level} is not known", hint="use DEBUG, INFO, WARNING or ERROR")
    look = log_format or ("text" if sys.stderr.isatty() else "json")
    if look not in ("json", "text"):
        raise UsageError(f"--log-format {look} is not known", hint="use json or text")
    logs.set_up(level=log_level.upper(), log_format="json" if look == "json" else "text", process="api")
    _log.setLevel(logging.INFO)  # where the server is must be told at every level
    model_dir = resolve_model(model, say=lambda line: _log.info("%s", line))
    config = ServerConfig(
        engine=EngineConfig(
            model_dir=model_dir,
            dtype=dtype,
            device=device,
            max_num_seqs=max_num_seqs,
            max_batch_tokens=max_batch_tokens,
            prefill_slowdown=prefill_slowdown,
            max_context=max_context,
            num_threads=threads,
            memory_fraction=memory_fraction,
            prefix_cache=prefix_cache,
        ),
        name=name or model_dir.name,
        aliases=tuple(alias or ()),
        host=host,
        port=port,
        api_key_file=api_key_file,
        max_queue=max_queue,
        max_forks=max_forks,
        limits=RequestLimits(max_body_bytes=max_body_mib << 20, request_timeout_s=request_timeout),
        drain_timeout_s=drain_timeout,
        cors_origins=tuple(cors_origin or ()),
        modules=_modules(controllers),
        log_level=log_level.upper(),
        log_format="json" if look == "json" else "text",
    )
    _log.info("loading %s", config.name)
    run_server(config, started=lambda url: _log.info("serving %s at %s", config.name, url))


def _modules(folder: Path | None) -> "Mapping[str, Path]":
    """Tag → file: what ships, and what `folder` holds."""
    from aici_controllers.catalog import guest_names, guest_path
    from aici_runtime.modules.tags import is_tag

    modules = {guest: guest_path(guest) for guest in guest_names()}
    if folder is None:
        return modules
    files = sorted(folder.glob("*.wasm")) if folder.is_dir() else []
    if not files:
        raise NotFoundError(f"--controllers {folder}: no .wasm file there", hint="name a folder that holds some")
    for file in files:
        if file.stem in modules:
            raise UsageError(f"{file}: a controller that ships has this name", hint="give it another one")
        if not is_tag(file.stem):
            raise UsageError(f"{file} cannot be a tag: a letter, then letters, digits, `_`, `-` or `.`")
        modules[file.stem] = file
    return modules
