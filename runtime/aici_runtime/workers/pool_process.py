"""The `aicirt-pool` process: the guests of one module and one user. One wake-up serves all guests.

A pool is cheaper than a process per guest and isolates less: when the process dies, all its guests die, and while a
guest computes, the others wait. Two threads run guests: the main thread serves the guests that are up, and the thread
of `pool_births.py` starts further guests meanwhile.

The pool's own slot takes `clone`, and carries the bell. The stepper rings the bell after writing requests into the
slots of guests, or after asking guests to leave.
"""

import gc
import os
import socket
from typing import NoReturn

import wasmtime

from aici_runtime import process
from aici_runtime.guests.driver import GuestDriver, SetupError
from aici_runtime.guests.guest import Guest, GuestError
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.movable import MOVABLE
from aici_runtime.guests.wasmtime_engine import MAX_STACK_BYTES
from aici_runtime.memory.worker_slots import BY_POOL, POOL_EMPTIED_MAX, POOL_GUESTS_MAX, WorkerSlot
from aici_runtime.workers import worker_requests
from aici_runtime.workers.emptied_guests import EmptiedGuests
from aici_runtime.workers.guest_server import GuestServer
from aici_runtime.workers.guest_setup import WorkerContext, load, make_guest
from aici_runtime.workers.native_pool import NativePool
from aici_runtime.workers.pool_births import PoolBirths
from aici_runtime.workers.startup import WorkerStartup, receive_memory
from aici_runtime.workers.watchdog import Watchdog

PROCESS_NAME = "aicirt-pool"

_STACK_BYTES = 8 * MAX_STACK_BYTES
"""Guests start on the stack of a thread, below frames of Python."""


def main(context: WorkerContext, startup: WorkerStartup, watchdog: Watchdog, order: dict[str, str]) -> NoReturn:
    """Load the module, report whether that went well, then serve its guests for ever."""
    process.set_name(PROCESS_NAME)
    try:
        module, snapshot = load(context, order)
        if not any(export.name == MOVABLE for export in module.exports):
            raise SetupError("guests of the module have hidden state: they cannot be forked in one process")
    except SetupError as error:
        startup.answer({"error": str(error)})
        os._exit(0)
    context.sandbox.seal(num_guests=POOL_GUESTS_MAX + POOL_EMPTIED_MAX)
    watchdog.start()
    pool = PoolProcess(context, startup.slot, startup.control, watchdog)
    births = PoolBirths(context, module, snapshot, pool, watchdog, control=startup.keep({"error": ""}))
    gc.enable()  # the spawner, which makes no garbage, has switched it off
    process.start_thread(births.run, stack_bytes=_STACK_BYTES)
    pool.serve()


class PoolProcess:
    """Serves many guests. `control`: the socket on which the stepper hands over the memory of forks."""

    def __init__(self, context: WorkerContext, slot: WorkerSlot, control: socket.socket, watchdog: Watchdog) -> None:
        self._context = context
        self.slot = slot
        self._control = control
        self._watchdog = watchdog
        self._servers: dict[int, GuestServer] = {}
        self._native = NativePool(context.native, slot) if context.native is not None else None
        self._takes_in = True
        self.emptied = EmptiedGuests()
        watchdog.servers = self._servers

    def serve(self) -> NoReturn:
        """Serve all guests for ever."""
        if self._native is not None:
            self._serve_native(self._native)
        heard = 0
        while True:
            heard = self.slot.wait_bell(heard)
            self._keep_house()
            for server in list(self._servers.values()):
                if server.slot.has_request() and not server.slot.is_leaving():
                    self._serve(server)
            self.slot.announce_responses()

    def add(self, slot: WorkerSlot, guest: Guest, driver: GuestDriver, state: GuestState) -> None:
        """Take in a guest that is up. Safe from any thread."""
        server = GuestServer(slot, guest, driver, state, self._context.masks, self._watchdog.lock, self._context.native)
        with self._watchdog.lock:
            self._servers[slot.index] = server
            self.slot.tell_guests(len(self._servers))
        if self._native is not None:
            self._native.tell_news()
        if slot.is_leaving():  # the bell of the stepper may have rung before the guest was here
            self.slot.ring(BY_POOL)

    def take_in_no_more(self) -> None:
        """End the process as soon as there is no guest. Safe from any thread."""
        with self._watchdog.lock:
            self._takes_in = False
            is_empty = not self._servers
        if is_empty:
            os._exit(0)

    def _serve_native(self, native: NativePool) -> NoReturn:
        """Let the loop in C wait for the bell, answer what is usual, and announce the responses."""
        while True:
            server = native.serve(self._servers)
            if server is None:
                self._keep_house()
            else:
                self._serve(server)
                native.answered(server)

    def _keep_house(self) -> None:
        if self.slot.has_request():
            self.slot.send_response(self._clone(self.slot.wait_request()))
        for server in list(self._servers.values()):
            if server.slot.is_leaving():  # first: a leaving guest gets no further bell, and nobody waits for its answer
                self._drop(server)

    def _serve(self, server: GuestServer) -> None:
        with server.lock:
            server.is_busy = not server.slot.is_leaving()
        if server.is_busy:  # else nobody would interrupt the guest
            server.slot.put_response(server.answer(server.slot.wait_request()))

    def _drop(self, server: GuestServer) -> None:
        with self._watchdog.lock:
            del self._servers[server.slot.index]
            self.slot.tell_guests(len(self._servers))
            is_last = not self._takes_in and not self._servers
        server.leave()
        self.emptied.put(server.guest)
        self._context.table.forget(server.slot)  # first: the slot may be another guest's after the report
        self._context.reports.left(server.slot)
        if is_last:
            os._exit(0)

    def _clone(self, request: bytes) -> bytes:
        """Fork a guest into a slot whose memory has come on `control`."""
        _, seq_id, number, parent_number = worker_requests.HEAD.unpack_from(request)
        parent = self._servers[parent_number]
        memory = parent.guest.memory
        try:
            slot = self._context.table.attach(number, receive_memory(self._control))
        except OSError as error:
            return f"cannot fork: {error}".encode()
        try:
            guest = make_guest(self._context, parent.guest.module)
            pages = {page: memory.page(page) for page in memory.pages()}
            guest.take_over(memory.size_bytes(), pages, parent.guest.globals())
        except (GuestError, wasmtime.WasmtimeError) as error:
            self._context.table.forget(slot)
            return str(error).encode()
        state = parent.state.cloned(guest.memory)
        state.seq_id = seq_id
        self.add(slot, guest, parent.driver.cloned(guest, state), state)
        return b"ok"
