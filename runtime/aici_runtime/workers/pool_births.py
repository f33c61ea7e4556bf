"""The thread of a pool that starts guests, while the main thread serves those that are up (`pool_process.py`).

The side process asks for a guest as for a fork of a template (`startup.py`): by a slot, its memory and a socket, on
which the guest's order comes and the outcome is reported. Guests start one after another.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson
import wasmtime

from aici_runtime.channels import socket_frames
from aici_runtime.guests import snapshot
from aici_runtime.guests.driver import SetupError
from aici_runtime.guests.guest import Memory
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.memory.worker_slots import BY_POOL, WorkerSlot
from aici_runtime.workers.guest_setup import WorkerContext, bring_up, start_guest
from aici_runtime.workers.request_variables import RequestVariables
from aici_runtime.workers.startup import SPAWN_REQUEST
from aici_runtime.workers.watchdog import Watchdog

if TYPE_CHECKING:
    from aici_runtime.workers.pool_process import PoolProcess


class PoolBirths:
    """`vocabulary`: a descriptor of the module's snapshot, None for none. The end of `control` ends the pool with its
    last guest."""

    def __init__(
        self,
        context: WorkerContext,
        module: wasmtime.Module,
        vocabulary: int | None,
        pool: "PoolProcess",
        watchdog: Watchdog,
        *,
        control: socket.socket,
    ) -> None:
        self._context = context
        self._module = module
        self._vocabulary = vocabulary
        self._pool = pool
        self._watchdog = watchdog
        self._control = control

    def run(self) -> None:
        """Start guests until `control` ends."""
        try:
            self._run()
        finally:  # also after a failure, such as a lack of memory: else nobody would read the end of `control`
            self._control.close()
            self._pool.take_in_no_more()

    def _run(self) -> None:
        while True:
            message, fds, _, _ = socket.recv_fds(self._control, SPAWN_REQUEST.size, 3)
            if not message:
                return
            if len(fds) < 2:  # no descriptor was left: the side process reads the end of the stream
                _close(fds)
                continue
            number, generation = SPAWN_REQUEST.unpack(message)
            try:
                with socket.socket(fileno=fds[0]) as setup:
                    self._bear(self._context.table.attach(number, fds[1]), generation, setup, *fds[2:])
            finally:
                _close(fds[2:])

    def _bear(self, slot: WorkerSlot, generation: int, setup: socket.socket, image: int = -1) -> None:
        self._context.reports.joined(slot, self._pool.slot, generation)
        try:
            order = socket_frames.receive(setup)
            if order is None:
                raise BrokenPipeError
            answer = self._start(slot, orjson.loads(order), image)
        except BrokenPipeError:  # the process that asked is gone
            self._leave(slot)
            return
        except SetupError as error:
            self._leave(slot)
            answer = {"error": str(error)}
        try:
            socket_frames.send(setup, orjson.dumps(answer))
        except BrokenPipeError:  # nobody will bind the guest
            slot.request_leave()
            self._pool.slot.ring(BY_POOL)

    def _start(self, slot: WorkerSlot, order: dict[str, Any], image: int) -> dict[str, object]:
        """Start a guest and bring it up. Raises SetupError without a guest; another failure is in the answer.

        `image`: a file (-1: none). With `image` in the order, the guest starts from the file and what the order says of
        the image; else the guest that has read its argument is written to the file, and the answer has `image`.
        """
        context, birth = self._context, _Birth(order)
        context.table.learn_protocol(order["protocol"])
        state = context.host_functions.guest = GuestState(log_max_bytes=context.limits.log_bytes)
        state.storage = RequestVariables(context.stepper_pidfd)
        is_image = "image" in order
        snapshot_file = image if is_image else self._vocabulary
        guest, driver = start_guest(context, self._module, snapshot_file, order, birth, self._pool.emptied)
        is_created = is_image and guest.is_initialized  # else the image was of no use
        if is_created:
            driver.handle = order["image"]["handle"]
            state.log(bytes.fromhex(order["image"]["log"]))
        made: dict[str, object] = {}

        def write_image() -> None:
            if state.is_of_argument():
                with contextlib.suppress(snapshot.NoSnapshotError, OSError):
                    snapshot.write(guest, image)
                    made["image"] = {"handle": driver.handle, "log": state.log_so_far().hex()}

        self._watchdog.newborn = slot, guest
        try:
            if slot.is_leaving():  # given up before the watchdog knew the guest
                guest.close()
                raise SetupError("Error (setup): given up")
            writes = image >= 0 and not is_image
            on_created = write_image if writes else None
            answer = bring_up(context, guest, driver, birth, is_created=is_created, on_created=on_created)
        finally:
            with self._watchdog.lock:  # a look at the newborn is over: it must not end the next guest of the instance
                self._watchdog.newborn = None
        self._pool.add(slot, guest, driver, state)
        return answer | made

    def _leave(self, slot: WorkerSlot) -> None:
        self._context.table.forget(slot)  # first: the slot may be another guest's after the report
        self._context.reports.left(slot)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class _Birth:
    """A start whose request is known from the beginning."""

    is_template = False

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self.asked_ns = time.perf_counter_ns()

    def request(self, _memory: Memory) -> dict[str, Any]:
        return self._order
