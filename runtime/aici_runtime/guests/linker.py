"""Define host functions through wasmtime's unchecked C API: 0.3 µs per call instead of 8 µs.

wasmtime would take an exception that escapes a raw callback for a trap pointer and abort the process. So the adapter
here catches every exception.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import wasmtime
from wasmtime import _bindings as c

from aici_runtime.guests.native.structures import Callback

if TYPE_CHECKING:
    from aici_runtime.guests.host_functions import HostFunctions
    from aici_runtime.guests.native.host import NativeHost

_SLOT_WORDS = ctypes.sizeof(c.wasmtime_val_raw_t) // 4
_SECOND, _THIRD = _SLOT_WORDS, 2 * _SLOT_WORDS
_NO_FINALIZER = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
_TYPES: Mapping[str, Callable[[], wasmtime.ValType]] = {"i": wasmtime.ValType.i32, "I": wasmtime.ValType.i64}

HostFunction = Callable[..., int | None]
"""Takes unsigned 32-bit values and may raise anything. An i64 arrives as its low half; only stubs take an i64."""


class Linker:
    """Owns a wasmtime linker and keeps the callbacks alive. Built once, before the first fork."""

    def __init__(
        self,
        engine: wasmtime.Engine,
        on_failure: Callable[[BaseException], str],
        native: "NativeHost | None" = None,
    ) -> None:
        """`on_failure` returns the trap message for an exception raised by a host function; `on_failure` must not
        raise. `native`: the loop in C takes over the host functions that it has, for the guests that it runs."""
        self.wasmtime = wasmtime.Linker(engine)
        self._on_failure = on_failure
        self._native = native
        self._callbacks: list[Any] = []

    def define(self, module: str, name: str, signature: tuple[str, str], function: HostFunction) -> None:
        params, results = signature
        callback = Callback(self._adapter(function, len(params), bool(results)))
        address, environment = ctypes.cast(callback, ctypes.c_void_p), None
        if self._native is not None:
            address, environment = self._native.host_function(name, results, callback)
        ty = wasmtime.FuncType([_TYPES[p]() for p in params], [_TYPES[r]() for r in results])
        error = c.wasmtime_linker_define_func_unchecked(
            self.wasmtime.ptr(),
            *_text(module),
            *_text(name),
            ty.ptr(),
            ctypes.cast(address, c.wasmtime_func_unchecked_callback_t),
            environment,
            _NO_FINALIZER,
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        self._callbacks.append(callback)

    def attend(self, host: "HostFunctions", refuse: HostFunction) -> None:
        """Let host functions in Python act for the guests that run in C. `refuse` raises for a pointer and a length."""
        if self._native is not None:
            callback = Callback(self._adapter(refuse, 2, has_result=False))
            self._native.use(host, callback)

    def _adapter(self, function: HostFunction, num_params: int, has_result: bool) -> Callable[..., int]:
        params = slice(0, num_params * _SLOT_WORDS, _SLOT_WORDS)

        def call(_env: object, _caller: object, values: Any) -> int:
            try:
                if num_params == 2:
                    result = function(values[0], values[_SECOND])
                elif num_params == 3:
                    result = function(values[0], values[_SECOND], values[_THIRD])
                else:
                    result = function(*values[params]) if num_params else function()
                if has_result:
                    values[0] = result
                return 0
            except BaseException as error:  # noqa: BLE001  nothing may escape into C
                return _new_trap(self._on_failure(error))

        return call


def returns_offset(module: wasmtime.Module) -> bool:
    """Whether the module imports `aici_host_return_logit_bias` with a result, as guest ABI v2 does."""
    for entry in module.imports:
        if entry.name == "aici_host_return_logit_bias" and isinstance(entry.type, wasmtime.FuncType):
            return bool(entry.type.results)
    return False


def _text(text: str) -> tuple[Any, int]:
    raw = text.encode()
    return ctypes.create_string_buffer(raw), len(raw)


def _new_trap(message: str) -> int:
    """Return the address of a new trap, owned by wasmtime."""
    trap = c.wasmtime_trap_new(*_text(message))
    return ctypes.cast(trap, ctypes.c_void_p).value or 0
