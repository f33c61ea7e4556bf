"""Run shipped guests in this process, called as the runtime calls guests: same wasmtime configuration, linker and
wrapper.

For measurements. Modules are compiled beforehand, as in the runtime's cache; the time of a guest is not limited.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import orjson
import wasmtime

from aici_controllers.catalog import guest_path
from aici_runtime.abi import Blob
from aici_runtime.guests import movable, snapshot, wasmtime_engine
from aici_runtime.guests.guest import Guest, GuestError, load_module
from aici_runtime.guests.guest_state import GuestState
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
    """Owns a folder with compiled modules and snapshots. Any number of guests may live at a time, in one thread."""

    def __init__(self, vocabulary: LoadedVocabulary) -> None:
        self._vocabulary = vocabulary
        self._engine = wasmtime_engine.new_engine()
        self._folder = tempfile.TemporaryDirectory(prefix="aici-bench-")
        self._modules: dict[str, wasmtime.Module] = {}
        self._snapshots: set[str] = set()
        self._host = HostFunctions(vocabulary, host_tokenizer.load(vocabulary.tokenizer_json, vocabulary.tries["v2"]))
        self._linker = Linker(self._engine, self._host.on_failure)
        self._host.define(self._linker)

    def close(self) -> None:
        self._folder.cleanup()

    def compile(self, guest: str) -> float:
        """Compile a guest ahead, so that the time of `start` does not include compilation. Return the seconds taken."""
        started = time.perf_counter()
        if guest not in self._modules:
            wasm = movable.prepare(guest_path(guest).read_bytes())
            self._code(guest).write_bytes(bytes(wasmtime.Module(self._engine, wasm).serialize()))
            self._modules[guest] = load_module(self._engine, self._code(guest))
        return time.perf_counter() - started

    def keep_snapshot(self, guest: str) -> bool:
        """Keep a snapshot of a compiled guest, as the runtime does before the first request. Return whether there is
        one."""
        if guest not in self._snapshots:
            with self._snapshot(guest).open("wb") as file, contextlib.suppress(snapshot.NoSnapshotError):
                snapshot.make(
                    self._engine,
                    self._modules[guest],
                    self._vocabulary,
                    file.fileno(),
                    memory_max_bytes=MEMORY_MAX_BYTES,
                )
                self._snapshots.add(guest)
        return guest in self._snapshots

    def start(self, guest: str, argument: str, *, is_first: bool = False) -> "InProcessGuest":
        """Start a guest, up to the point before the first mask. Raise GuestFailedError.

        `is_first`: as the first request ever, which loads the module and reads the vocabulary.
        """
        module = load_module(self._engine, self._code(guest)) if is_first else self._modules[guest]
        state = self._host.guest = GuestState()
        state.blobs[Blob.MODULE_ARG] = argument.encode()
        try:
            instance = self._instance(module)
            if not is_first and guest in self._snapshots:
                with self._snapshot(guest).open("rb") as file:
                    snapshot.start_from(instance, file.fileno())
            state.memory, state.trie = instance.memory, self._vocabulary.tries[instance.abi]
            return InProcessGuest(instance, self._host, state, mask_bytes(self._vocabulary.vocab_size))
        except GuestError as error:
            raise GuestFailedError(state.take_log().strip() or state.stop_message or str(error)) from error

    def _instance(self, module: wasmtime.Module) -> Guest:
        return Guest(
            engine=self._engine, linker=self._linker.wasmtime, module=module, memory_max_bytes=MEMORY_MAX_BYTES
        )

    def _code(self, guest: str) -> Path:
        return Path(self._folder.name) / f"{guest}.cwasm"

    def _snapshot(self, guest: str) -> Path:
        return Path(self._folder.name) / f"{guest}.memory"


class InProcessGuest:
    """A mask costs one whole `aici_mid_process`: the guest reads its argument, then returns the result and the mask."""

    def __init__(self, guest: Guest, host: HostFunctions, state: GuestState, size_bytes: int) -> None:
        self._guest = guest
        self._host = host
        self._state = state
        self._mask_bytes = size_bytes
        guest.initialize()
        self._handle = guest.call("aici_create")
        self._run("aici_init_prompt", b'{"prompt":[1]}')
        self._run("aici_pre_process", b"{}")

    def mask(self) -> None:
        self._host.guest = self._state
        self._state.begin_call(_MID, takes_mask=True)
        self._guest.call("aici_mid_process", self._handle)

    def consume(self, token: int, *more: int) -> None:
        self._run("aici_post_process", b'{"tokens":%b,"backtrack":0}' % orjson.dumps([token, *more]))
        self._run("aici_pre_process", b"{}")

    def forced(self) -> list[int]:
        """Return the tokens to consume without asking, right after the start or the last `consume`."""
        return list(orjson.loads(self._state.result or b"{}").get("ff_tokens", []))

    def bits(self) -> bytes:
        if self._state.masks:
            return bytes(self._state.masks[0])
        eos = self._host.eos_token()  # the guest stopped: the runtime would answer with this mask
        return (1 << eos).to_bytes(self._mask_bytes, "little")

    def memory_bytes(self) -> int | None:
        return self._guest.memory.size_bytes()

    def _run(self, name: str, argument: bytes) -> None:
        self._host.guest = self._state
        self._state.begin_call(argument)
        self._guest.call(name, self._handle)
