"""`aici serve`: models for many clients."""

import contextlib
import logging
import os
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.cache_files import default_cache_dir
from aici_base.errors import AiciError, NotFoundError, UsageError
from aici_cli.replica_flags import ENGINES_HELP, PIN_HELP, REPLICAS_HELP, replica_count, replica_places
from aici_cli.served_models import ALIAS_HELP, LORA_HELP, MODEL_HELP, LoadTime, adapters, named_models
from aici_cli.sizes import parse_bytes
from aici_cli.stage_flags import (
    CUTS_HELP,
    DEPTH_HELP,
    STAGES_HELP,
    TOKEN_HELP,
    layer_cuts,
    place,
    stage_addresses,
    stage_memory,
)
from aici_cli.vllm_flags import ARGS_HELP, ENGINE_HELP, PYTHON_HELP, EngineName, vllm_settings
from aici_engine.config import (
    DEFAULT_DTYPE,
    DEFAULT_SPECULATION,
    DEVICE_HELP,
    DRAFT_DTYPE_HELP,
    DRAFT_MODEL_HELP,
    DTYPE_HELP,
    KV_CACHE_DTYPE_HELP,
    SPECULATE_HELP,
    Device,
    Dtype,
    KVCacheDtype,
    Speculation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CLUSTER_PORT = 4243
_FAR_AWAY = "192.0.2.1:9"  # nobody's address: the way there is the default route

_log = logging.getLogger(__name__)


def serve(
    model: Annotated[list[str] | None, typer.Option(metavar="[NAME=]MODEL", help=MODEL_HELP)] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every address.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free port and prints the number.")
    ] = 4242,
    share_port: Annotated[
        bool,
        typer.Option("--share-port", help="Listen together with other servers of this user on the address and port."),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="The only model's name for clients (default: the folder's name).")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(metavar="ALIAS[=NAME]", help=ALIAS_HELP)] = None,
    lora: Annotated[list[str] | None, typer.Option(metavar="NAME=FOLDER", help=LORA_HELP)] = None,
    load: Annotated[
        LoadTime, typer.Option(help="When models are loaded: at the start, or on-demand: by the first request.")
    ] = "start",
    unload_after: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Unload a model that is not used for so long.")
    ] = None,
    models_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for the weights and caches of all models, such as 12GiB: idle models are unloaded for others.",
        ),
    ] = None,
    load_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a request waits for its model.")] = 300.0,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="A file of API keys and their permissions; without the file, everybody may do everything."),
    ] = None,
    limits_file: Annotated[
        Path | None,
        typer.Option(
            help="Count the limits of API keys in this file, with all servers of this machine that name the file."
        ),
    ] = None,
    controllers: Annotated[
        Path | None, typer.Option(help="A folder of .wasm controllers, served under the file names.")
    ] = None,
    max_queue: Annotated[
        int, typer.Option(min=0, help="Number of waiting sequences; further requests are refused.")
    ] = 256,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Number of sequences that run at a time.")] = 32,
    max_forks: Annotated[
        int, typer.Option(min=1, max=256, help="Forks that a controller may make, the first sequence included.")
    ] = 16,
    spare_engine: Annotated[
        bool,
        typer.Option(
            "--spare-engine", help="Keep a second engine loaded for each model, which takes over when the first dies."
        ),
    ] = False,
    replicas: Annotated[str, typer.Option(metavar="N|A:B", help=REPLICAS_HELP)] = "1",
    engines: Annotated[str | None, typer.Option(metavar="ADDRESS,...", help=ENGINES_HELP)] = None,
    scale_down_after: Annotated[
        float, typer.Option(min=0.001, help="With --replicas A:B: seconds with an idle replica until it ends.")
    ] = 15.0,
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help=PIN_HELP)] = True,
    max_batch_tokens: Annotated[int, typer.Option(min=2, help="Tokens of one forward pass.")] = 512,
    prefill_slowdown: Annotated[
        float, typer.Option(min=1, help="While answers are generated, prompts may make a step this many times as long.")
    ] = 4.0,
    max_context: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sequence, if fewer than the model's.")
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(min=1, help="Connections at a time (default: as many as the limit of open files leaves)."),
    ] = None,
    max_body_mib: Annotated[int, typer.Option(min=1, help="The largest request body in MiB.")] = 8,
    request_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request, waiting included.")] = 600.0,
    drain_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds for running requests to end at shutdown.")
    ] = 30.0,
    tool_syntax: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How the model writes tool calls: auto (as its chat template), generic, hermes, ..."
        ),
    ] = "auto",
    reasoning_parser: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Tags around the model's thoughts: auto (as its chat template), none, qwen3, ..."
        ),
    ] = "auto",
    responses_file: Annotated[
        Path | None,
        typer.Option(help="A file that keeps responses of /v1/responses (default: responses.db in the cache folder)."),
    ] = None,
    responses_days: Annotated[
        float, typer.Option(min=0.001, help="Days that a response is kept after its last use.")
    ] = 30.0,
    batches_file: Annotated[
        Path | None,
        typer.Option(
            help="A file that keeps files and batches (default: batches-NAME.db in the cache folder, NAME the model's)."
        ),
    ] = None,
    batches_days: Annotated[
        float, typer.Option(min=0.001, help="Days that a file, or a batch that has ended, is kept.")
    ] = 30.0,
    memory_fraction: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="The cache's largest share of the memory available at the start.")
    ] = 0.4,
    prefix_cache: Annotated[
        bool, typer.Option(help="Share computed beginnings between requests and turns of a chat.")
    ] = True,
    speculate: Annotated[Speculation, typer.Option(help=SPECULATE_HELP)] = DEFAULT_SPECULATION,
    draft_model: Annotated[str | None, typer.Option(metavar="NAME|FOLDER", help=DRAFT_MODEL_HELP)] = None,
    draft_dtype: Annotated[Dtype | None, typer.Option(help=DRAFT_DTYPE_HELP)] = None,
    dtype: Annotated[Dtype, typer.Option(help=DTYPE_HELP)] = DEFAULT_DTYPE,
    kv_cache_dtype: Annotated[KVCacheDtype, typer.Option(help=KV_CACHE_DTYPE_HELP)] = "auto",
    device: Annotated[Device, typer.Option(help=DEVICE_HELP)] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a model, divided among its replicas (default: one a core).")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help=ENGINE_HELP)] = "native",
    engine_python: Annotated[Path | None, typer.Option(metavar="PATH", help=PYTHON_HELP)] = None,
    engine_args: Annotated[str | None, typer.Option(metavar="FLAGS", help=ARGS_HELP)] = None,
    stages: Annotated[str | None, typer.Option(metavar="ADDRESS,...", help=STAGES_HELP)] = None,
    cuts: Annotated[str | None, typer.Option(metavar="LAYER,...", help=CUTS_HELP)] = None,
    depth: Annotated[int | None, typer.Option(min=1, help=DEPTH_HELP)] = None,
    replay_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds that requests wait for a lost stage, and are then continued.")
    ] = 30.0,
    token_file: Annotated[Path | None, typer.Option(help=TOKEN_HELP)] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Divide the model over the machines that join (`aici node join`).")
    ] = False,
    cluster_address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where machines join (default: this machine's address, port 4243)."),
    ] = None,
    announce: Annotated[
        bool, typer.Option("--announce", help="Let machines find the cluster on the local network (mDNS).")
    ] = False,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS,...", help="Divide the model over these nodes, without Ray; `aici node join` prints them."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="This machine's part of a divided model, such as 12GiB (default: 80 % of the free)."
        ),
    ] = None,
    min_nodes: Annotated[int, typer.Option(min=1, help="Nodes to wait for, besides this machine.")] = 1,
    replan_after: Annotated[
        float, typer.Option(min=0, help="A node that is away for so many seconds loses its layers to others.")
    ] = 60.0,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="The origin of a web page that may call; repeat for more origins.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Without API keys: another host name of this machine, or * for any; repeat for more."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="Serve HTTPS: a PEM file of the certificate and those that sign it; renewed files are used."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="A PEM file of the certificate's key (default: in the file of the certificate).")
    ] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Serve only clients with a certificate that this PEM file's certificates sign.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS|NETWORK", help="A proxy whose X-Forwarded-For and -Proto are believed; repeat for more."
        ),
    ] = None,
    console: Annotated[bool, typer.Option(help="Serve the console, a web page, at /console/.")] = True,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    log_format: Annotated[
        str | None, typer.Option(help="json or text (default: text on a terminal, else json).")
    ] = None,
) -> None:
    """Serve models: OpenAI, Anthropic, AICI REST and LMTP, until Ctrl-C or SIGTERM."""
    from aici_engine.chat.settings import ChatSettings
    from aici_engine.config import EngineConfig
    from aici_engine.server.api.serve import serve as run_server
    from aici_engine.server.config import (
        KeptFilesLimits,
        KeptResponsesLimits,
        ModelConfig,
        ModelLoading,
        RequestLimits,
        ServerConfig,
        TlsFiles,
    )
    from aici_engine.server.telemetry import logs
    from aici_engine.store.resolve import resolve_model

    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"--log-level {log_level} is not known", hint="use DEBUG, INFO, WARNING or ERROR")
    look = log_format or ("text" if sys.stderr.isatty() else "json")
    if look not in ("json", "text"):
        raise UsageError(f"--log-format {look} is not known", hint="use json or text")
    logs.set_up(level=log_level.upper(), log_format="json" if look == "json" else "text", process="api")
    _log.setLevel(logging.INFO)  # the server's address is printed at every level
    joins = cluster or nodes is not None
    _check_needs("--cluster", cluster, {"--cluster-address": cluster_address is not None, "--announce": announce})
    of_division = {"--min-nodes": min_nodes != 1, "--replan-after": replan_after != 60.0}
    _check_needs("--cluster or --nodes, without --replicas", joins and replicas == "1", of_division)
    join_address = _join_address(cluster_address) if cluster else None
    places = replica_places(
        replicas=replicas,
        engines=engines,
        nodes=nodes,
        join_address=join_address,
        token_file=token_file,
        patience_s=replay_timeout,
    )
    is_divided = stages is not None or (joins and places is None)
    idle = {"--memory": memory, "--depth": depth}
    _check_needs(
        "--cluster, --nodes or --stages, without --replicas",
        is_divided,
        {flag: idle[flag] is not None for flag in idle},
    )
    needs_token = is_divided or places is not None
    _check_needs("--cluster, --nodes, --stages or --engines", needs_token, {"--token-file": token_file is not None})
    _check_needs(
        "--tls-cert", tls_cert is not None, {"--tls-key": tls_key is not None, "--tls-client-ca": bool(tls_client_ca)}
    )
    _check_needs("--api-key-file", api_key_file is not None, {"--limits-file": limits_file is not None})
    _check_needs("a fixed --port, not 0", port != 0, {"--share-port": share_port})
    driver_bytes = stage_memory(memory)
    count = replica_count(replicas, down_after_s=scale_down_after, pins=pin, places=places)
    _check_needs("--replicas A:B", count.least < count.most, {"--scale-down-after": scale_down_after != 15.0})
    _check_needs("--replicas on this machine", count.most > 1 and places is None, {"--no-pin": not pin})
    _check_needs("an engine on this machine", places is None, {"--threads": threads is not None})
    chat_settings = ChatSettings(tool_syntax=tool_syntax, reasoning_parser=reasoning_parser)
    named = named_models(model or (), name=name, aliases=alias or ())
    folders = [resolve_model(each.model, say=lambda line: _log.info("%s", line)) for each in named]
    draft = None if draft_model is None else resolve_model(draft_model, say=lambda line: _log.info("%s", line))

    vllm = vllm_settings(engine, engine_python, engine_args)

    def engine_of(model_dir: Path, lora: Path | None = None) -> EngineConfig:
        return EngineConfig(
            vllm=vllm,
            model_dir=model_dir,
            lora=lora,
            dtype=dtype,
            kv_cache_dtype=kv_cache_dtype,
            device=device,
            max_num_seqs=max_num_seqs,
            max_batch_tokens=max_batch_tokens,
            prefill_slowdown=prefill_slowdown,
            max_context=max_context,
            num_threads=threads,
            memory_fraction=memory_fraction,
            prefix_cache=prefix_cache,
            speculate=speculate,
            draft_model=draft,
            draft_dtype=draft_dtype,
            stages=stage_addresses(stages),
            cuts=layer_cuts(cuts),
            token_file=token_file if places is None else None,
            depth=depth,
            replay_timeout_s=replay_timeout,
            nodes=stage_addresses(nodes if places is None else None),
            ray_address=join_address if places is None else None,
            min_nodes=min_nodes,
            replan_after_s=replan_after,
            driver_bytes=driver_bytes,
        )

    config = ServerConfig(
        models=tuple(
            ModelConfig(engine=engine_of(folder), name=each.name or folder.name, aliases=each.aliases)
            for each, folder in zip(named, folders, strict=True)
        )
        + tuple(
            ModelConfig(engine=engine_of(folders[0], adapter), name=name_of)
            for name_of, adapter in adapters(lora or ()).items()
        ),
        loading=ModelLoading(
            on_demand=load == "on-demand",
            unload_after_s=unload_after,
            memory_bytes=None if models_memory is None else parse_bytes(models_memory, flag="--models-memory"),
            timeout_s=load_timeout,
        ),
        host=host,
        port=port,
        shares_port=share_port,
        api_key_file=api_key_file,
        limits_file=limits_file,
        max_queue=max_queue,
        max_forks=max_forks,
        max_connections=max_connections,
        spare_engine=spare_engine,
        replicas=count,
        chat=chat_settings,
        limits=RequestLimits(max_body_bytes=max_body_mib << 20, request_timeout_s=request_timeout),
        responses_file=responses_file or _default_responses_file(),
        batches_file=batches_file or _default_batches_file(named[0].name or folders[0].name),
        batches_limits=KeptFilesLimits(ttl_s=batches_days * 86400),
        responses_limits=KeptResponsesLimits(ttl_s=responses_days * 86400),
        drain_timeout_s=drain_timeout,
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
        trusted_proxies=tuple(trusted_proxy or ()),
        tls=None if tls_cert is None else TlsFiles(tls_cert, tls_key or tls_cert, tls_client_ca),
        has_console=console,
        modules=_modules(controllers),
        log_level=log_level.upper(),
        log_format="json" if look == "json" else "text",
    )
    names = ", ".join(model.name for model in config.models)
    _log.info("loading %s", names)
    head = _head(join_address, token_file, announce=announce) if join_address is not None else contextlib.nullcontext()
    run_server(config, started=lambda url: _log.info("serving %s at %s", names, url), beside=head)


