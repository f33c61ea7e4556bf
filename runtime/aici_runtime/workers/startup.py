"""The start of a worker: how the guest gets its request. A template gets a request in every fork.

A template is a guest in the state common to all guests of a module and argument, or of a module alone. The guest stands
inside the first host call that depends on the request: for the prompt, for randomness, or, in a template of a module
alone, for the argument. A guest without such a call stands behind `aici_init_prompt`. The process is forked there, and
every fork continues with a request of its own.
"""

import contextlib
import os
import socket
import struct
import time
from typing import Any, NoReturn, Protocol

import orjson

from aici_runtime import process
from aici_runtime.channels import socket_frames
from aici_runtime.guests.guest import Memory
from aici_runtime.memory.worker_slots import WorkerSlot, WorkerSlotTable
from aici_runtime.workers.worker_reports import WorkerReports

TEMPLATE_NAME = "aicirt-template"
WORKER_NAME = "aicirt-seq"
NO_SLOT = -1

SPAWN_REQUEST = struct.Struct("<ii")
"""The request for a fork of a template: slot and generation. The new guest's socket and memory travel along."""


def with_memory(setup: socket.socket, memory: int) -> list[int]:
    """Return the descriptors that travel with a request for a process. `memory`: -1 for none."""
    return [setup.fileno()] if memory < 0 else [setup.fileno(), memory]


def receive_memory(control: socket.socket) -> int:
    """Return a descriptor of the memory of a fork's slot. Raises OSError if none has come."""
    _, fds, _, _ = socket.recv_fds(control, 1, 1)
    if not fds:
        raise OSError("the memory of a fork has not come")
    return fds[0]


class WatchThread(Protocol):
    """A watchdog thread, which forks do not inherit. The end of `control` ends the process."""

    def start(self, control: socket.socket | None = None) -> None: ...


class WorkerStartup:
    """Owns `setup`, the socket to the side process. `asked_ns`: arrival of the request (time.perf_counter_ns)."""

    def __init__(
        self, setup: socket.socket, *, table: WorkerSlotTable, reports: WorkerReports, watch: WatchThread
    ) -> None:
        self._setup = setup
        self._slot: WorkerSlot | None = None
        self._table = table
        self._reports = reports
        self._watch = watch
        self._request: dict[str, Any] | None = None
        self._control: socket.socket | None = None
        self.asked_ns = 0

    def begin(self, slot: int, generation: int, memory: int) -> dict[str, Any]:
        """Announce the process and return its order. `memory`: a descriptor of the slot's memory, -1 for none.

        Raises BrokenPipeError when the process that asked is gone. The slot then belongs to another and stays
        untouched.
        """
        if slot == NO_SLOT:
            process.set_name(TEMPLATE_NAME)
            self._send_pidfd()
            return self._receive()
        return self._begin(slot, generation, memory)

    def watch(self) -> None:
        """Start the watchdog, once the process is sealed: a filter of system calls covers later threads alone."""
        self._watch.start(self._setup if self.is_template else None)

    def _begin(self, slot: int, generation: int, memory: int) -> dict[str, Any]:
        process.set_name(WORKER_NAME)
        self._slot = self._table.at(slot) if memory < 0 else self._table.attach(slot, memory)
        self._control = self._reports.born(self._slot, generation)
        socket_frames.send(self._setup, b"")
        self._request = self._receive()
        self._table.learn_protocol(self._request["protocol"])
        self.asked_ns = time.perf_counter_ns()
        return self._request

    def _receive(self) -> dict[str, Any]:
        message = socket_frames.receive(self._setup)
        if message is None:
            os._exit(0)
        order: dict[str, Any] = orjson.loads(message)
        return order

    @property
    def is_template(self) -> bool:
        """Whether this process is a template, and no fork of a template."""
        return self._slot is None

    @property
    def slot(self) -> WorkerSlot:
        """The worker slot of the process. A template has no slot."""
        if self._slot is None:
            raise AssertionError("a template has no slot")
        return self._slot

    @property
    def control(self) -> socket.socket:
        """The socket on which the stepper hands over the memory of forks."""
        if self._control is None:
            raise AssertionError("a template has no forks with a slot")
        return self._control

    def answer(self, answer: dict[str, object]) -> None:
        """Send the last message on `setup`."""
        socket_frames.send(self._setup, orjson.dumps(answer))
        self._setup.close()

    def keep(self, answer: dict[str, object]) -> socket.socket:
        """Send a message on `setup` and return the socket, for further orders."""
        socket_frames.send(self._setup, orjson.dumps(answer))
        return self._setup

    def hand_over(self, descriptor: int | None) -> NoReturn:
        """Send a descriptor, unless there is none, and end."""
        if descriptor is not None:
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(self._setup, [socket_frames.EMPTY], [descriptor])
        os._exit(0)

    def request(self, memory: Memory) -> dict[str, Any]:
        """Return the fields that differ between requests. In a template, whose guest has this memory, only forks
        return."""
        if self._request is None:
            self._serve_forks(memory)
        return self._request or {}

    def _serve_forks(self, memory: Memory) -> None:
        """Keep the guest in this state. A fork waits ready for the next request, so no request waits for the fork
        itself, the slowest part."""
        try:
            socket_frames.send(self._setup, orjson.dumps({"error": "", "memory_bytes": memory.size_bytes()}))
        except BrokenPipeError:
            os._exit(0)
        template = os.getpid()
        while True:
            taken_end, take = os.pipe()
            if _fork() == 0:
                os.close(taken_end)
                self._wait_for_request(template, take)
                return
            os.close(take)
            if not os.read(taken_end, 1):
                os._exit(0)  # the fork ended without a request; the next would too
            os.close(taken_end)

    def _wait_for_request(self, template: int, take: int) -> None:
        """Wait in a fork for a request. The fork ends with the template, or has already taken a request."""
        process.die_with_parent(template)
        self._watch.start()
        message, fds, _, _ = socket.recv_fds(self._setup, SPAWN_REQUEST.size, 2)
        if not message:
            os._exit(0)
        process.outlive_parent()
        os.write(take, b"1")
        os.close(take)
        self._setup.close()
        self._setup = socket.socket(fileno=fds[0])
        try:
            slot, generation = SPAWN_REQUEST.unpack(message)
            self._begin(slot, generation, fds[1] if len(fds) > 1 else -1)
        except BrokenPipeError:
            os._exit(0)

    def _send_pidfd(self) -> None:
        pidfd = os.pidfd_open(os.getpid())
        try:
            socket.send_fds(self._setup, [socket_frames.EMPTY], [pidfd])
        finally:
            os.close(pidfd)


def _fork() -> int:
    """Fork, or end a template that cannot fork: the side process then starts guests without it."""
    try:
        return os.fork()
    except OSError:
        os._exit(0)
