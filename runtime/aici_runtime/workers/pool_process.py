"""The `aicirt-pool` process: many guests, each moved in when bound. One wake-up serves all guests.

A pool is cheaper than a process per guest and isolates less. A runaway guest is interrupted, but the other guests wait
until then. When the process dies, all guests die. Guests start and come up in processes of their own as usual.

The pool's own slot takes `adopt` and `clone`, and carries the bell. The stepper rings the bell after writing requests
into the slots of guests, or after asking guests to leave.
"""

from pathlib import Path
from typing import NoReturn

import wasmtime

from aici_runtime import process
from aici_runtime.guests.driver import GuestDriver
from aici_runtime.guests.guest import Guest, GuestError, load_module
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.memory.worker_slots import WorkerSlot
from aici_runtime.workers import worker_requests
from aici_runtime.workers.guest_server import GuestServer
from aici_runtime.workers.guest_setup import WorkerContext, make_driver, make_guest
from aici_runtime.workers.native_pool import NativePool
from aici_runtime.workers.request_variables import RequestVariables
from aici_runtime.workers.watchdog import Watchdog

PROCESS_NAME = "aicirt-pool"


class PoolProcess:
    """Serves many guests, and takes guests in on requests of the stepper."""

    def __init__(self, context: WorkerContext, slot: WorkerSlot, watchdog: Watchdog) -> None:
        self._context = context
        self._slot = slot
        self._watchdog = watchdog
        self._servers: dict[int, GuestServer] = {}
        self._modules: dict[str, wasmtime.Module] = {}

    def serve(self) -> NoReturn:
        """Serve all guests for ever."""
        process.set_name(PROCESS_NAME)
        self._watchdog.servers = self._servers
        self._watchdog.start()
        self._slot.send_response(b"ok")
        native = self._context.native
        if native is not None:
            self._serve_native(NativePool(native, self._slot))
        heard = 0
        while True:
            heard = self._slot.wait_bell(heard)
            self._keep_house()
            for server in self._servers.values():
                if server.slot.has_request():
                    self._serve(server)
            self._slot.announce_responses()

    def _serve_native(self, pool: NativePool) -> NoReturn:
        """Let the loop in C wait for the bell, answer what is usual, and announce the responses."""
        while True:
            server = pool.serve(self._servers)
            if server is None:
                self._keep_house()
            else:
                self._serve(server)
                pool.answered(server)

    def _keep_house(self) -> None:
        if self._slot.has_request():
            self._slot.send_response(self._obey(self._slot.wait_request()))
        for server in list(self._servers.values()):
            if server.slot.is_leaving():  # first: a leaving guest gets no further bell, and nobody waits for its answer
                self._drop(server)

    def _serve(self, server: GuestServer) -> None:
        with server.lock:
            server.is_busy = True
            request = server.slot.wait_request()
        server.slot.put_response(server.answer(request))

    def _drop(self, server: GuestServer) -> None:
        with self._watchdog.lock:
            del self._servers[server.slot.index]
        server.close()
        server.slot.confirm_leave()
        self._context.reports.left(server.slot)

    def _obey(self, request: bytes) -> bytes:
        op, seq_id, number, parent = worker_requests.HEAD.unpack_from(request)
        slot = self._context.table.at(number)
        try:
            if op == worker_requests.ADOPT:
                self._adopt(slot)
            else:
                self._clone(self._servers[parent], slot, seq_id)
        except (GuestError, wasmtime.WasmtimeError) as error:
            return str(error).encode()
        return b"ok"

    def _adopt(self, slot: WorkerSlot) -> None:
        transfer = self._context.transfer
        if transfer is None:
            raise GuestError("there are no pools")
        document = transfer.document()
        guest = make_guest(self._context, self._module(document["compiled"]))
        try:
            transfer.take(document["guest"], guest)
        finally:
            transfer.clear()
        state = GuestState(log_max_bytes=self._context.limits.log_bytes)
        state.restore(document["state"])
        state.memory = guest.memory
        state.trie = self._context.vocabulary.tries[guest.abi]
        variables = state.storage = RequestVariables(self._context.stepper_pidfd)
        variables.restore(document["variables"])
        driver = make_driver(self._context, guest, state)
        driver.handle = document["handle"]
        self._serve_guest(slot, guest, driver, state)

    def _clone(self, parent: GuestServer, slot: WorkerSlot, seq_id: int) -> None:
        memory = parent.guest.memory
        guest = make_guest(self._context, parent.guest.module)
        pages = {number: memory.page(number) for number in memory.pages()}
        guest.take_over(memory.size_bytes(), pages, parent.guest.globals())
        state = parent.state.cloned(guest.memory)
        state.seq_id = seq_id
        self._serve_guest(slot, guest, parent.driver.cloned(guest, state), state)

    def _serve_guest(self, slot: WorkerSlot, guest: Guest, driver: GuestDriver, state: GuestState) -> None:
        with self._watchdog.lock:
            self._servers[slot.index] = GuestServer(
                slot, guest, driver, state, self._context.masks, self._watchdog.lock, self._context.native
            )

    def _module(self, compiled: str) -> wasmtime.Module:
        """Load a module and keep it: modules are few, and mapped files."""
        module = self._modules.get(compiled)
        if module is None:
            module = self._modules[compiled] = load_module(self._context.engine, Path(compiled))
        return module