def _default_responses_file() -> Path | None:
    return _default_file("AICI_RESPONSES_FILE", "responses.db", what="responses", flag="--responses-file")


def _default_batches_file(model: str) -> Path | None:
    """Servers of different models need different files: one server runs all batches of a file."""
    file = f"batches-{urllib.parse.quote(model, safe='')}.db"
    return _default_file("AICI_BATCHES_FILE", file, what="files and batches", flag="--batches-file")


def _default_file(variable: str, name: str, *, what: str, flag: str) -> Path | None:
    """Return the file of an environment variable, else `name` in the cache folder, or None if the folder cannot be
    written."""
    if own := os.environ.get(variable):
        return Path(own).expanduser().absolute()
    folder = default_cache_dir()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder / name
    _log.warning("%s cannot be written: %s are kept in memory; %s names a file", folder, what, flag)
    return None


def _check_needs(needed: str, is_given: bool, flags: "Mapping[str, bool]") -> None:
    """Raise UsageError for a flag that has no effect without another."""
    for flag, is_set in flags.items():
        if is_set and not is_given:
            raise UsageError(f"{flag} needs {needed}", hint="`aici serve --help` says what each flag does")


def _join_address(given: str | None) -> str:
    """Return HOST:PORT of the cluster."""
    from aici_engine.cluster.node_settings import host_towards

    if given is None:
        try:
            return f"{host_towards(_FAR_AWAY)}:{_CLUSTER_PORT}"
        except AiciError as error:
            raise UsageError(
                "this machine has no default route, so its own address is not clear",
                hint="give --cluster-address HOST:PORT, an address that the other machines reach",
            ) from error
    place(given, flag="--cluster-address")
    return given


