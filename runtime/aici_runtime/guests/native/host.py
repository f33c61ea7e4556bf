"""The process's side of the loop in C: buffers, host functions, the lock. One per process, made before any fork."""

import ctypes
import itertools
import mmap
from ctypes import addressof, byref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from wasmtime import _ffi as ffi

from aici_runtime.abi import Blob
from aici_runtime.guests.native import library
from aici_runtime.guests.native.structures import (
    Attend,
    Callback,
    CGuest,
    CHost,
    CHostFunction,
    CMaskFormat,
    CPool,
    CSlotLayout,
    CWasmtime,
)
from aici_runtime.memory.mask_region import MaskRegion, mask_bytes
from aici_runtime.memory.worker_slots import REQUEST_MAX, SLOT_OFFSETS

if TYPE_CHECKING:
    from aici_runtime.guests.guest_state import GuestState
    from aici_runtime.guests.host_functions import HostFunctions

_ARGUMENT_BYTES: Final = REQUEST_MAX + 64
_NATIVE: Final = {
    ("aici_host_read_blob", "i"): "aici_guest_read_blob",
    ("aici_host_process_arg", "i"): "aici_guest_process_arg",
    ("aici_host_self_seq_id", "i"): "aici_guest_self_seq_id",
    ("aici_host_return_logit_bias", ""): "aici_guest_return_logit_bias",
    ("aici_host_return_process_result", ""): "aici_guest_return_process_result",
}
"""The host functions in C, by name and results. All other imports lead to Python."""


class NativeHost:
    """Owns the struct of the process and everything that the struct points at."""

    def __init__(self, code: ctypes.CDLL, masks: MaskRegion, *, result_max: int) -> None:
        """`result_max`: the largest result of a callback, in bytes."""
        self._code = code
        self._states: dict[int, GuestState] = {}
        self._numbers = itertools.count(1)
        self._functions: list[CHostFunction] = []
        size = mask_bytes(masks.bits.vocab_size)
        # Pages that no call needs stay untouched. Private: forks must not share what passes through.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._buffers = [mmap.mmap(-1, num_bytes, flags=flags) for num_bytes in (_ARGUMENT_BYTES, result_max, size)]
        self._without_bias = ctypes.create_string_buffer(bytes(masks.without_bias), size)
        element = masks.v1_denied
        self.struct = CHost(
            wasmtime=CWasmtime(*(_wasmtime(name) for name, _ in CWasmtime._fields_)),
            layout=CSlotLayout(*SLOT_OFFSETS),
            format=CMaskFormat(
                mask_bytes=size,
                vocab_size=masks.bits.vocab_size,
                element_bytes=len(element),
                denied=int.from_bytes(element, "little"),
                without_bias=addressof(self._without_bias),
            ),
            request_max=REQUEST_MAX,
            result_max=result_max,
            process_arg=int(Blob.PROCESS_ARG),
            argument=_address(self._buffers[0]),
            result=_address(self._buffers[1]),
            mask=_address(self._buffers[2]),
        )

    def use(self, functions: "HostFunctions", refuse: Any) -> None:
        """Let functions in Python act for the guest that runs in C. `refuse`: a callback that refuses a pointer."""

        def attend(number: int) -> None:
            functions.guest = self._states[number]
            functions.guest.begin_call(b"")  # what is left of an earlier call must not count

        self.struct.attend = Attend(attend)
        self.struct.refuse = refuse

    def host_function(self, name: str, results: str, python: Any) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Return the address and the environment of a host function that is otherwise the callback `python`."""
        environment = CHostFunction(ctypes.pointer(self.struct), ctypes.cast(python, ctypes.c_void_p))
        self._functions.append(environment)
        function = getattr(self._code, _NATIVE.get((name, results), "aici_guest_other"))
        return ctypes.cast(function, ctypes.c_void_p), ctypes.c_void_p(addressof(environment))

    def add(self, state: "GuestState") -> int:
        """Return a number for the state of a guest."""
        number = next(self._numbers)
        self._states[number] = state
        return number

    def remove(self, number: int) -> None:
        self._states.pop(number, None)

    def serve_guest(self, guest: CGuest) -> None:
        """Serve a guest until a request is for Python."""
        self._code.aici_serve_guest(byref(self.struct), byref(guest))

    def serve_pool(self, pool: CPool) -> int:
        """Serve the guests of a pool. Return the index of a guest whose request is for Python; -1 when the pool itself
        has a request, a guest has come or a guest is to leave."""
        index: int = self._code.aici_serve_pool(byref(self.struct), byref(pool))
        return index

    def result(self, address: int, length: int) -> bytes:
        """Return the result of a call."""
        return ctypes.string_at(address, length)

    def mask(self) -> bytearray:
        """Return the mask of the latest call, as the guest returned the bits."""
        return bytearray(self._buffers[2])

    def new_lock(self) -> "NativeLock":
        """Return the lock between the loop and the watchdog, open."""
        self.struct.lock = 0
        return NativeLock(self._code, ctypes.c_uint32.from_buffer(self.struct, CHost.lock.offset))


class NativeLock:
    """A lock that the loop in C takes too, as a context manager."""

    def __init__(self, code: ctypes.CDLL, word: ctypes.c_uint32) -> None:
        self._word = word
        self._lock, self._unlock = code.aici_lock_guests, code.aici_unlock_guests

    def __enter__(self) -> None:
        self._lock(byref(self._word))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._unlock(byref(self._word))


def load(masks: MaskRegion, *, result_max: int) -> NativeHost | None:
    """Return the process's side of the loop; None without the library."""
    code = library.load()
    return None if code is None else NativeHost(code, masks, result_max=result_max)


def callback(function: Any) -> Any:
    """Return a host function as a callback for wasmtime's unchecked API. Nothing may escape from `function`."""
    return Callback(function)


def _wasmtime(name: str) -> int:
    address = ctypes.cast(getattr(ffi.dll, f"wasmtime_{name}"), ctypes.c_void_p).value
    assert address is not None  # the library of the wheel has the function
    return address


def _address(memory: mmap.mmap) -> int:
    return addressof(ctypes.c_char.from_buffer(memory))
