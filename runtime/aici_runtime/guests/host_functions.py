"""The host functions: the imports of module `env`. They act on `HostFunctions.guest`, the state of the running guest.

One object per process, built in the spawner before any fork.
"""

import threading
from collections.abc import Callable, Collection

import orjson

from aici_base.errors import UsageError
from aici_runtime.abi import IMPORTS_V1, IMPORTS_V2, NUM_BLOBS, Blob
from aici_runtime.guests import wasi
from aici_runtime.guests.guest import GuestError
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.linker import HostFunction, Linker
from aici_runtime.memory.mask_region import mask_bytes
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

MAX_RESULT_BYTES = 1024 * 1024
"""The limit of the result of a callback."""

_PROCESS_ARG = int(Blob.PROCESS_ARG)
_WRITE_FIELDS = ("name", "value", "op", "when_version_is")


class StopError(Exception):
    """The guest called `aici_host_stop`."""


class HostFunctions:
    allowed: Collection[str] = frozenset(IMPORTS_V1 | IMPORTS_V2)
    """The imports of module `env` that a guest may call; any other import fails when called."""

    def __init__(
        self,
        vocabulary: LoadedVocabulary,
        tokenize: Callable[[bytes], bytes],
        *,
        capabilities: Collection[str] = (),
        timer_resolution_us: int = 0,
    ) -> None:
        """`tokenize` returns token ids as little-endian u32. `capabilities`: the subset of fork, backtrack and
        ff_tokens offered by the engine."""
        self._vocabulary = vocabulary
        self._tokenize = tokenize
        self._clock_step_ns = timer_resolution_us * 1000
        self._capabilities = frozenset(capabilities)
        self._mask_bytes = mask_bytes(vocabulary.vocab_size)
        self._running = threading.local()
        self.guest = GuestState()

    @property
    def guest(self) -> GuestState:
        """The guest of this thread: a pool starts guests in a thread of their own."""
        guest: GuestState = self._running.guest
        return guest

    @guest.setter
    def guest(self, guest: GuestState) -> None:
        self._running.guest = guest

    def tokens_of(self, text: str) -> list[int]:
        return memoryview(self._tokenize(text.encode())).cast("I").tolist()

    # The methods of `wasi.WasiHost`.

    def read(self, pointer: int, length: int) -> bytes:
        return bytes(self._view(pointer, length))

    def write(self, pointer: int, content: bytes) -> None:
        self._view(pointer, len(content))[:] = content

    def log(self, text: bytes) -> None:
        self.guest.log(text)

    def random(self, length: int) -> bytes:
        return self.guest.random(length)

    def clock_ns(self) -> int:
        return self.guest.age_ns() // self._clock_step_ns * self._clock_step_ns if self._clock_step_ns else 0

    def _refuse(self, pointer: int, length: int) -> None:
        """Raise the error of a pointer out of range."""
        self._view(pointer, length)

    def _view(self, pointer: int, length: int) -> memoryview:
        memory = self.guest.memory
        if memory is None:
            raise GuestError("host function called before the memory exists")
        return memory.view(pointer, length)

    def on_failure(self, error: BaseException) -> str:
        """Return the trap message for an exception raised by a host function."""
        if isinstance(error, StopError | wasi.ExitError):
            self.guest.stop_message = str(error)
        else:
            self.log(f"FATAL ERROR: {error}\n".encode())
        return str(error)

    # The imports of module `env`, by name without `aici_host_`.

    def define(self, linker: Linker, *, returns_offset: bool = False) -> None:
        """Define all host functions. `returns_offset`: the module imports `aici_host_return_logit_bias` with a result
        (ABI v2)."""
        offered = IMPORTS_V1 | IMPORTS_V2 if returns_offset else IMPORTS_V2 | IMPORTS_V1
        for name, signature in offered.items():
            function: HostFunction = getattr(self, name.removeprefix("aici_host_"))
            if signature == IMPORTS_V2.get(name) and name == "aici_host_return_logit_bias":
                function = self.allocate_logit_bias
            if name not in self.allowed:
                function = _not_allowed
            linker.define("env", name, signature, function)
        wasi.define(linker, self)
        linker.attend(self, self._refuse)

    def read_blob(self, blob_id: int, pointer: int, size: int) -> int:
        guest = self.guest
        blob = guest.blobs[blob_id] if blob_id < NUM_BLOBS else guest.trie if blob_id == Blob.TRIE else None
        if blob is None:
            if blob_id not in guest.late:
                raise GuestError("invalid blob_id")
            blob = guest.late_blob(blob_id)
        if size:
            part = blob if size >= len(blob) else blob[:size]
            self._view(pointer, len(part))[:] = part
        return len(blob)

    def token_trie(self) -> int:
        return Blob.TRIE

    def module_arg(self) -> int:
        return Blob.MODULE_ARG

    def process_arg(self) -> int:
        return _PROCESS_ARG

    def tokens(self) -> int:
        return Blob.TOKENS

    def tokenize(self, pointer: int, length: int) -> int:
        try:
            tokens = self._tokenize(self.read(pointer, length))
        except UsageError as error:
            self.log(f"warning: tokenize error: {error}\n".encode())
            tokens = b""
        self.guest.blobs[Blob.TOKENIZE] = tokens
        return Blob.TOKENIZE

    def return_logit_bias(self, pointer: int) -> None:
        bits, masks = self._read_bias(pointer), self.guest.masks
        if not masks:
            masks.append(bits)
            return
        mask = masks[0]
        both = int.from_bytes(mask, "little") | int.from_bytes(bits, "little")
        mask[:] = both.to_bytes(len(bits), "little")

    def allocate_logit_bias(self, pointer: int) -> int:
        """ABI v2: keep every mask apart and return its number, which the result of the callback refers to. Never 0."""
        self.guest.masks.append(self._read_bias(pointer))
        return len(self.guest.masks)

    def _read_bias(self, pointer: int) -> bytearray:
        if not self.guest.takes_mask:
            raise GuestError("logit_ptr is empty")
        return bytearray(self._view(pointer, self._mask_bytes))

    def get_config(self, pointer: int, length: int) -> int:
        return self.read(pointer, length).decode("utf-8", "replace") in self._capabilities

    def self_seq_id(self) -> int:
        return self.guest.seq_id

    def return_process_result(self, pointer: int, length: int) -> None:
        if length > MAX_RESULT_BYTES:  # a parsed result takes many times as much memory
            raise GuestError(f"a result of {length} bytes is too large; at most {MAX_RESULT_BYTES}")
        self.guest.result = bytes(self._view(pointer, length))

    def storage_cmd(self, pointer: int, length: int) -> int:
        if self.guest.storage is None:
            raise GuestError("no storage")
        command = orjson.loads(self.read(pointer, length))
        self.guest.blobs[Blob.STORAGE_RESULT] = self.guest.storage.execute(command)
        if "WriteVar" in command:
            body = command["WriteVar"]
            # Keep only checked fields: an unknown field may hold a value that cannot be written as JSON again.
            self.guest.written.append({"WriteVar": {name: body.get(name) for name in _WRITE_FIELDS}})
        return Blob.STORAGE_RESULT

    def eos_token(self) -> int:
        return self._vocabulary.eos_token

    def stop(self) -> None:
        raise StopError("*** aici_host_stop()")


def _not_allowed(*_: int) -> int:
    raise GuestError("the host function is not allowed here")
