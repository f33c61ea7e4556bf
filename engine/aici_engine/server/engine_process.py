"""The engine process: a model, its engine and its controller runtime, behind two sockets.

Started by `client.EngineProcess` with one argument, JSON of `ProcessConfig`. It ends when its parent does.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
import zmq

from aici_base.errors import AiciError
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine, import_engine
from aici_engine.server import logs, wire
from aici_engine.server.engine_server import EngineServer
from aici_engine.server.logs import LogFormat
from aici_runtime import process
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.config import patient

PROCESS_NAME = "aici-engine"
_JSON_SIZE_MIB = 32
_MAX_QUICK_DEATHS = 3
_QUICK_S = 10.0
_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`requests`, `events`: addresses that the parent has bound. `modules`: .wasm files that are compiled
    before the first request."""

    requests: str
    events: str
    parent_pid: int
    engine: EngineConfig
    max_forks: int
    modules: tuple[str, ...] = ()
    log_level: str = "WARNING"
    log_format: LogFormat = "text"


class Outbox:
    """Collects what the threads have to say, and sends it in one frame a step."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self._messages: list[wire.FromEngine] = []

    def send(self, message: wire.FromEngine) -> None:
        with self._lock:
            self._messages.append(message)

    def flush(self) -> None:
        # The lock is what lets several threads use the socket in turn.
        with self._lock:
            if self._messages:
                self._socket.send(wire.encode(self._messages))
                self._messages = []


class RuntimeKeeper:
    """Keeps a controller runtime alive: when it dies, the engine gets another with the same modules."""

    def __init__(self, config: RuntimeConfig, modules: Sequence[str]) -> None:
        self._config = config
        self._modules = modules
        self._runtime = Runtime(config)
        self._closing = False

    def wait_ready(self) -> Runtime:
        self._make_ready(self._runtime)
        return self._runtime

    def keep(self, use: Callable[[Runtime], None]) -> None:
        """A thread: for ever. `use` is told of each new runtime."""
        quick_deaths = 0
        while True:
            ended_early = self._runtime.wait_ended(_QUICK_S)
            if not ended_early:
                self._runtime.wait_ended()
            quick_deaths = quick_deaths + 1 if ended_early else 0
            if self._closing:
                return
            self._runtime.close()
            if quick_deaths > _MAX_QUICK_DEATHS:
                _log.error("the controller runtime keeps dying: controllers are not served any more")
                return
            _log.warning("the controller runtime died; starting another")
            try:
                self._runtime = Runtime(self._config)
                self._make_ready(self._runtime)
                use(self._runtime)
            except (AiciError, OSError):  # the latter: there is no memory for it, or a file of a module is gone
                _log.exception("the new controller runtime did not come up")
                self._runtime.close()
                time.sleep(_PAUSE_S)

    def close(self) -> None:
        self._closing = True
        self._runtime.close()

    def _make_ready(self, runtime: Runtime) -> None:
        runtime.wait_ready()
        for path in self._modules:
            with open(path, "rb") as file:
                runtime.mk_module(file.read())


def main() -> None:
    config = msgspec.json.decode(sys.argv[1], type=ProcessConfig, dec_hook=lambda kind, value: kind(value))
    process.set_name(PROCESS_NAME)
    process.die_with(os.pidfd_open(config.parent_pid))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logs.set_up(level=config.log_level, log_format=config.log_format, process="engine")
    context = zmq.Context()
    requests, events = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    for socket in (requests, events):
        # Nothing may be lost, and nobody may wait: what is bounded is the number of streams.
        socket.set_hwm(0)
        socket.linger = 1000
    requests.connect(config.requests)
    events.connect(config.events)
    outbox = Outbox(events)
    try:
        _serve(config, requests, outbox)
    except AiciError as error:
        outbox.send(wire.Reply(0, failure=wire.Failure.of(error)))
        outbox.flush()
        requests.close()
        events.close()
        context.term()
        sys.exit(error.exit_code)


def _serve(config: ProcessConfig, requests: "zmq.Socket[bytes]", outbox: Outbox) -> None:
    with contextlib.ExitStack() as stack:
        wanted = RuntimeConfig(
            tokenizer=config.engine.model_dir, json_size_mib=_JSON_SIZE_MIB, max_forks=config.max_forks
        )
        keeper = RuntimeKeeper(patient(wanted), config.modules)
        stack.callback(keeper.close)
        # Torch is imported while the runtime comes up on the other core.
        import_engine()
        host = keeper.wait_ready()
        engine = stack.enter_context(Engine(config.engine, runtime=host, on_step=outbox.flush))
        server = EngineServer(engine, send=outbox.send, flush=outbox.flush)
        stack.callback(server.close)
        threading.Thread(target=keeper.keep, args=(engine.use_runtime,), name="aici-keeper", daemon=True).start()
        info = wire.EngineInfo(
            engine.vocab_size, engine.max_len, config.engine.max_num_seqs, tuple(sorted(engine.eos_tokens))
        )
        outbox.send(wire.Ready(info))
        outbox.flush()
        while True:
            for message in wire.decode_to_engine(requests.recv()):
                server.handle(message)


if __name__ == "__main__":
    main()
