"""The `aicirt-seq` process: one guest, one sequence. It waits on its slot, runs callbacks, and forks itself.

Requests are JSON with a field `op`:
    pp    {id, post: {tokens, backtrack} | null}   → u32 length of the post result, post result, pre result
    mid   {row, fork_group}                        → result; the mask goes to the row
    fork  {id, slot}                               → pid of the branch, which answers `ok` on its own slot; or an error
"""

import os
import select
import signal
import socket
import struct
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import orjson
import wasmtime

from aici_runtime import frames, process
from aici_runtime.callbacks import Callbacks, PostArg, SetupError, encode_result
from aici_runtime.comms import RequestVariables
from aici_runtime.flags import Limits
from aici_runtime.guest import Guest, GuestError
from aici_runtime.host import Host
from aici_runtime.link import Linker
from aici_runtime.masks import MaskRegion
from aici_runtime.roster import News
from aici_runtime.slots import CANCEL_SIGNAL, RESPONSE_MAX, Slot, SlotTable
from aici_runtime.vocabulary import LoadedVocabulary

PROCESS_NAME = "aicirt-seq"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWorld:
    """What the spawner prepares once and every worker inherits."""

    engine: wasmtime.Engine
    linker: Linker
    host: Host
    table: SlotTable
    news: News
    masks: MaskRegion
    vocabulary: LoadedVocabulary
    limits: Limits
    stepper_pidfd: int


def main(world: WorkerWorld, slot: Slot, generation: int, setup: socket.socket) -> NoReturn:
    """Bring the guest up as `setup` asks, say on that socket how it went, then serve the slot for ever.

    Raises BrokenPipeError when the one who asked is gone: then the slot is not ours, and is not touched.
    """
    process.set_name(PROCESS_NAME)
    world.news.born(slot, generation)
    frames.send(setup, b"")
    watchdog = Watchdog(world.stepper_pidfd)
    watchdog.start(slot)
    variables = world.host.storage = RequestVariables(world.stepper_pidfd)
    with setup:
        message = frames.receive(setup)
        if message is None:
            os._exit(0)
        try:
            guest, callbacks = _set_up(world, orjson.loads(message))
        except SetupError as error:
            frames.send(setup, orjson.dumps({"error": str(error)}))
            os._exit(0)
        frames.send(setup, orjson.dumps({"error": ""}))
    watchdog.guest = guest
    Worker(world, slot, guest, callbacks, variables, watchdog).serve()


def _set_up(world: WorkerWorld, request: dict[str, Any]) -> tuple[Guest, Callbacks]:
    world.host.set_module_arg(request["module_arg"].encode())
    compiled = Path(request["compiled"])
    try:
        guest = Guest(
            engine=world.engine,
            linker=world.linker.wasmtime,
            compiled=compiled,
            memory_max_bytes=world.limits.memory_bytes,
        )
    except (GuestError, wasmtime.WasmtimeError) as error:
        reason = error if compiled.is_file() else "the controller was removed while it was started"
        raise SetupError(f"Error (setup): {reason}") from error
    world.host.memory = guest.memory
    callbacks = Callbacks(
        guest=guest,
        host=world.host,
        masks=world.masks,
        vocab_size=world.vocabulary.vocab_size,
        eos_token=world.vocabulary.eos_token,
        max_forks=world.limits.forks,
    )
    callbacks.setup(request["prompt"])
    return guest, callbacks


class Watchdog:
    """A thread asleep on two things: the stepper's end, which ends us, and CANCEL_SIGNAL, which interrupts the guest.

    The signal's handler runs in C and writes to a pipe at once, whatever the main thread is doing in the guest.
    """

    def __init__(self, stepper_pidfd: int) -> None:
        self._stepper_pidfd = stepper_pidfd
        self._pipe: tuple[int, int] | None = None
        self.lock = threading.Lock()
        self.busy = False
        self.guest: Guest | None = None

    def start(self, slot: Slot) -> None:
        """Also after a fork: the thread, the pipe and the lock are the parent's, and useless here."""
        if self._pipe is not None:
            for fd in self._pipe:
                os.close(fd)
        self.lock = threading.Lock()
        read_end, write_end = self._pipe = os.pipe()
        os.set_blocking(write_end, False)
        signal.signal(CANCEL_SIGNAL, lambda *_: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        process.start_thread("watchdog", lambda: self._watch(slot, read_end))

    def _watch(self, slot: Slot, read_end: int) -> None:
        poller = select.poll()
        poller.register(self._stepper_pidfd, select.POLLIN)
        poller.register(read_end, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == self._stepper_pidfd:
                    os._exit(0)
                os.read(fd, 64)
                with self.lock:
                    # A cancellation that comes too late must not hit the next request.
                    if self.busy and slot.is_cancelled() and self.guest is not None:
                        self.guest.interrupt()


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
        self._slot = slot
        self._guest = guest
        self._callbacks = callbacks
        self._variables = variables
        self._watchdog = watchdog

    def serve(self) -> NoReturn:
        while True:
            request = orjson.loads(self._slot.wait_request())
            self._set_busy(True)
            response = self._handle(request)
            self._set_busy(False)
            self._slot.send_response(response)

    def _set_busy(self, busy: bool) -> None:
        with self._watchdog.lock:
            self._watchdog.busy = busy

    def _handle(self, request: dict[str, Any]) -> bytes:
        op = request["op"]
        if op == "mid":
            return _fitting(self._callbacks.mid(request["fork_group"], request["row"]), RESPONSE_MAX)
        if op == "pp":
            self._world.host.seq_id = request["id"]
            post = b""
            if request["post"] is not None:
                post = self._callbacks.post(PostArg(request["post"]["tokens"], request["post"]["backtrack"]))
            half = RESPONSE_MAX // 2 - _LENGTH.size
            post, pre = _fitting(post, half), _fitting(self._callbacks.pre(), half)
            return _LENGTH.pack(len(post)) + post + pre
        return self._fork(request["id"], self._world.table.at(request["slot"]))

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
        self._variables.become(branch)
        self._world.host.seq_id = seq_id
        self._slot = slot
        self._watchdog.start(slot)
        return b"ok"


def split_post_pre(response: bytes) -> tuple[bytes, bytes]:
    """The two results in the response to `pp`; the first is empty when there was no post op."""
    end = _LENGTH.size + _LENGTH.unpack_from(response)[0]
    return response[_LENGTH.size : end], response[end:]


def _fitting(result: bytes, limit: int) -> bytes:
    if len(result) <= limit:
        return result
    error = f"Worker: result too large; {len(result)} > {limit}"
    return encode_result(result=None, error=error, storage=[], logs=error, micros=0)
