"""The engine process: an engine and its controller runtime behind two sockets.

`link.supervisor` starts the process with one argument, a `ProcessConfig` as JSON. The process ends with its parent.
"""

import contextlib
import mmap
import os
import signal
import sys
import threading

import msgspec
import zmq

from aici_base.errors import AiciError
from aici_controllers.catalog import pooled_module_ids
from aici_engine.cache.pressure import watching
from aici_engine.engine import Engine, import_engine
from aici_engine.heartbeat import PAGE_BYTES, Heartbeat
from aici_engine.server.engine_process.engine_server import EngineServer
from aici_engine.server.engine_process.frame_sender import FrameSender
from aici_engine.server.engine_process.runtime_keeper import RuntimeKeeper
from aici_engine.server.link import wire
from aici_engine.server.link.process_config import ProcessConfig
from aici_engine.server.telemetry import logs
from aici_runtime import process
from aici_runtime.client import RuntimeConfig
from aici_runtime.config import patient

PROCESS_NAME = "aici-engine"
_JSON_SIZE_MIB = 32


class _StartEndedError(SystemExit):
    """The process shall end, and modules may be imported by half: their functions for the end would fail."""


def _end_start(*_: object) -> None:
    raise _StartEndedError


def main() -> None:
    config = msgspec.json.decode(sys.argv[1], type=ProcessConfig, dec_hook=lambda kind, value: kind(value))
    process.set_name(PROCESS_NAME)
    if config.cpus:
        os.sched_setaffinity(0, config.cpus)  # threads and children have the same processors
    process.die_with(os.pidfd_open(config.parent_pid))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, and the parent ends this process
    signal.signal(signal.SIGTERM, _end_start)
    logs.set_up(level=config.log_level, log_format=config.log_format, process="engine")
    context = zmq.Context()
    requests, events = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    for socket in (requests, events):
        # No message may be lost and no sender may block. The number of streams bounds the queue.
        socket.set_hwm(0)
        socket.linger = 1000
    requests.connect(config.requests)
    events.connect(config.events)
    sender = FrameSender(events)
    try:
        _serve(config, requests, sender)
    except _StartEndedError:
        os._exit(0)
    except AiciError as error:
        sender.send(wire.Reply(0, failure=wire.Failure.of(error)))
        sender.flush()
        requests.close()
        events.close()
        context.term()
        sys.exit(error.exit_code)


def _serve(config: ProcessConfig, requests: "zmq.Socket[bytes]", sender: FrameSender) -> None:
    with contextlib.ExitStack() as stack:
        wanted = RuntimeConfig(
            tokenizer=config.engine.model_dir,
            json_size_mib=_JSON_SIZE_MIB,
            max_forks=config.max_forks,
            pooled=pooled_module_ids(),
        )
        keeper = RuntimeKeeper(patient(wanted), config.modules)
        stack.callback(keeper.close)
        # Import the engine while the runtime starts on another core.
        import_engine()
        runtime = keeper.wait_ready()
        engine = stack.enter_context(
            Engine(
                config.engine,
                runtime=runtime,
                on_step=sender.flush,
                heartbeat=_heartbeat(config.heartbeat),
                on_guest_time=lambda used_s: sender.send(wire.GuestTimeOut(dict(used_s))),
                # An engine without requests is replaced now, not after the next request has failed.
                on_fatal=lambda: os.kill(os.getpid(), signal.SIGTERM),
            )
        )
        server = EngineServer(engine, send=sender.send, flush=sender.flush)
        stack.callback(server.close)
        stack.enter_context(watching(engine.shrink))
        threading.Thread(target=keeper.keep, args=(engine,), name="aici-keeper", daemon=True).start()
        info = wire.EngineInfo(
            engine.vocab_size,
            engine.max_len,
            config.engine.max_num_seqs,
            tuple(sorted(engine.eos_tokens)),
            engine.states_size,
            engine.memory_bytes,
            keeper.lacking,
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        sender.send(wire.Ready(info))
        sender.flush()
        process.give_back_memory()  # what loading has freed
        while True:
            for message in wire.decode_to_engine(requests.recv()):
                server.handle(message)


def _heartbeat(descriptor: int) -> Heartbeat:
    page = mmap.mmap(descriptor, PAGE_BYTES)
    os.close(descriptor)
    return Heartbeat(page)


if __name__ == "__main__":
    main()
