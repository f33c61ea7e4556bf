"""The engine's end of the runtime: starts `aicirt`, owns the shared objects, speaks the wire protocol.

Liveness needs no time-outs. A thread sleeps on the runtime's pidfd and wakes all waiters on mailboxes when the process
ends. A waiter then finds the runtime dead and raises RuntimeDiedError.
"""

import base64
import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

from aici_base.errors import RuntimeDiedError, UsageError
from aici_base.ids import SeqId, TokenId
from aici_runtime import calm_channel, turn_message
from aici_runtime.channels.channel import MIB, Channels, Mailbox, MessageTooLargeError
from aici_runtime.config import RuntimeConfig
from aici_runtime.engine_json import data_of, encode
from aici_runtime.memory import shm
from aici_runtime.memory.mask_region import mask_bytes
from aici_runtime.runtime_process import RuntimeProcess
from aici_runtime.side_calls import LOCAL_USER, SideCalls
from aici_runtime.turn_message import TurnFields
from aici_runtime.wire import (
    Mid,
    MidOp,
    ModuleInfo,
    Patience,
    PostOp,
    PostPre,
    PreOp,
    TagInfo,
    Turn,
    decode_post,
    decode_pre,
    decode_splice,
    seq_results,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Runtime", "RuntimeConfig"]

_INLINE_BYTES = 1 << 20
"""A larger module does not go as base64 in a message."""


class Runtime:
    """A controller runtime: a process group and five shared regions, ended by `close` or with the engine.

    Methods of the main channel (`post_pre_process`, `send_mid`, `send_turn` and so on) belong to one thread; all other
    methods may be called from any thread. After the runtime has died, every method raises RuntimeDiedError.

    >>> with Runtime(RuntimeConfig(tokenizer=tokenizer_folder, cache_dir=folder)) as runtime:
    ...     runtime.wait_ready()
    ...     module = runtime.mk_module(wasm)
    ...     runtime.instantiate(req_id="a", prompt=[], module_id=module.module_id, module_arg="").result()
    ...     bound = runtime.post_pre_process(post_ops=[], pre_ops=[PreOp(SeqId(1), "a")], freed=[])
    ...     runtime.send_mid([MidOp(SeqId(1))])  # the guest computes while the caller computes logits
    ...     answer = runtime.recv_mid().seqs[SeqId(1)]
    >>> bound.pre[SeqId(1)].result.num_forks, answer.error
    (1, '')
    """

    vocab_size: int
    eos_token: TokenId
    pid: int

    def __init__(self, config: RuntimeConfig) -> None:
        """Start the process and return before the process is ready. Raises OSError and the errors of shared memory."""
        shm.sweep()
        self._prefix = shm.unique_prefix()
        self._channels = Channels(self._prefix, config.sync, config.json_size_mib * MIB)
        self._named = True
        self._boxes: dict[tuple[str, str], Mailbox] = {}
        self._threads: list[threading.Thread] = []
        self._bin: shm.Region | None = None
        self._rows: dict[int, memoryview] = {}
        """The first rows of `_bin`, by their number: made once, because a step reads them."""
        self._turn_ops: Sequence[MidOp] = ()
        self._calm_ids: Sequence[SeqId] = ()
        self._calm: calm_channel.CalmChannel | None = None
        # A thread holds a mailbox's lock to touch the mailbox, so `close` cannot unmap under a thread that wakes up.
        self._main_lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._died = False
        self._ended = threading.Event()
        self._closed = False
        self._engine_numbers = itertools.count(1)
        try:
            for direction, side in self._channels.each():
                self._boxes[direction, side] = self._channels.create(direction, side)
            self._calm = calm_channel.load(self._boxes["cmd", ""], self._boxes["resp", ""])
            self._side = SideCalls(
                self._boxes["resp", "-side"], partial(self._send, self._boxes["cmd", "-side"]), self._check_alive
            )
            self._bin = shm.create_region(f"{self._prefix}bin-shm", config.bin_size_mib * MIB)
            self._process = RuntimeProcess(config.command(self._prefix))
            self.pid = self._process.pid
            self._threads = [
                threading.Thread(target=self._watch, name="aicirt-watch", daemon=True),
                threading.Thread(target=self._side.serve, name="aicirt-side", daemon=True),
            ]
            for thread in self._threads:
                thread.start()
        except BaseException:
            # A signal may strike anywhere above, and nobody else knows the names yet.
            if hasattr(self, "_process"):
                self.close()
            else:
                self._release_memory()
            raise

    def wait_ready(self) -> None:
        """Block until the runtime serves both channels, then unlink every name, so that nothing can be left behind."""
        self.ping()
        self._side.call({"op": "ping"}).result()
        tokens = self.call({"op": "tokens"})
        self.vocab_size = tokens["vocab_size"]
        self.eos_token = TokenId(tokens["eos_token_id"])
        self._row_bytes = mask_bytes(self.vocab_size)
        self._unlink()

    def add_engine(self) -> int:
        """Return 1 to the first engine that uses this runtime, 2 to the second, and so on.

        An engine puts the number into every `req_id`: a `req_id` is taken while its guest starts, even if the engine
        has ended meanwhile. Does not raise RuntimeDiedError.
        """
        return next(self._engine_numbers)

    # Side channel.

    def mk_module(
        self, wasm: bytes | Path, *, user: str = LOCAL_USER, is_admin: bool = True, compile_later: bool = False
    ) -> ModuleInfo:
        """Upload and compile a module, given as bytes or as a file. Idempotent.

        The runtime reads a file, and more than 1 MiB of bytes, by itself: a module may be larger than a message. For a
        user who is not an admin, every module goes as a message. `compile_later`, for admins: return at once; the
        module is compiled in the background, or when its first guest starts, if that is earlier. Raises UsageError for
        anything but a WebAssembly module, and for a file that cannot be read.
        """
        with contextlib.ExitStack() as stack:
            request: dict[str, object] = {"op": "mk_module"} | ({"compile_later": True} if compile_later else {})
            if isinstance(wasm, Path) and is_admin:
                request["path"] = str(wasm.absolute())
            else:
                content = wasm.read_bytes() if isinstance(wasm, Path) else wasm
                if is_admin and len(content) > _INLINE_BYTES:
                    request["path"] = stack.enter_context(_shared_file(content))
                else:
                    request["binary"] = base64.b64encode(content).decode()
            data = self._side.call(request, user=user, is_admin=is_admin).result()
        return ModuleInfo(data["module_id"], data["wasm_size"], data["compiled_size"], data["time"])

    def set_tags(
        self, module_id: str, tags: Sequence[str], *, user: str = LOCAL_USER, is_admin: bool = True
    ) -> list[TagInfo]:
        """Set tags. Without admin rights, only tags that begin with `{user}.` are allowed; else UsageError."""
        request = {"op": "set_tags", "module_id": module_id, "tags": list(tags)}
        data = self._side.call(request, user=user, is_admin=is_admin).result()
        return [TagInfo(**info) for info in data["tags"]]

    def get_tags(self) -> list[TagInfo]:
        """Return all tags, newest first."""
        return [TagInfo(**info) for info in self._side.call({"op": "get_tags"}).result()["tags"]]

    def instantiate(
        self,
        *,
        req_id: str,
        prompt: Sequence[TokenId],
        module_id: str,
        module_arg: object,
        seed: int = 0,
        user: str = LOCAL_USER,
    ) -> "Future[None]":
        """Start a guest without blocking. `module_id` may be a tag; `seed` (64 bits) seeds the guest's randomness.
        Guests of two users never share a process.

        The future raises ControllerError with the guest's message and log if the guest does not come up, NotFoundError
        for an unknown module or tag, UsageError for other wrong arguments. The future cannot be cancelled. Afterwards,
        bind the guest with a PreOp or `discard` the guest; nothing else ends it.
        """
        return self._side.call(
            {
                "op": "instantiate",
                "req_id": req_id,
                "prompt": list(prompt),
                "module_id": module_id,
                "module_arg": module_arg,
                "seed": seed,
            },
            user=user,
            decode=lambda _: None,
        )

    def discard(self, req_id: str) -> None:
        """End a guest that will never be bound, whether up yet or not. Idempotent; does not wait."""
        self._side.call({"op": "discard", "req_id": req_id})

    # Main channel.

    def post_pre_process(
        self, *, post_ops: Sequence[PostOp], pre_ops: Sequence[PreOp], freed: Sequence[SeqId]
    ) -> PostPre:
        """Run post for `post_ops` and pre for all sequences. A guest's failure is in the SeqResult of its sequence.

        Raises AiciError if the command as a whole is refused.
        """
        data = self.call(
            {
                "op": "post_pre_process",
                "post_ops": [op.to_json() for op in post_ops],
                "pre_ops": [op.to_json() for op in pre_ops],
                "freed": list(freed),
            }
        )
        return PostPre(seq_results(data["post_seqs"], decode_post), seq_results(data["pre_seqs"], decode_pre))

    def send_mid(self, ops: Sequence[MidOp]) -> None:
        """Let the guests compute masks while the caller computes logits. `recv_mid` must follow."""
        self._send_main({"op": "mid_process", "ops": [op.to_json() for op in ops]})

    def recv_mid(self) -> Mid:
        data = self._receive_main()
        return Mid(seq_results(data["seqs"], decode_splice), data["num_seqs"])

    def send_turn(
        self,
        *,
        post_ops: Sequence[PostOp],
        pre_ops: Sequence[PreOp],
        asked: Sequence[SeqId],
        ops: Sequence[MidOp],
        freed: Sequence[SeqId],
        patience: Patience | None = None,
    ) -> None:
        """Run post and pre for `asked` and for the sequences bound by `pre_ops`, and mid for `ops`, in a single
        message.

        A sequence may be in both lists. Its guest then computes the mask if post and pre say nothing but to go on. No
        sequence asked for pre may be cloned. `patience` counts only if the runtime waits for late guests at all
        (`late_steps`). `recv_turn` must follow.
        """
        fields = TurnFields(list(post_ops), list(pre_ops), list(asked), list(ops), list(freed), patience)
        try:
            message = turn_message.encode(fields)
        except (OverflowError, TypeError):
            message = encode(fields.to_json())  # the runtime refuses the number by name
        self._send_message(message)
        self._turn_ops = fields.ops

    def recv_turn(self) -> Turn:
        if self._calm_ids:
            self._turn_ops, self._calm_ids = list(map(MidOp, self._calm_ids)), ()
        message = self._receive_message()
        if turn_message.is_turn(message):
            return turn_message.decode_answer(message, self._turn_ops)
        return turn_message.turn_of(data_of(orjson.loads(message)))

    def send_calm(self, ids: Sequence[SeqId], tokens: Sequence[TokenId], patience: Patience | None) -> None:
        """Do as `send_turn` for guests that are each told of one token and asked for all: `tokens[i]` for `ids[i]`.
        `recv_calm` must follow."""
        if self._calm is not None:
            with self._main_lock:
                self._check_alive()
                is_sent = self._calm.send(ids, tokens, patience)
                self._check_alive()
            if is_sent:
                self._turn_ops, self._calm_ids = (), ids
                return
        posts = [PostOp(seq_id, [token]) for seq_id, token in zip(ids, tokens, strict=True)]
        ops = list(map(MidOp, ids))
        self.send_turn(post_ops=posts, pre_ops=[], asked=ids, ops=ops, freed=[], patience=patience)

    def recv_calm(self) -> list[int] | None:
        """Return the microseconds of each guest if all have a mask and nothing else to say. Else return None:
        `recv_turn` must follow."""
        if self._calm is None or not self._calm_ids:
            return None
        with self._main_lock:
            self._check_alive()
            micros = self._calm.receive(len(self._calm_ids))
            self._check_alive()
        if micros is not None:
            self._calm_ids = ()
        return micros

    def ping(self) -> None:
        """Make a round trip without any guest."""
        self.call({"op": "ping"})

    def call(self, request: Mapping[str, object]) -> Any:
        """Send a request in wire form, for operations without a method here. Return the data of the response."""
        self._send_main(request)
        return self._receive_main()

    def mask_rows(self, n: int) -> memoryview:
        """Return the bits of the latest mid or turn, row i for `ops[i]`: shape (n, row_bytes), bit k (least significant
        first) set = token k allowed.

        Valid until the next mid or turn is sent. Only after `wait_ready`; n is at least 1.
        """
        with self._main_lock:
            self._check_alive()
            rows = self._rows.get(n)
            if rows is None:
                rows = self._rows[n] = self._map_rows(n)
            return memoryview(rows)  # a view of the caller's own, to release

    def _map_rows(self, n: int) -> memoryview:
        if self._bin is None:
            raise self._death()
        return memoryview(self._bin)[: n * self._row_bytes].toreadonly().cast("B", (n, self._row_bytes))

    def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Block until the runtime has died or was closed. Return False on a time-out. From any thread."""
        return self._ended.wait(timeout_s)

    def close(self) -> None:
        """End all processes of the runtime and wait for their end. Idempotent; from any thread. Ends the waits of other
        threads."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
            self._process.end()
            for thread in self._threads:
                if thread.ident is not None:  # only if started
                    thread.join()
            with self._main_lock, self._side.lock:
                self._release_memory()

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send_main(self, request: Mapping[str, object]) -> None:
        self._send_message(encode(request))

    def _send_message(self, message: bytes) -> None:
        with self._main_lock:
            self._send(self._boxes["cmd", ""], message)

    def _receive_main(self) -> Any:
        return data_of(orjson.loads(self._receive_message()))

    def _receive_message(self) -> bytes:
        with self._main_lock:
            self._check_alive()
            message = self._boxes["resp", ""].receive()
            self._check_alive()
        return message

    def _send(self, box: Mailbox, message: bytes) -> None:
        self._check_alive()
        try:
            box.send(message)
        except MessageTooLargeError as error:
            raise UsageError(str(error), hint="raise json_size_mib") from error
        self._check_alive()

    def _watch(self) -> None:
        """Thread: sleep until the runtime's process ends."""
        self._process.wait_ended()
        self._died = True
        self._side.fail(self._death())
        for box in self._boxes.values():
            box.wake_everyone()
        self._ended.set()

    def _check_alive(self) -> None:
        if self._died or self._closed:
            raise self._death()

    def _death(self) -> RuntimeDiedError:
        if self._closed:
            return RuntimeDiedError("the controller runtime has been closed")
        return RuntimeDiedError(
            f"the controller runtime (process {self.pid}) has died\n{self._process.last_words()}".rstrip()
        )

    def _unlink(self) -> None:
        if self._named:
            self._named = False
            self._channels.unlink()
            shm.unlink_region(f"{self._prefix}bin-shm")

    def _release_memory(self) -> None:
        self._unlink()
        for box in self._boxes.values():
            box.close()
        if self._bin is not None:
            # Rows still in use by a caller keep the mapping until they are gone.
            for release in (*(rows.release for rows in self._rows.values()), self._bin.close):
                with contextlib.suppress(BufferError):
                    release()


@contextlib.contextmanager
def _shared_file(content: bytes) -> Iterator[str]:
    """Give a path under which the runtime's processes can read `content`. Nothing is left on any disk."""
    fd = os.memfd_create("aici-module", os.MFD_CLOEXEC)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{fd}"
