"""One Wasm instance, called through wasmtime's unchecked C API: 1 µs per call instead of 7 to 28 µs.

"Unchecked" means undefined behaviour for a wrong type, so the type of every function is compared once, at
instantiation. Misbehaviour of the guest raises GuestError. This file knows wasmtime and nothing of what the calls mean.
"""

import ctypes
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import wasmtime
from wasmtime import _bindings as c
from wasmtime import _ffi as ffi

from aici_runtime.abi import EXPORTS_V1, EXPORTS_V2, OPTIONAL_EXPORTS, READ_VOCABULARY, Abi
from aici_runtime.guests.movable import MOVABLE, global_name

MAX_TABLE_ELEMENTS = 100_000
"""Without a flag."""

_MAX_TABLES = 2
_LETTERS = {int(ffi.WASM_I32.value): "i", int(ffi.WASM_I64.value): "I"}

# Our own prototypes: plain addresses cost half as much as the typed pointers of the wheel. `_func_call`, used by every
# callback, declares no argument types: its arguments are converted beforehand.
_func_call = ctypes.CFUNCTYPE(ctypes.c_void_p)(("wasmtime_func_call_unchecked", ffi.dll))
_NUM_VALUES = ctypes.c_size_t(2)
_set_epoch_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("wasmtime_store_epoch_deadline_callback", ffi.dll)
)
_memory_data = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(("wasmtime_memory_data", ffi.dll))
_memory_data_size = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)(
    ("wasmtime_memory_data_size", ffi.dll)
)
_libc = ctypes.CDLL(None, use_errno=True)
_mmap = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    use_errno=True,
)(("mmap", _libc))  # fmt: skip
_READ_WRITE, _PRIVATE_FIXED = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | 0x10
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_memory_view.restype = ctypes.py_object
_WRITABLE = 0x200
_FOUR_BYTES = (ffi.WASMTIME_I32.value, ffi.WASMTIME_F32.value)

PAGE_BYTES = 4096
"""The unit in which memories are compared and copied."""

_GO_ON = 0
"""WASMTIME_UPDATE_DEADLINE_CONTINUE: until the epoch has changed `ticks` times."""

_WASM_PAGE_BYTES = 65536
_ZEROS = bytes(_WASM_PAGE_BYTES)


class GuestError(Exception):
    """The guest trapped, lacks an export, or was stopped by a host function. The text is for the guest's author."""


class GuestTimeoutError(GuestError):
    """The guest exceeded its time limit and was interrupted."""


def _on_epoch(_context: int, interrupted: int, ticks: Any, kind: Any) -> int:
    """Called inside of a running call once the epoch of the engine has changed: end the call if the guest is meant.

    `interrupted`: the address of the guest's word. The epoch belongs to all guests of the process.
    """
    if ctypes.c_uint32.from_address(interrupted).value:
        return ctypes.cast(c.wasmtime_error_new(b"interrupted"), ctypes.c_void_p).value or 0
    ticks[0], kind[0] = 1, _GO_ON
    return 0


_EPOCH_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint8)
)(_on_epoch)


