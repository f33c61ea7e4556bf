"""The `aicirt-seq` process: one guest, one sequence. Obeys the requests of its worker slot, and forks itself."""

import os
import socket
from typing import NoReturn

from aici_runtime.guests.driver import SetupError
from aici_runtime.memory.worker_slots import Slot
from aici_runtime.workers import worker_requests
from aici_runtime.workers.guest_server import Seat
from aici_runtime.workers.guest_setup import WorkerWorld, bring_up, load
from aici_runtime.workers.pool_process import Pool
from aici_runtime.workers.request_variables import RequestVariables
from aici_runtime.workers.startup import Arrival
from aici_runtime.workers.watchdog import Watchdog


def main(world: WorkerWorld, slot: int, generation: int, setup: socket.socket) -> NoReturn:
    """Bring the guest up as `setup` asks, say on that socket how it went, then serve the slot for ever.

    Raises BrokenPipeError when the one who asked is gone: then the slot is not ours, and is not touched.
    """
    watchdog = Watchdog(world.stepper_pidfd)
    arrival = Arrival(setup, table=world.table, news=world.news, watch=watchdog)
    order = arrival.begin(slot, generation)
    variables = world.host.guest.storage = RequestVariables(world.stepper_pidfd)
    try:
        guest, driver = load(world, order, arrival)
    except SetupError as error:
        arrival.answer({"error": str(error)})
        os._exit(0)
    result = bring_up(world, guest, driver, arrival)
    if arrival.is_template:
        arrival.answer(result)
        os._exit(0)
    seat = Seat(arrival.slot, guest, driver, world.host.guest, world.masks, watchdog.lock)
    watchdog.seats = {seat.slot.index: seat}
    arrival.answer(result)
    Worker(world, seat, order["compiled"], variables, watchdog).serve()


class Worker:
    def __init__(
        self, world: WorkerWorld, seat: Seat, compiled: str, variables: RequestVariables, watchdog: Watchdog
    ) -> None:
        self._world = world
        self._seat = seat
        self._compiled = compiled
        self._variables = variables
        self._watchdog = watchdog

    def serve(self) -> NoReturn:
        seat = self._seat
        while True:
            request = seat.slot.wait_request()
            if request[0] < worker_requests.FORK:
                with seat.lock:
                    seat.is_busy = True
                response = seat.answer(request)
            else:
                response = self._obey(request)
            # Only now is it known which slot: a fork goes on here, in two processes.
            seat.slot.send_response(response)
            if response == b"moved":
                os._exit(0)

    def _obey(self, request: bytes) -> bytes:
        op, seq_id, slot, _ = worker_requests.HEAD.unpack_from(request)
        if op == worker_requests.MOVE:
            return self._move()
        return self._fork(seq_id, self._world.table.at(slot)) if op == worker_requests.FORK else self._found(slot)

    def _fork(self, seq_id: int, slot: Slot) -> bytes:
        try:
            branch = self._variables.branch(self._seat.guest.close)
            pid = os.fork()
        except BrokenPipeError:
            return b"cannot fork: the variables of this request are gone"
        except OSError as error:
            return f"cannot fork: {error}".encode()
        if pid != 0:
            branch.close()
            return b"%d" % pid
        self._world.news.born(slot, 0)  # our parent may not live to tell of us
        self._variables.become(branch)
        self._seat.state.seq_id = seq_id
        self._seat.sit(slot)
        self._watchdog.start()
        return b"ok"

    def _found(self, slot: int) -> bytes:
        if not self._seat.guest.is_movable:
            return b"not movable"
        try:
            pid = os.fork()
        except OSError as error:
            return f"cannot fork: {error}".encode()
        if pid == 0:
            self._become_pool(slot)
        return b"%d" % pid

    def _become_pool(self, slot: int) -> NoReturn:
        self._world.news.born(self._world.table.at(slot), 0)
        self._seat.guest.close()
        Pool(self._world, self._world.table.at(slot), self._watchdog).serve()

    def _move(self) -> bytes:
        seat, variables = self._seat, self._variables.document()
        if not seat.guest.is_movable or variables is None or seat.driver.has_failed:
            return b"not movable"
        document = {
            "compiled": self._compiled,
            "handle": seat.driver.handle,
            "state": seat.state.document(),
            "variables": variables,
        }
        return b"moved" if self._world.transfer.put(document, seat.guest) else b"too large to move"
