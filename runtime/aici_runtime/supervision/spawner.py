"""The `aicirt-spawner` process: forks a worker for every request. Single-threaded; never compiles.

Workers start with the spawner's memory. So the spawner prepares the common parts of all workers: the wasmtime engine,
the linker, the tokenizer. Then the spawner enters the sandbox, and all workers are inside. As a subreaper, the spawner
becomes the parent of forks with a dead parent, and the kernel reaps for the spawner.
"""

import contextlib
import gc
import logging
import os
import select
import socket
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import orjson

from aici_runtime import process
from aici_runtime.channels import socket_frames
from aici_runtime.flags import Limits
from aici_runtime.guests import wasmtime_engine
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.host_functions import MAX_RESULT_BYTES, HostFunctions
from aici_runtime.guests.linker import Linker
from aici_runtime.guests.native import host as native_host
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.tokenizer import host_tokenizer
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary
from aici_runtime.workers import sandbox, worker
from aici_runtime.workers.guest_setup import WorkerContext
from aici_runtime.workers.sandbox import Sandbox
from aici_runtime.workers.startup import with_memory
from aici_runtime.workers.worker_reports import WorkerReports

PROCESS_NAME = "aicirt-spawner"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerConfig:
    """`memory_bytes`: linear memory of a guest. `max_guests`: guests of a process. `max_processes`: processes
    and threads of all guests together."""

    table: WorkerSlotTable
    reports: WorkerReports
    masks: MaskRegion
    vocabulary: LoadedVocabulary
    limits: Limits
    capabilities: frozenset[str]
    timer_resolution_us: int
    worker_user: str | None
    store_dir: Path
    memory_bytes: int
    max_guests: int
    max_processes: int
    stepper_pidfd: int


class SpawnerSockets:
    """The sockets to and from the spawner: `asking` leads to `requests`, `starting` to `ready`.

    The stepper's process keeps all ends open, so requests not taken by a killed spawner wait for the replacement.
    """

    def __init__(self) -> None:
        self.asking, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ready, self.starting = socket.socketpair()

    def close(self) -> None:
        for sock in (self.asking, self.requests, self.ready, self.starting):
            sock.close()

    def wait_ready(self) -> None:
        """Wait until the first spawner can fork. If the spawner cannot start, the runtime ends."""
        self.ready.recv(1, socket.MSG_PEEK)

    def spawn(self, slot: int, generation: int, setup: socket.socket, memory: int = -1) -> None:
        """Ask for a worker for `slot` (NO_SLOT: for a template). `memory`: a descriptor of the slot's memory, if any.

        On `setup`, the worker sends an empty frame as a sign of life and reads the order. A frame with text gives the
        reason of a failure. An end of the stream means that the spawner or the worker was killed.
        """
        socket.send_fds(self.asking, [orjson.dumps([slot, generation])], with_memory(setup, memory))


def main(config: SpawnerConfig, sockets: SpawnerSockets) -> NoReturn:
    """Run the spawner in a fresh fork."""
    process.set_name(PROCESS_NAME)
    process.adopt_orphans()
    _close_other_descriptors(config, sockets)
    context = _prepare(config)
    # Never collected, never written: the pages stay shared with every worker.
    gc.collect()
    process.give_back_memory()
    process.forget_threads()
    # Python 3.12 warns about forks of a process with threads. Here, all other threads sleep in a system call.
    warnings.simplefilter("ignore", DeprecationWarning)
    gc.freeze()
    gc.disable()
    sockets.starting.send(b"1")
    poller = select.poll()
    poller.register(sockets.requests, select.POLLIN)
    poller.register(config.stepper_pidfd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if config.stepper_pidfd in ready:
            os._exit(0)
        message, fds, _, _ = socket.recv_fds(sockets.requests, 64, 2)
        try:
            with socket.socket(fileno=fds[0]) as setup:
                _spawn(context, sockets, orjson.loads(message), setup, fds[1] if len(fds) > 1 else -1)
        finally:
            for descriptor in fds[1:]:
                os.close(descriptor)


def _prepare(config: SpawnerConfig) -> WorkerContext:
    """Prepare the common parts of all workers, then enter the sandbox."""
    engine = wasmtime_engine.new_engine()
    tokenize = host_tokenizer.load(config.vocabulary.tokenizer_json, config.vocabulary.tries["v2"])
    host_functions = HostFunctions(
        config.vocabulary, tokenize, capabilities=config.capabilities, timer_resolution_us=config.timer_resolution_us
    )
    host_functions.guest = GuestState(log_max_bytes=config.limits.log_bytes)
    native = native_host.load(config.masks, result_max=MAX_RESULT_BYTES)
    linker, offset_linker = (Linker(engine, host_functions.on_failure, native) for _ in range(2))
    host_functions.define(linker)
    host_functions.define(offset_linker, returns_offset=True)
    return WorkerContext(
        engine=engine,
        linker=linker,
        offset_linker=offset_linker,
        host_functions=host_functions,
        native=native,
        capabilities=config.capabilities,
        table=config.table,
        reports=config.reports,
        masks=config.masks,
        vocabulary=config.vocabulary,
        limits=config.limits,
        stepper_pidfd=config.stepper_pidfd,
        sandbox=_enter_sandbox(config),
    )


def _close_other_descriptors(config: SpawnerConfig, sockets: SpawnerSockets) -> None:
    """Unmap the memory of slots. Close the descriptors of other parts of the runtime, such as the file of a trace.

    The owners of the descriptors in this process are never used again, and never freed.
    """
    config.table.leave()
    sockets.asking.close()
    sockets.ready.close()
    ours = {
        0,
        1,
        2,
        config.stepper_pidfd,
        config.reports.fileno(),
        sockets.requests.fileno(),
        sockets.starting.fileno(),
    }
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - ours:
        with contextlib.suppress(OSError):  # the one that listed the others
            os.close(descriptor)


def _enter_sandbox(config: SpawnerConfig) -> Sandbox:
    with contextlib.suppress(OSError):  # the side process will report the reason
        config.store_dir.mkdir(parents=True, exist_ok=True)
    entered = sandbox.enter(
        memory_bytes=config.memory_bytes,
        user=config.worker_user,
        modules=config.store_dir,
        max_guests=config.max_guests,
        max_processes=config.max_processes,
    )
    _log.info(
        "guests are confined by WebAssembly, %s", sandbox.names(wall for wall in entered.walls if not wall.reason)
    )
    for wall in entered.walls:
        if wall.reason:
            _log.info("no wall of guests: %s: %s", wall.name, wall.reason)
    return entered


def _spawn(
    context: WorkerContext, sockets: SpawnerSockets, request: tuple[int, int], setup: socket.socket, memory: int
) -> None:
    slot, generation = request

    def serve_guest() -> None:
        sockets.close()
        with contextlib.suppress(BrokenPipeError):  # the side process was killed
            worker.main(context, slot, generation, setup, memory)

    try:
        process.fork_child(serve_guest)
    except OSError as error:
        with contextlib.suppress(BrokenPipeError):
            socket_frames.send(setup, f"cannot start a guest process: {error}".encode())
