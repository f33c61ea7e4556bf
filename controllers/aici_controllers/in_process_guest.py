"""Run shipped guests in this process, called as the runtime calls guests: same wasmtime configuration, linker and
wrapper.

For measurements. Modules are compiled beforehand, as in the runtime's cache; the time of a guest is not limited.
"""

import tempfile
import time
from pathlib import Path

import orjson
import wasmtime

from aici_controllers.catalog import guest_path
from aici_runtime.abi import Blob
from aici_runtime.guests import wasmtime_engine
from aici_runtime.guests.guest import Guest, GuestError, load_module
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.guests.linker import Linker
from aici_runtime.memory.mask_region import mask_bytes
from aici_runtime.tokenizer import host_tokenizer
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

MEMORY_MAX_BYTES = 64 << 20

_MID = b'{"fork_group":[1]}'


class GuestFailedError(Exception):
    """The guest failed; the message is the guest's."""


class InProcessRuntime:
    def __init__(self, vocabulary: LoadedVocabulary) -> None:
        self._vocabulary = vocabulary
        self._engine = wasmtime_engine.new_engine()
        self._folder = tempfile.TemporaryDirectory(prefix="aici-bench-")
        self._compiled: dict[str, Path] = {}
        self._tokenize = host_tokenizer.load(vocabulary.tokenizer_json, vocabulary.tries["v2"])

    def close(self) -> None:
        self._folder.cleanup()

    def compile(self, guest: str) -> float:
        """Compile a guest ahead, so that the time of `start` does not include compilation. Return the seconds taken."""
        started = time.perf_counter()
        if guest not in self._compiled:
            out = Path(self._folder.name) / f"{guest}.cwasm"
            out.write_bytes(bytes(wasmtime.Module(self._engine, guest_path(guest).read_bytes()).serialize()))
            self._compiled[guest] = out
        return time.perf_counter() - started

    def start(self, guest: str, argument: str) -> "InProcessGuest":
        """Start a guest, up to the point before the first mask. Raise GuestFailedError."""
        host = HostFunctions(self._vocabulary, self._tokenize)
        state = host.guest
        state.blobs[Blob.MODULE_ARG] = argument.encode()
        linker = Linker(self._engine, host.on_failure)
        host.define(linker)
        try:
            instance = Guest(
                engine=self._engine,
                linker=linker.wasmtime,
                module=load_module(self._engine, self._compiled[guest]),
                memory_max_bytes=MEMORY_MAX_BYTES,
            )
            state.memory = instance.memory
            state.trie = self._vocabulary.tries[instance.abi]
            return InProcessGuest(instance, host, linker, mask_bytes(self._vocabulary.vocab_size))
        except GuestError as error:
            raise GuestFailedError(state.take_log().strip() or state.stop_message or str(error)) from error


class InProcessGuest:
    """A mask costs one whole `aici_mid_process`: the guest reads its argument, then returns the result and the mask."""

    def __init__(self, guest: Guest, host: HostFunctions, linker: Linker, size_bytes: int) -> None:
        self._guest = guest
        self._host = host
        self._mask_bytes = size_bytes
        self._linker = linker  # keeps the callbacks alive
        if guest.exports("_initialize"):
            guest.call("_initialize")
        guest.call("aici_init")
        self._handle = guest.call("aici_create")
        self._run("aici_init_prompt", b'{"prompt":[1]}')
        self._run("aici_pre_process", b"{}")

    def mask(self) -> None:
        self._host.guest.begin_call(_MID, takes_mask=True)
        self._guest.call("aici_mid_process", self._handle)

    def consume(self, token: int, *more: int) -> None:
        self._run("aici_post_process", b'{"tokens":%b,"backtrack":0}' % orjson.dumps([token, *more]))
        self._run("aici_pre_process", b"{}")

    def forced(self) -> list[int]:
        """Return the tokens to consume without asking, right after the start or the last `consume`."""
        return list(orjson.loads(self._host.guest.result or b"{}").get("ff_tokens", []))

    def bits(self) -> bytes:
        if self._host.guest.masks:
            return bytes(self._host.guest.masks[0])
        eos = self._host.eos_token()  # the guest stopped: the runtime would answer with this mask
        return (1 << eos).to_bytes(self._mask_bytes, "little")

    def memory_bytes(self) -> int | None:
        return self._guest.memory.size_bytes()

    def _run(self, name: str, argument: bytes) -> None:
        self._host.guest.begin_call(argument)
        self._guest.call(name, self._handle)
