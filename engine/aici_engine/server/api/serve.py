"""`serve` runs a server until a signal: starts the engine process, serves the API on a socket, and stops in order."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable
from importlib import import_module

from aici_base.errors import UnavailableError, UsageError
from aici_engine.server.api.models import make_models
from aici_engine.server.config import ServerConfig
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.gateway.connections import Connections, Listener, most_connections
from aici_engine.server.gateway.tls import ServerTls
from aici_engine.server.service.batch_store import BatchStore
from aici_engine.server.service.models import Models
from aici_engine.server.service.response_store import ResponseStore
from aici_engine.server.service.shared_counts import SharedCounts
from aici_engine.server.telemetry import tracing
from aici_engine.store.paths import in_use

_BACKLOG = 2048
_POLL_S = 0.05
_LAST_WORDS_S = 2.0

_log = logging.getLogger(__name__)


def serve(
    config: ServerConfig,
    *,
    started: Callable[[str], None] = lambda _: None,
    beside: contextlib.AbstractContextManager[object] | None = None,
) -> None:
    """Serve until a signal. Calls `started` with the base URL as soon as requests are served.

    `beside` is entered when the keys are read and the port is taken, before the model is loaded.

    SIGTERM, SIGINT or `POST /admin/drain` drains: new requests are refused, and running requests may end within
    `drain_timeout_s`. A second signal ends the process at once. SIGHUP reads the API keys and the certificate
    again. Raises UsageError if the address is not available, or if the key file or the certificate is invalid, and
    UnavailableError if the engine keeps dying.
    """
    # The command line restores SIGPIPE's default action. In a server, a closed pipe is only a client that has left.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    keys = Keys(config.api_key_file)
    tls = None if config.tls is None else ServerTls(config.tls)
    kept = ResponseStore(config.responses_file, config.responses_limits)
    batches = BatchStore(config.batches_file, config.batches_limits)
    connections = Connections(
        most_connections(config.max_connections, num_models=len(config.models) * config.replicas.most)
    )
    with kept, batches, _listen(config, connections) as listener, beside or contextlib.nullcontext():
        address = listener.getsockname()[0]
        if config.api_key_file is None and not ipaddress.ip_address(address).is_loopback:
            _log.warning("everybody who can reach %s may use this server; --api-key-file requires API keys", address)
        asyncio.run(_serve(config, keys, tls, kept, batches, listener, started))


async def _serve(
    config: ServerConfig,
    keys: Keys,
    tls: ServerTls | None,
    kept: ResponseStore,
    batches: BatchStore,
    listener: Listener,
    started: Callable[[str], None],
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stop)
    if config.api_key_file is not None or tls is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, keys, tls)
    async with contextlib.AsyncExitStack() as stack:
        for model in config.models:
            for folder in filter(None, (model.engine.model_dir, model.engine.draft_model)):
                stack.enter_context(in_use(folder))  # also while the model is not loaded
        counts = None if config.limits_file is None else stack.enter_context(SharedCounts(config.limits_file))
        models = await stack.enter_async_context(make_models(config, counts))
        stopping = loop.create_task(stop.wait())
        loading = loop.create_task(_load(config, models))
        importing = loop.create_task(asyncio.to_thread(_import_http))
        await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            await asyncio.wait([loading])
            return
        loading.result()
        await importing
        from aici_engine.server.api.app import create_app
        from aici_engine.server.batches.runner import BatchRunner
        from aici_engine.server.gateway import http_server
        from aici_engine.server.gateway.web_pages import names_of_this_machine

        spans = stack.enter_context(tracing.from_environment(models.default.name))
        # A page cannot know a key, so a server with keys needs no names.
        named = names_of_this_machine(config.host) | set(config.allowed_hosts)
        app = create_app(
            models,
            keys=keys,
            kept_responses=kept,
            batches=batches,
            cors_origins=config.cors_origins,
            hosts=named if config.api_key_file is None else None,
            observers=spans,
            has_console=config.has_console,
        )
        settings = http_server.config(
            app,
            max_message_bytes=config.limits.max_body_bytes,
            connections=listener.connections,
            tls=tls,
            trusted_proxies=config.trusted_proxies,
        )
        server = http_server.HttpServer(settings)
        listener.listen(_BACKLOG)  # no effect on a socket that listens already
        serving = loop.create_task(server.serve([listener]))
        host, port = listener.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        started(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        failing = loop.create_task(models.all_failed.wait())
        draining = loop.create_task(models.admission.drain_begun.wait())
        async with BatchRunner(app, models, batches, keys.principal_named):
            await asyncio.wait([stopping, failing, serving, draining], return_when=asyncio.FIRST_COMPLETED)
        models.admission.drain_begun.set()
        if config.shares_port:
            server.stop_listening()
        if not failing.done():
            await _drain(models, config.drain_timeout_s)
        server.stop()
        await serving
        for waiting in (stopping, failing, draining):
            waiting.cancel()
        if models.all_failed.is_set():
            raise UnavailableError("the engine keeps dying", hint="the log above has its last output")


def _import_http() -> None:
    """Import FastAPI and all that needs it, while the engine starts: the imports take most of a second."""
    import_module("aici_engine.server.api.app")
    import_module("aici_engine.server.batches.runner")


def _reload(keys: Keys, tls: ServerTls | None) -> None:
    keys.reload()
    if tls is not None:
        tls.reload()


async def _load(config: ServerConfig, models: Models) -> None:
    if not config.loading.on_demand:
        await models.load_all()


def _on_signal(number: int, stop: asyncio.Event) -> None:
    if stop.is_set():
        # The second signal. The engine process ends with this process and leaves no shared memory behind.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    stop.set()


async def _drain(models: Models, timeout_s: float) -> None:
    models.stop_loading()
    _log.info("stopping: waiting for %d sequences to end", models.num_admitted)
    if await _all_end(models, timeout_s):
        return
    _log.warning("%d sequences did not end within %g s", models.num_admitted, timeout_s)
    models.lost(UnavailableError("the server is stopping"))
    # The clients get the reason before their connections close.
    await _all_end(models, _LAST_WORDS_S)


async def _all_end(models: Models, timeout_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while models.num_admitted:
                await asyncio.sleep(_POLL_S)
            # The last event may still be on its way to a socket.
            await asyncio.sleep(_POLL_S)
    return not models.num_admitted


def _listen(config: ServerConfig, connections: Connections) -> Listener:
    """Return a socket that is bound before the model is loaded: a wrong address fails at once.

    Connections wait in the backlog. Exceptions: a cluster may wait for nodes for days, so connections are refused until
    the nodes are there; of servers that share a port, those that are loaded take the connections.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = Listener(family, kind)
        listener.connections = connections
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.shares_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        waits_for_nodes = config.replicas.places is not None or any(
            model.engine.nodes or model.engine.ray_address for model in config.models
        )
        if not config.shares_port and not waits_for_nodes:
            listener.listen(_BACKLOG)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {config.host}:{config.port}: {error}",
            hint="port 0 takes a free port",
            cli_hint="--port 0 takes a free port",
        ) from error
    return listener
