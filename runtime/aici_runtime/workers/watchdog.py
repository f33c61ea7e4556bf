"""The watchdog: a thread of every worker. Ends the worker with the stepper, and interrupts guests on CANCEL_SIGNAL.

The C part of the signal handler writes to a pipe at once, whatever the main thread does in the guest. The thread then
looks at the worker slots for a cancelled request.
"""

import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from aici_runtime import process
from aici_runtime.memory.worker_slots import CANCEL_SIGNAL, WorkerSlot
from aici_runtime.workers.guest_server import GuestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from aici_runtime.guests.guest import Guest


class Watchdog:
    """Watches the stepper's pidfd and CANCEL_SIGNAL. `servers`: the guests of the process, of which one is at work at a
    time. `newborn`: the guest that a pool brings up meanwhile. `new_lock` returns the lock of the process, open."""

    def __init__(self, stepper_pidfd: int, new_lock: "Callable[[], AbstractContextManager[object]]") -> None:
        self._stepper_pidfd = stepper_pidfd
        self._pipe: tuple[int, int] | None = None
        self._new_lock = new_lock
        self.lock = new_lock()
        self.servers: Mapping[int, GuestServer] = {}
        self.newborn: tuple[WorkerSlot, Guest] | None = None

    def start(self, control: socket.socket | None = None) -> None:
        """Start the thread, also again after a fork: the parent's thread, pipe and lock are useless in the child.

        The end of `control` ends the process, whatever the guest does.
        """
        if self._pipe is None:
            signal.signal(CANCEL_SIGNAL, lambda *_: None)
        else:
            for fd in self._pipe:
                os.close(fd)
        self.lock = self._new_lock()
        for server in self.servers.values():
            server.lock = self.lock
        read_end, write_end = self._pipe = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        process.start_thread(lambda: self._watch(read_end, control))

    def _watch(self, read_end: int, control: socket.socket | None) -> None:
        poller = select.poll()
        if control is not None:
            poller.register(control, select.POLLRDHUP)
        poller.register(self._stepper_pidfd, select.POLLIN)
        poller.register(read_end, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd != read_end:
                    os._exit(0)
                os.read(fd, 64)
                with self.lock:
                    self._look(list(self.servers.values()))

    def _look(self, servers: list[GuestServer]) -> None:
        """Interrupt the guest with a cancelled request, and guests that are to leave a pool. A cancellation that
        arrives late must not hit the next request."""
        for server in servers:
            if server.slot.is_leaving():
                server.guest.end()
            elif server.is_busy and server.slot.is_cancelled():
                server.guest.interrupt()
        if (newborn := self.newborn) is not None and newborn[0].is_leaving():
            newborn[1].end()
