"""The `aicirt-spawner` process: single-threaded, never compiles, forks a worker for every request.

Its memory is what every worker starts with, so it prepares all that workers have in common: the wasmtime engine, the
linker, the tokenizer. Then it enters the sandbox, and all of them with it. It is the parent of branches whose own
parent died (subreaper), and the kernel reaps for it.
"""

import contextlib
import gc
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
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.guests.linker import Linker
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.tokenizer import host_tokenizer
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary
from aici_runtime.workers import sandbox, worker
from aici_runtime.workers.guest_setup import WorkerContext
from aici_runtime.workers.guest_transfer import GuestTransfer
from aici_runtime.workers.worker_reports import WorkerReports

PROCESS_NAME = "aicirt-spawner"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerConfig:
    """`memory_bytes`: of all guests that one process may have."""

    table: WorkerSlotTable
    transfer: GuestTransfer
    reports: WorkerReports
    masks: MaskRegion
    vocabulary: LoadedVocabulary
    limits: Limits
    capabilities: frozenset[str]
    timer_resolution_us: int
    worker_user: str | None
    store_dir: Path
    memory_bytes: int
    stepper_pidfd: int


class SpawnerSockets:
    """How the spawner is asked. The stepper's process keeps all ends open: what a spawner that was killed has not taken
    waits for its replacement. `asking` leads to `requests`, and `starting` to `ready`."""

    def __init__(self) -> None:
        self.asking, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ready, self.starting = socket.socketpair()

    def close(self) -> None:
        for sock in (self.asking, self.requests, self.ready, self.starting):
            sock.close()

    def wait_ready(self) -> None:
        """Until the first spawner can fork. If it never can, the runtime ends."""
        self.ready.recv(1, socket.MSG_PEEK)

    def spawn(self, slot: int, generation: int, setup: socket.socket) -> None:
        """Ask for a worker for `slot` (NO_SLOT: for a template), which says on `setup` that it lives (an empty frame),
        and reads there what it is to do. A frame with text says why there is none. The end of the file: the spawner or
        the worker was killed."""
        socket.send_fds(self.asking, [orjson.dumps([slot, generation])], [setup.fileno()])


def main(config: SpawnerConfig, sockets: SpawnerSockets) -> NoReturn:
    process.set_name(PROCESS_NAME)
    process.adopt_orphans()
    context = _prepare(config)
    sandbox.enter(memory_bytes=config.memory_bytes, user=config.worker_user, modules=config.store_dir)
    # Never collected, never written: the pages stay shared with every worker.
    gc.collect()
    process.give_back_memory()
    process.forget_threads()
    # Of Python 3.12, about forks of a process with threads: all that ours have sleep in a system call.
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
        message, fds, _, _ = socket.recv_fds(sockets.requests, 64, 1)
        with socket.socket(fileno=fds[0]) as setup:
            _spawn(context, sockets, orjson.loads(message), setup)


def _prepare(config: SpawnerConfig) -> WorkerContext:
    engine = wasmtime_engine.new_engine()
    tokenize = host_tokenizer.load(config.vocabulary.tokenizer_json, config.vocabulary.tries["v2"])
    host = HostFunctions(
        config.vocabulary, tokenize, capabilities=config.capabilities, timer_resolution_us=config.timer_resolution_us
    )
    host.guest = GuestState(log_max_bytes=config.limits.log_bytes)
    linker, offset_linker = Linker(engine, host.on_failure), Linker(engine, host.on_failure)
    host.define(linker)
    host.define(offset_linker, returns_offset=True)
    return WorkerContext(
        engine=engine,
        linker=linker,
        offset_linker=offset_linker,
        host=host,
        capabilities=config.capabilities,
        table=config.table,
        transfer=config.transfer,
        reports=config.reports,
        masks=config.masks,
        vocabulary=config.vocabulary,
        limits=config.limits,
        stepper_pidfd=config.stepper_pidfd,
    )


def _spawn(context: WorkerContext, sockets: SpawnerSockets, request: tuple[int, int], setup: socket.socket) -> None:
    slot, generation = request

    def serve_guest() -> None:
        sockets.close()
        with contextlib.suppress(BrokenPipeError):  # the one who asked was killed
            worker.main(context, slot, generation, setup)

    try:
        process.fork_child(serve_guest)
    except OSError as error:
        with contextlib.suppress(BrokenPipeError):
            socket_frames.send(setup, f"cannot start a guest process: {error}".encode())
