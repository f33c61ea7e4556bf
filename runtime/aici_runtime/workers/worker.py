"""The `aicirt-seq` process: a guest for a sequence. Obeys the requests of the worker slot, and forks itself."""

import os
import socket
from pathlib import Path
from typing import Any, NoReturn

import orjson

from aici_runtime.guests.driver import GuestDriver, SetupError
from aici_runtime.guests.guest import Guest
from aici_runtime.workers import pool_process, worker_requests
from aici_runtime.workers.guest_server import GuestServer
from aici_runtime.workers.guest_setup import WorkerContext, bring_up, load, make_snapshot, start_guest
from aici_runtime.workers.request_variables import RequestVariables
from aici_runtime.workers.startup import WorkerStartup, receive_memory
from aici_runtime.workers.watchdog import Watchdog


def main(context: WorkerContext, slot: int, generation: int, setup: socket.socket, memory: int = -1) -> NoReturn:
    """Bring the guest up as ordered on `setup`, report the outcome there, then serve the slot for ever.

    Raises BrokenPipeError when the process that asked is gone. The slot then belongs to another and stays untouched.
    """
    watchdog = Watchdog(context.stepper_pidfd, context.new_lock)
    startup = WorkerStartup(setup, table=context.table, reports=context.reports, watch=watchdog)
    order = startup.begin(slot, generation, memory)
    if "snapshot_of" in order:
        startup.hand_over(make_snapshot(context, Path(order["snapshot_of"])))
    if "pool_of" in order:
        pool_process.main(context, startup, watchdog, order["pool_of"])
    variables = context.host_functions.guest.storage = RequestVariables(context.stepper_pidfd)
    try:
        guest, driver = _start(context, order, startup)
    except SetupError as error:
        startup.answer({"error": str(error)})
        os._exit(0)
    result = bring_up(context, guest, driver, startup)
    if startup.is_template:
        startup.answer(result)
        os._exit(0)
    state = context.host_functions.guest
    server = GuestServer(startup.slot, guest, driver, state, context.masks, watchdog.lock, context.native)
    watchdog.servers = {server.slot.index: server}
    startup.answer(result)
    Worker(context, server, variables, watchdog, startup.control).serve()


def _start(context: WorkerContext, order: dict[str, Any], startup: WorkerStartup) -> tuple[Guest, GuestDriver]:
    module, snapshot = load(context, order)
    try:
        context.sandbox.seal()
        startup.watch()
        return start_guest(context, module, snapshot, order, startup)
    finally:
        if snapshot is not None:
            os.close(snapshot)


class Worker:
    """Serves a single guest on the worker slot, and forks the process."""

    def __init__(
        self,
        context: WorkerContext,
        server: GuestServer,
        variables: RequestVariables,
        watchdog: Watchdog,
        control: socket.socket,
    ) -> None:
        self._control = control
        self._context = context
        self._server = server
        self._variables = variables
        self._watchdog = watchdog

    def serve(self) -> NoReturn:
        """Answer the requests of the worker slot for ever."""
        server = self._server
        while True:
            server.serve_usual()
            request = server.slot.wait_request()
            response: bytes | None
            if request[0] < worker_requests.FORK:
                with server.lock:
                    server.is_busy = True
                response = server.answer(request)
            else:
                response = self._fork(request)
            if response is not None:
                server.slot.send_response(response)

    def _fork(self, request: bytes) -> bytes | None:
        """Return the response; None in a new fork, which owes none."""
        outcomes: list[int | str] = []
        for seq_id, number in worker_requests.forks_of(request):
            memory = receive_memory(self._control)
            try:
                outcome = self._fork_into(seq_id, number, memory)
            finally:
                os.close(memory)
            if outcome is None:
                return None
            outcomes.append(outcome)
        return orjson.dumps(outcomes)

    def _fork_into(self, seq_id: int, number: int, memory: int) -> int | str | None:
        """Return the pid of the fork, or the reason why there is none; None in the fork."""
        table = self._context.table
        try:
            variables = self._variables.client_for_fork(self._server.guest.close)
            pid = os.fork()
        except BrokenPipeError:
            return "cannot fork: the variables of this request are gone"
        except OSError as error:
            return f"cannot fork: {error}"
        if pid != 0:
            variables.close()
            return pid
        parent = self._server.slot
        slot = table.attach(number, os.dup(memory))
        self._control.close()
        self._control = self._context.reports.born(slot, 0)  # the parent may die before it can tell
        self._variables.become(variables)
        self._server.state.seq_id = seq_id
        self._server.use_slot(slot)
        table.unmap(parent)
        self._watchdog.start()
        return None
