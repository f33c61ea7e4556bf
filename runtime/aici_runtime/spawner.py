"""The `aicirt-forker` process: single-threaded, never compiles, forks a worker for every request.

Its memory is what every worker starts with, so it prepares all that workers have in common: the wasmtime engine, the
linker, the tokenizer. It is the parent of branches whose own parent died (subreaper), and the kernel reaps for it.
"""

import gc
import os
import select
import signal
import socket
from dataclasses import dataclass
from typing import NoReturn

from aici_runtime import host_tokenizer, process, wasm, worker
from aici_runtime.errors import AiciError
from aici_runtime.flags import Limits
from aici_runtime.host import Host
from aici_runtime.link import Linker
from aici_runtime.masks import MaskRegion
from aici_runtime.slots import SlotTable
from aici_runtime.vocabulary import LoadedVocabulary
from aici_runtime.worker import WorkerWorld

PROCESS_NAME = "aicirt-forker"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerConfig:
    table: SlotTable
    masks: MaskRegion
    vocabulary: LoadedVocabulary
    limits: Limits
    stepper_pidfd: int


class SpawnerClient:
    """The side process's end. Callers take turns."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def wait_ready(self) -> bool:
        """Until the spawner can fork. False: it never will, and has said why."""
        return self._control.recv(1) != b""

    def spawn(self, slot: int, setup: socket.socket) -> tuple[int, int]:
        """Fork a worker for `slot` that reads its setup from `setup`. Returns its pid and a pidfd (the caller's)."""
        socket.send_fds(self._control, [b"%d" % slot], [setup.fileno()])
        answer, fds, _, _ = socket.recv_fds(self._control, 4096, 1)
        if not fds:
            raise AiciError(f"cannot start a guest process: {answer.decode() or 'the spawner is gone'}")
        return int(answer), fds[0]


def main(config: SpawnerConfig, control: socket.socket) -> NoReturn:
    process.set_name(PROCESS_NAME)
    process.adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    world = _prepare(config)
    # Never collected, never written: the pages stay shared with every worker.
    gc.collect()
    gc.freeze()
    gc.disable()
    control.send(b"1")
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(config.stepper_pidfd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if config.stepper_pidfd in ready:
            os._exit(0)
        message, fds, _, _ = socket.recv_fds(control, 64, 1)
        if not message:
            os._exit(0)
        with socket.socket(fileno=fds[0]) as setup:
            _spawn(world, control, int(message), setup)


def _prepare(config: SpawnerConfig) -> WorkerWorld:
    engine = wasm.new_engine()
    host = Host(config.vocabulary, host_tokenizer.load(config.vocabulary.tokenizer_json))
    linker = Linker(engine, host.on_failure)
    host.define(linker)
    return WorkerWorld(
        engine=engine,
        linker=linker,
        host=host,
        table=config.table,
        masks=config.masks,
        vocabulary=config.vocabulary,
        limits=config.limits,
        stepper_pidfd=config.stepper_pidfd,
    )


def _spawn(world: WorkerWorld, control: socket.socket, slot: int, setup: socket.socket) -> None:
    def serve_guest() -> None:
        control.close()
        worker.main(world, world.table.at(slot), setup)

    try:
        pid = process.fork_child(serve_guest)
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        control.send(str(error).encode())
        return
    try:
        socket.send_fds(control, [b"%d" % pid], [pidfd])
    finally:
        os.close(pidfd)