class Memory:
    """Linear memory with every access checked. Pointers and lengths are unsigned.

    The memory never moves (`wasmtime_engine.new_engine` configures this) and only grows. So a view stays valid, but may
    become too short.
    """

    def __init__(self, context: Any, memory: c.wasmtime_memory_t) -> None:
        self._owner = memory
        self._store_context = context
        self._context = ctypes.cast(context, ctypes.c_void_p)
        self._memory = ctypes.c_void_p(ctypes.addressof(memory))
        self._bytes = memoryview(bytearray())

    def size_bytes(self) -> int:
        return int(_memory_data_size(self._context, self._memory))

    def address(self) -> int | None:
        """Return the address of wasmtime's record of the memory."""
        return self._memory.value

    def data_address(self) -> int | None:
        """Return the address of the first byte."""
        address: int | None = _memory_data(self._context, self._memory)
        return address

    def view(self, pointer: int, length: int) -> memoryview:
        """Return the memory itself, not a copy: the next call of the guest may change the content."""
        end = pointer + length
        if end > len(self._bytes) and length:
            self._reach(end, pointer)
        return self._bytes[pointer:end]

    def read(self, pointer: int, length: int) -> bytes:
        return bytes(self.view(pointer, length))

    def write(self, pointer: int, content: bytes) -> None:
        self.view(pointer, len(content))[:] = content

    def page(self, number: int) -> memoryview:
        return self.view(number * PAGE_BYTES, PAGE_BYTES)

    def pages(self) -> Iterator[int]:
        """Yield the numbers of all pages with a byte other than zero."""
        whole = self.view(0, self.size_bytes())
        for start in range(0, len(whole), _WASM_PAGE_BYTES):
            if bytes(whole[start : start + _WASM_PAGE_BYTES]) != _ZEROS:
                for at in range(start, start + _WASM_PAGE_BYTES, PAGE_BYTES):
                    if bytes(whole[at : at + PAGE_BYTES]) != _ZEROS[:PAGE_BYTES]:
                        yield at // PAGE_BYTES

    def grow_to(self, size_bytes: int) -> None:
        missing = (size_bytes - self.size_bytes()) // _WASM_PAGE_BYTES
        if missing > 0:
            error = c.wasmtime_memory_grow(
                self._store_context, ctypes.byref(self._owner), missing, ctypes.byref(ctypes.c_uint64())
            )
            if error:
                raise GuestError(str(wasmtime.WasmtimeError._from_ptr(error)))

    def map_file(self, descriptor: int, offset: int) -> None:
        """Let the whole memory be a private copy of a file from `offset` on: pages are read from the file until the
        guest writes. The file must not shrink as long as the guest lives.

        Raise OSError, with the memory as it was, if the kernel refuses.
        """
        self._map(_PRIVATE_FIXED, descriptor, offset)

    def empty(self) -> None:
        """Give all pages back: the whole memory is zeros. Raise OSError, with the memory as it was, if the kernel
        refuses."""
        self._map(_PRIVATE_FIXED | mmap.MAP_ANONYMOUS, -1, 0)

    def _map(self, flags: int, descriptor: int, offset: int) -> None:
        address = _memory_data(self._context, self._memory)
        if _mmap(address, self.size_bytes(), _READ_WRITE, flags, descriptor, offset) != address:
            raise OSError(ctypes.get_errno(), "the memory of a guest cannot be mapped")

    def _reach(self, end: int, pointer: int) -> None:
        size = self.size_bytes()
        if end > size:
            raise GuestError(f"pointer out of range: {pointer:#x}+{end - pointer:#x} > {size:#x}")
        self._bytes = _memory_view(_memory_data(self._context, self._memory), size, _WRITABLE)


def load_module(engine: wasmtime.Engine, compiled: Path) -> wasmtime.Module:
    return wasmtime.Module.deserialize_file(engine, str(compiled))