@contextlib.contextmanager
def _head(address: str, token_file: Path | None, *, announce: bool) -> "Iterator[None]":
    """Keep the cluster's Ray on this machine, and say how other machines join."""
    from aici_engine.cluster.discovery import announced
    from aici_engine.cluster.ray_head import RayHead
    from aici_engine.cluster.token import ClusterToken, default_token_path

    path = token_file or default_token_path()
    token, is_new = ClusterToken.read_or_create(path)
    if is_new:
        _log.info("made a new cluster token: %s", path)
    if os.geteuid() == 0:
        _log.warning("Ray runs as root here, and whoever has the cluster's token may run programs as this user")
    _log.info("starting Ray at %s", address)
    with RayHead(address, token) as head:
        head.wait_up()
        with announced(address, token) if announce else contextlib.nullcontext():
            _log.info(
                "copy %s to the other machines; then, on each: aici node join %s --token-file FILE", path, address
            )
            yield


def _modules(folder: Path | None) -> "Mapping[str, Path]":
    """Return tag → file of the shipped controllers and of the controllers in `folder`."""
    from aici_controllers.catalog import guest_names, guest_path
    from aici_runtime.modules.tags import is_tag

    modules = {guest: guest_path(guest) for guest in guest_names()}
    if folder is None:
        return modules
    files = sorted(folder.glob("*.wasm")) if folder.is_dir() else []
    if not files:
        raise NotFoundError(
            f"--controllers {folder}: no .wasm file in the folder", hint="name a folder with .wasm files"
        )
    for file in files:
        if file.stem in modules:
            raise UsageError(f"{file}: a shipped controller has this name", hint="give the file another name")
        if not is_tag(file.stem):
            raise UsageError(f"{file} cannot be a tag: a letter, then letters, digits, `_`, `-` or `.`")
        modules[file.stem] = file
    return modules
