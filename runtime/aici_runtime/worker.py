"""The `aicirt-seq` process: one guest, one sequence. It does what its slot asks (`asks.py`), and forks itself.

A worker that is too late for its row is *detached* (see Watchdog): the mask then comes with the answer.
"""

import os
import select
import signal
import socket
import struct
import threading
import warnings
from collections.abc import Sequence
from typing import NoReturn

from aici_runtime import answers, asks, process
from aici_runtime.arrival import Arrival
from aici_runtime.callbacks import Callbacks, SetupError, encode_result
from aici_runtime.comms import RequestVariables
from aici_runtime.guest import Guest
from aici_runtime.masks import Rows
from aici_runtime.setup import WorkerWorld, bring_up, load
from aici_runtime.slots import CANCEL_SIGNAL, RESPONSE_MAX, Slot

_LENGTH = struct.Struct("<I")


def main(world: WorkerWorld, slot: int, generation: int, setup: socket.socket) -> NoReturn:
    """Bring the guest up as `setup` asks, say on that socket how it went, then serve the slot for ever.

    Raises BrokenPipeError when the one who asked is gone: then the slot is not ours, and is not touched.
    """
    watchdog = Watchdog(world.stepper_pidfd)
    arrival = Arrival(setup, table=world.table, news=world.news, watch=watchdog)
    order = arrival.begin(slot, generation)
    variables = world.host.guest.storage = RequestVariables(world.stepper_pidfd)
    try:
        guest, callbacks = load(world, order, arrival)
    except SetupError as error:
        arrival.answer({"error": str(error)})
        os._exit(0)
    arrival.answer(bring_up(world, guest, callbacks, arrival))
    if arrival.is_template:
        os._exit(0)
    if guest.abi == "branches":
        arrival.slot.set_masks_in_pre()
    watchdog.guest = guest
    Worker(world, arrival.slot, guest, callbacks, variables, watchdog).serve()


class Watchdog:
    """A thread asleep on two things: the stepper's end, which ends us, and CANCEL_SIGNAL, which makes it look at the
    slot: the guest is to be interrupted, or its request detached, so that no row of the mask region is touched for it.

    The signal's handler runs in C and writes to a pipe at once, whatever the main thread is doing in the guest.
    """

    def __init__(self, stepper_pidfd: int) -> None:
        self._stepper_pidfd = stepper_pidfd
        self._pipe: tuple[int, int] | None = None
        self.lock = threading.Lock()
        self.slot: Slot | None = None
        self.busy = False
        self.detached = False
        self.guest: Guest | None = None

    def start(self, slot: Slot | None, control: socket.socket | None = None) -> None:
        """Also after a fork: the thread, the pipe and the lock are the parent's, and useless here.

        The end of `control` ends this process, whatever its guest does.
        """
        if self._pipe is None:
            signal.signal(CANCEL_SIGNAL, lambda *_: None)
        else:
            for fd in self._pipe:
                os.close(fd)
        self.slot = slot
        self.lock = threading.Lock()
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
                    # What comes too late must not hit the next request.
                    if self.slot is None or not self.busy:
                        continue
                    if self.slot.is_cancelled() and self.guest is not None:
                        self.guest.interrupt()
                    elif self.slot.is_detached():
                        self.detached = True
                        self.slot.confirm_detached()


class Worker:
    def __init__(
        self,
        world: WorkerWorld,
        slot: Slot,
        guest: Guest,
        callbacks: Callbacks,
        variables: RequestVariables,
        watchdog: Watchdog,
    ) -> None:
        self._world = world
        self._state = world.host.guest
        self._slot = slot
        self._guest = guest
        self._callbacks = callbacks
        self._variables = variables
        self._watchdog = watchdog

    def serve(self) -> NoReturn:
        while True:
            request = self._slot.wait_request()
            with self._watchdog.lock:
                self._watchdog.busy = True
                self._watchdog.detached = False
            response = self._handle(request)
            # Only now is it known which slot: a fork goes on here, in two processes.
            self._slot.send_response(response)

    def _handle(self, request: bytes) -> bytes:
        op, seq_id, number, backtrack = asks.HEAD.unpack_from(request)
        rest = request[asks.HEAD.size :]
        if op == asks.MID:
            result, bits = self._callbacks.mid(rest)
            return self._answer(result, () if bits is None else (bits,), self._world.masks.rows, number)
        if op == asks.STEP:
            self._state.seq_id = seq_id
            result, masks = self._callbacks.step(rest, number)
            return self._answer(result, masks, self._world.masks.slots, number)
        if op == asks.FORK:
            self._stand_by()
            return self._fork(seq_id, self._world.table.at(number))
        self._state.seq_id = seq_id
        post = self._callbacks.post(rest, backtrack) if op == asks.POST else b""
        pre = self._callbacks.pre()
        self._stand_by()
        if len(post) + len(pre) > RESPONSE_MAX - _LENGTH.size:
            half = RESPONSE_MAX // 2 - _LENGTH.size
            post, pre = _fitting(post, half), _fitting(pre, half)
        return _LENGTH.pack(len(post)) + post + pre

    def _answer(self, result: bytes, masks: Sequence[bytes | bytearray], rows: Rows, row: int) -> bytes:
        loose = masks
        with self._watchdog.lock:
            if masks and not self._watchdog.detached:
                rows.write(row, masks[0])
                loose = masks[1:]
            self._watchdog.busy = False
        answer = answers.encode(result, len(masks), loose)
        if len(answer) <= RESPONSE_MAX:
            return answer
        return answers.encode(_too_large(len(answer), RESPONSE_MAX), 0, ())

    def _stand_by(self) -> None:
        with self._watchdog.lock:
            self._watchdog.busy = False

    def _fork(self, seq_id: int, slot: Slot) -> bytes:
        try:
            branch = self._variables.branch(self._guest.close)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the only other thread sleeps in poll
                pid = os.fork()
        except OSError as error:
            return f"cannot fork: {error}".encode()
        if pid != 0:
            branch.close()
            return b"%d" % pid
        self._world.news.born(slot, 0)
        self._variables.become(branch)
        self._state.seq_id = seq_id
        self._slot = slot
        if self._guest.abi == "branches":
            slot.set_masks_in_pre()
        self._watchdog.start(slot)
        return b"ok"


def split_post_pre(response: bytes) -> tuple[bytes, bytes]:
    """The two results in the response to `pp`; the first is empty when there was no post op."""
    end = _LENGTH.size + _LENGTH.unpack_from(response)[0]
    return response[_LENGTH.size : end], response[end:]


def _fitting(result: bytes, limit: int) -> bytes:
    return result if len(result) <= limit else _too_large(len(result), limit)


def _too_large(length: int, limit: int) -> bytes:
    error = f"Worker: result too large; {length} > {limit}"
    return encode_result(result=None, error=error, storage=[], logs=error, micros=0)
