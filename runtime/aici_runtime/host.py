"""What a guest sees of the world: the `env` imports, and the state behind them.

One object per process. It is built empty in the spawner, before the fork, and filled by the worker; a fork of the
worker inherits all of it, an unsent log included.
"""

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from aici_runtime import wasi
from aici_runtime.abi import IMPORTS, LOG_DROP_BYTES, LOG_MAX_BYTES, NUM_BLOBS, UNBOUND_SEQ_ID, Blob
from aici_runtime.guest import GuestError, Memory
from aici_runtime.link import HostFunction, Linker
from aici_runtime.masks import mask_bytes
from aici_runtime.vocabulary import LoadedVocabulary

_WRITE_FIELDS = ("name", "value", "op", "when_version_is")


class Storage(Protocol):
    """Variables shared by the forks of a request. Takes and gives JSON of StorageCmd and StorageResp."""

    def execute(self, command: dict[str, Any]) -> bytes: ...


class StopError(Exception):
    """The guest asked to be stopped, or exited."""


class Host:
    def __init__(self, vocabulary: LoadedVocabulary, tokenize: Callable[[bytes], bytes]) -> None:
        """`tokenize` gives token ids as little-endian u32."""
        self._vocabulary = vocabulary
        self._tokenize = tokenize
        self._mask_bytes = mask_bytes(vocabulary.vocab_size)
        self._blobs = [b""] * NUM_BLOBS
        self._log = bytearray()
        self.memory: Memory | None = None
        self.storage: Storage | None = None
        self.seq_id = UNBOUND_SEQ_ID
        self.result: bytes | None = None
        self.written: list[dict[str, Any]] = []
        self.mask: bytearray | None = None
        self.takes_mask = False
        self.stop_message: str | None = None

    def begin_call(self, argument: bytes, *, takes_mask: bool = False) -> None:
        self._blobs[Blob.PROCESS_ARG] = argument
        self.result = None
        self.mask = None
        self.takes_mask = takes_mask

    def set_module_arg(self, argument: bytes) -> None:
        self._blobs[Blob.MODULE_ARG] = argument

    def take_log(self) -> str:
        text = self._log.decode("utf-8", "replace")
        self._log.clear()
        return text

    def take_written(self) -> list[dict[str, Any]]:
        written, self.written = self.written, []
        return written

    # WasiHost

    def read(self, pointer: int, length: int) -> bytes:
        return self._require_memory().read(pointer, length)

    def write(self, pointer: int, content: bytes) -> None:
        self._require_memory().write(pointer, content)

    def log(self, text: bytes) -> None:
        self._log += text
        if len(self._log) > LOG_MAX_BYTES:
            # At least LOG_DROP_BYTES at once, so that a chatty guest does not move the buffer on every line.
            del self._log[: max(LOG_DROP_BYTES, len(self._log) - LOG_MAX_BYTES)]

    def _require_memory(self) -> Memory:
        if self.memory is None:
            raise GuestError("host function called before the memory exists")
        return self.memory

    def on_failure(self, error: BaseException) -> str:
        """The message of the trap for what a host function raised."""
        if isinstance(error, StopError | wasi.ExitError):
            self.stop_message = str(error)
        else:
            self.log(f"FATAL ERROR: {error}\n".encode())
        return str(error)

    # Imports of module `env`, by name.

    def define(self, linker: Linker) -> None:
        for name, signature in IMPORTS.items():
            function: HostFunction = getattr(self, name.removeprefix("aici_host_"))
            linker.define("env", name, signature, function)
        wasi.define(linker, self)

    def read_blob(self, blob_id: int, pointer: int, size: int) -> int:
        blob = self._vocabulary.trie if blob_id == Blob.TRIE else self._blobs[blob_id] if blob_id < NUM_BLOBS else None
        if blob is None:
            raise GuestError("invalid blob_id")
        if size:
            self._require_memory().write(pointer, blob, min(size, len(blob)))
        return len(blob)

    def token_trie(self) -> int:
        return Blob.TRIE

    def module_arg(self) -> int:
        return Blob.MODULE_ARG

    def process_arg(self) -> int:
        return Blob.PROCESS_ARG

    def tokens(self) -> int:
        return Blob.TOKENS

    def tokenize(self, pointer: int, length: int) -> int:
        self._blobs[Blob.TOKENIZE] = self._tokenize(self.read(pointer, length))
        return Blob.TOKENIZE

    def return_logit_bias(self, pointer: int) -> None:
        if not self.takes_mask:
            raise GuestError("logit_ptr is empty")
        bits = self.read(pointer, self._mask_bytes)
        if self.mask is None:
            self.mask = bytearray(bits)
        else:
            both = int.from_bytes(self.mask, "little") | int.from_bytes(bits, "little")
            self.mask[:] = both.to_bytes(len(bits), "little")

    def self_seq_id(self) -> int:
        return self.seq_id

    def return_process_result(self, pointer: int, length: int) -> None:
        self.result = self.read(pointer, length)

    def storage_cmd(self, pointer: int, length: int) -> int:
        if self.storage is None:
            raise GuestError("no storage")
        command = orjson.loads(self.read(pointer, length))
        self._blobs[Blob.STORAGE_RESULT] = self.storage.execute(command)
        if "WriteVar" in command:
            body = command["WriteVar"]
            # Only what was checked: an unknown field may hold what cannot be written as JSON again.
            self.written.append({"WriteVar": {name: body.get(name) for name in _WRITE_FIELDS}})
        return Blob.STORAGE_RESULT

    def eos_token(self) -> int:
        return self._vocabulary.eos_token

    def stop(self) -> None:
        raise StopError("*** aici_host_stop()")