class Guest:
    """Owns a store and an instance. Lives as long as the process; a fork of the process is a fork of the guest.

    `abi`: the version of the guest ABI, found from the exports.
    """

    def __init__(
        self,
        *,
        engine: wasmtime.Engine,
        linker: wasmtime.Linker,
        module: wasmtime.Module,
        memory_max_bytes: int,
        max_table_elements: int = MAX_TABLE_ELEMENTS,
    ) -> None:
        self._engine = engine
        self.module = module
        self._store = wasmtime.Store(engine)
        self._store.set_limits(
            memory_size=memory_max_bytes,
            table_elements=max_table_elements,
            instances=1,
            tables=_MAX_TABLES,
            memories=1,
        )
        self._has_ended = self._has_failed = False
        self._interrupted_word = ctypes.c_uint32(0)
        self._interrupted = memoryview(self._interrupted_word).cast("B").cast("I")
        self._store.set_epoch_deadline(1)
        _set_epoch_callback(
            ctypes.cast(self._store.ptr(), ctypes.c_void_p),
            ctypes.cast(_EPOCH_CALLBACK, ctypes.c_void_p),
            self.interrupted_address(),
            None,
        )
        self._context = self._store._context()
        try:
            self._instance = linker.instantiate(self._store, self.module)
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            raise GuestError(str(error)) from error
        self._values = (c.wasmtime_val_raw_t * 2)()
        self._result = memoryview(self._values).cast("B").cast("I")
        self.memory = Memory(self._context, self._find_memory())
        self._functions = self._find_functions()
        # The arguments of a call as plain addresses; the objects above own the memory behind the addresses.
        self._address = ctypes.cast(self._context, ctypes.c_void_p)
        self._values_address = ctypes.c_void_p(ctypes.addressof(self._values))
        self._trap = ctypes.c_void_p()
        self._trap_address = ctypes.c_void_p(ctypes.addressof(self._trap))
        self._entries = {name: self._entry(function) for name, function in self._functions.items()}
        self.is_initialized = False
        """Whether `aici_init` has returned, here or in the guest of a snapshot."""
        self.snapshot_bytes = 0
        """The size of the memory in the snapshot from which the guest has started; 0 without one."""

    def _entry(self, function: c.wasmtime_func_t) -> Callable[[], int | None]:
        """Return a function that calls the export and returns the address of an error, or None."""
        address = ctypes.c_void_p(ctypes.addressof(function))
        return partial(_func_call, self._address, address, self._values_address, _NUM_VALUES, self._trap_address)

    def _export(self, name: str) -> c.wasmtime_extern_t | None:
        item = c.wasmtime_extern_t()
        raw = name.encode()
        found = c.wasmtime_instance_export_get(
            self._context, ctypes.byref(self._instance._instance), ctypes.create_string_buffer(raw), len(raw),
            ctypes.byref(item),
        )  # fmt: skip
        return item if found else None

    def _find_memory(self) -> c.wasmtime_memory_t:
        item = self._export("memory")
        if item is None or _kind(item) != ffi.WASMTIME_EXTERN_MEMORY.value:
            raise GuestError("memory missing")
        return item.of.memory

    def _find_functions(self) -> dict[str, c.wasmtime_func_t]:
        functions = {}
        self.abi: Abi = "v2" if self._export("aici_pre_process") is None else "v1"
        required = EXPORTS_V1 if self.abi == "v1" else EXPORTS_V2
        for name, (params, results) in {**required, **OPTIONAL_EXPORTS}.items():
            item = self._export(name)
            if item is None:
                if name in required:
                    raise GuestError(f"{name} missing")
                continue
            if _kind(item) != ffi.WASMTIME_EXTERN_FUNC.value or not self._has_type(item, params, results):
                raise GuestError(f"{name} is not a function ({params}) -> ({results})")
            functions[name] = item.of.func
        return functions

    def _has_type(self, item: c.wasmtime_extern_t, params: str, results: str) -> bool:
        ty = c.wasmtime_func_type(self._context, ctypes.byref(item.of.func))
        try:
            return _kinds(c.wasm_functype_params(ty)) == params and _kinds(c.wasm_functype_results(ty)) == results
        finally:
            c.wasm_functype_delete(ty)

    def has_export(self, name: str) -> bool:
        """Whether the module exports `name`, as a function or anything else."""
        return self._export(name) is not None

    def exports(self, name: str) -> bool:
        """Whether `call` accepts `name`."""
        return name in self._functions

    def find(self, name: str, params: str, results: str) -> bool:
        """Make an export callable that is not part of the ABI. Return False if no export has this name and type."""
        item = self._export(name)
        if item is None or _kind(item) != ffi.WASMTIME_EXTERN_FUNC.value or not self._has_type(item, params, results):
            return False
        self._functions[name] = item.of.func
        self._entries[name] = self._entry(self._functions[name])
        return True

    def call(self, name: str, argument: int = 0) -> int:
        """Call an export of `abi.EXPORTS_V1`. The result has no meaning for functions without a result.

        Raise GuestTimeoutError after `interrupt`, GuestError for every other trap.
        """
        self._interrupted[0] = 0  # an interrupt that came after the intended call had ended
        if self._has_ended:
            raise GuestTimeoutError("ended")
        self._result[0] = argument
        error = self._entries[name]()
        if error or self._trap:
            trap, self._trap.value = self._trap.value, None
            self.check(error, trap)
        return self._result[0]

    def check(self, error: int | None, trap: int | None) -> None:
        """Raise the failure of a call, if any, given the addresses of wasmtime's objects, and free the objects."""
        self._has_failed = self._has_failed or bool(error or trap)
        if error:
            pointer = ctypes.cast(error, ctypes.POINTER(c.wasmtime_error_t))
            message = str(wasmtime.WasmtimeError._from_ptr(pointer))
            raise GuestTimeoutError(message) if self._interrupted[0] else GuestError(message)
        if trap:
            raise GuestError(wasmtime.Trap._from_ptr(ctypes.cast(trap, ctypes.POINTER(c.wasm_trap_t))).message)

    # Addresses for the loop in C (`native/`), valid as long as the guest lives.

    def context_address(self) -> int | None:
        return self._address.value

    def function_address(self, name: str) -> int:
        return ctypes.addressof(self._functions[name])

    def interrupted_address(self) -> int:
        """Return the address of the word that `interrupt` sets and the next call clears."""
        return ctypes.addressof(self._interrupted_word)

    def initialize(self, *, read_vocabulary: bool = False) -> None:
        """Run the callbacks before `aici_create`, unless the guest has come from a snapshot.

        `read_vocabulary`: let a guest that can do so read the vocabulary now.
        """
        if self.is_initialized:
            return
        if self.exports("_initialize"):
            self.call("_initialize")
        self.call("aici_init")
        if read_vocabulary and self.exports(READ_VOCABULARY):
            self.call(READ_VOCABULARY)
        self.is_initialized = True

    def interrupt(self) -> None:
        """End the running call. Safe from any thread; no effect on later calls and on other guests."""
        self._interrupted[0] = 1
        self._engine.increment_epoch()

    def end(self) -> None:
        """End the running call and all later ones. Safe from any thread."""
        self._has_ended = True  # first: a call clears the word, then looks here
        self.interrupt()

    # The state of the guest, to be moved into another instance of the same module: see `movable.py`.

    @property
    def is_movable(self) -> bool:
        return self._export(MOVABLE) is not None

    def globals(self) -> list[bytes]:
        """Return the bits of all mutable globals. Floats are copied as bits too: a NaN carries a payload."""
        values: list[bytes] = []
        while (item := self._export(global_name(len(values)))) is not None:
            value = c.wasmtime_val_t()
            c.wasmtime_global_get(self._context, ctypes.byref(item.of.global_), ctypes.byref(value))
            at = c.wasmtime_val_t.of.offset
            values.append(bytes(value)[at : at + (4 if _kind(value) in _FOUR_BYTES else 8)])
        return values

    def take_over(self, size_bytes: int, pages: Mapping[int, bytes | memoryview], values: Sequence[bytes]) -> None:
        """Take over the state of another guest. `pages`: all pages of its memory with a byte other than zero. Raise
        GuestError if the other guest belongs to another module."""
        self.memory.grow_to(size_bytes)
        for number in list(self.memory.pages()):
            if number not in pages:
                self.memory.page(number)[:] = bytes(PAGE_BYTES)
        for number, page in pages.items():
            self.memory.page(number)[:] = page
        self.set_globals(values)

    def set_globals(self, values: Sequence[bytes]) -> None:
        """Set the mutable globals, as `globals` returns them. Raise GuestError if the module has fewer."""
        for number, raw in enumerate(values):
            item = self._export(global_name(number))
            if item is None:
                raise GuestError("the guest belongs to another module")
            value = c.wasmtime_val_t()
            c.wasmtime_global_get(self._context, ctypes.byref(item.of.global_), ctypes.byref(value))
            ctypes.memmove(ctypes.byref(value, c.wasmtime_val_t.of.offset), raw, len(raw))
            error = c.wasmtime_global_set(self._context, ctypes.byref(item.of.global_), ctypes.byref(value))
            if error:
                raise GuestError(str(wasmtime.WasmtimeError._from_ptr(error)))

    def empty(self) -> bool:
        """Empty the instance after the guest has left: `snapshot.start_from` then makes a new guest of the instance.
        The module must be movable.

        Return False if the instance is of no further use: a call has failed, the guest was not made from a snapshot, or
        its memory has grown. Memory never shrinks, so the next snapshot would not fit.
        """
        if self._has_failed or self._has_ended or self.memory.size_bytes() != self.snapshot_bytes:
            return False
        self.is_initialized = False
        try:
            self.memory.empty()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Free the memory of the instance."""
        self._store.close()


def _kinds(values: Any) -> str:
    """Return the value types of a `wasm_valtype_vec_t`, a letter each as in `abi.IMPORTS_V1`."""
    types = values.contents
    return "".join(_LETTERS.get(int(c.wasm_valtype_kind(types.data[k])), "?") for k in range(types.size))


def _kind(item: c.wasmtime_extern_t | c.wasmtime_val_t) -> int:
    # ctypes declares c_ubyte but reads int.
    kind: Any = item.kind
    return int(kind)
