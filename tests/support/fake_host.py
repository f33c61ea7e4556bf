"""The host functions of one guest in this process, on wasmtime's public API: tests of guests run without the
runtime.

Checks are few: pointers are trusted as far as wasmtime's own bounds checks go. Text is tokenized greedily.
"""

import json
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import wasmtime

from aici_base.ids import TokenId
from aici_runtime.abi import UNBOUND_SEQ_ID, Blob
from aici_runtime.tokenizer.trie import serialize

_I32 = wasmtime.ValType.i32()


class GuestModule:
    """A compiled module. Guests start from a module."""

    def __init__(self, path: Path) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        self.engine = wasmtime.Engine(config)
        self.module = wasmtime.Module.from_file(self.engine, str(path))


class GuestStoppedError(Exception):
    """The guest called `aici_host_stop`; the message is the guest's log."""


class FakeHost:
    """A guest after `aici_init` and `aici_create`. `vocabulary` holds the bytes of every token."""

    def __init__(
        self,
        module: GuestModule,
        vocabulary: Sequence[bytes],
        *,
        eos: int,
        arg: bytes = b"",
        initialize: bool = True,
        trie: bytes | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.eos = eos
        self.log = b""
        self.mask: bytes | None = None
        self.variables: dict[str, tuple[int, str]] = {}
        self._blobs = {int(Blob.MODULE_ARG): arg, int(Blob.TRIE): trie or serialize(vocabulary, TokenId(eos))}
        self._result = b""
        self.store = wasmtime.Store(module.engine)
        self.store.set_epoch_deadline(1)
        self.store.set_limits(memory_size=64 << 20)
        linker = wasmtime.Linker(module.engine)
        self._define(linker)
        self._exports = linker.instantiate(self.store, module.module).exports(self.store)
        if initialize:
            self.call("_initialize")
        self.call("aici_init")
        self._self = self.call("aici_create")

    def call(self, name: str, *arguments: int) -> Any:
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        return function(self.store, *arguments)

    def init_prompt(self, prompt: Sequence[int] = ()) -> Any:
        return self._callback("aici_init_prompt", {"prompt": list(prompt)})

    def pre_process(self) -> Any:
        return self._callback("aici_pre_process", {})

    def mid_process(self, fork_group: Sequence[int] = (1,)) -> Any:
        self.mask = None
        return self._callback("aici_mid_process", {"fork_group": list(fork_group)})

    def post_process(self, tokens: Sequence[int], backtrack: int = 0) -> Any:
        return self._callback("aici_post_process", {"tokens": list(tokens), "backtrack": backtrack})

    def allowed(self) -> set[int]:
        """Return the tokens of the mask from the last mid_process; all bits above the vocabulary must be clear."""
        assert self.mask is not None
        bits = int.from_bytes(self.mask, "little")
        assert bits >> len(self.vocabulary) == 0
        return {token for token in range(len(self.vocabulary)) if bits >> token & 1}

    def _callback(self, name: str, argument: object) -> Any:
        self._blobs[Blob.PROCESS_ARG] = json.dumps(argument).encode()
        self._result = b""
        self.call(name, self._self)
        assert self._result, f"{name} returned no result"
        return json.loads(self._result)

    def _memory(self) -> wasmtime.Memory:
        memory = self._exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        return memory

    def read(self, pointer: int, length: int) -> bytes:
        return bytes(self._memory().read(self.store, pointer, pointer + length))

    def _read_blob(self, blob: int, pointer: int, size: int) -> int:
        content = self._blobs.get(blob, b"")
        self._memory().write(self.store, content[:size], pointer)
        return len(content)

    def _tokenize(self, pointer: int, length: int) -> int:
        text, tokens = self.read(pointer, length), []
        while text:
            fits = [token for token, raw in enumerate(self.vocabulary) if raw and text.startswith(raw)]
            if not fits:
                break  # as where a tokenizer does not know a character
            tokens.append(max(fits, key=lambda token: len(self.vocabulary[token])))
            text = text[len(self.vocabulary[tokens[-1]]) :]
        self._blobs[Blob.TOKENIZE] = b"".join(token.to_bytes(4, "little") for token in tokens)
        return int(Blob.TOKENIZE)

    def _storage(self, pointer: int, length: int) -> int:
        [(kind, command)] = json.loads(self.read(pointer, length)).items()
        version, value = self.variables.get(command["name"], (0, ""))
        if kind == "WriteVar":
            value = command["value"] if command["op"] == "Set" else value + command["value"]
            self.variables[command["name"]] = (version + 1, value)
            answer: object = {"WriteVar": {"version": version + 1}}
        else:
            answer = {"ReadVar": {"version": version, "value": value}} if version else {"VariableMissing": {}}
        self._blobs[Blob.STORAGE_RESULT] = json.dumps(answer).encode()
        return int(Blob.STORAGE_RESULT)

    def _return_mask(self, pointer: int) -> None:
        self.mask = self.read(pointer, (len(self.vocabulary) + 31) // 32 * 4)

    def _return_result(self, pointer: int, length: int) -> None:
        self._result = self.read(pointer, length)

    def _stop(self) -> None:
        raise GuestStoppedError(self.log.decode(errors="replace"))

    def _fd_write(self, _fd: int, vectors: int, count: int, written: int) -> int:
        total = 0
        for at in range(vectors, vectors + 8 * count, 8):
            raw = self.read(at, 8)
            part = self.read(int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:], "little"))
            self.log += part
            total += len(part)
        self._memory().write(self.store, total.to_bytes(4, "little"), written)
        return 0

    def _define(self, linker: wasmtime.Linker) -> None:
        # wasmtime holds the functions as long as the store, which the host holds: without the weak reference, for ever.
        host = weakref.proxy(self)

        def define(name: str, num_params: int, function: Any, *, result: bool = True, module: str = "env") -> None:
            signature = wasmtime.FuncType([_I32] * num_params, [_I32] if result else [])
            linker.define_func(module, name, signature, partial(function, host))

        define("aici_host_read_blob", 3, FakeHost._read_blob)
        define("aici_host_token_trie", 0, lambda _: int(Blob.TRIE))
        define("aici_host_module_arg", 0, lambda _: int(Blob.MODULE_ARG))
        define("aici_host_process_arg", 0, lambda _: int(Blob.PROCESS_ARG))
        define("aici_host_tokenize", 2, FakeHost._tokenize)
        define("aici_host_return_logit_bias", 1, FakeHost._return_mask, result=False)
        define("aici_host_self_seq_id", 0, lambda _: UNBOUND_SEQ_ID)
        define("aici_host_return_process_result", 2, FakeHost._return_result, result=False)
        define("aici_host_storage_cmd", 2, FakeHost._storage)
        define("aici_host_eos_token", 0, lambda host: host.eos)
        define("aici_host_stop", 0, FakeHost._stop, result=False)
        define("fd_write", 4, FakeHost._fd_write, module="wasi_snapshot_preview1")
