"""Host functions for guests, defined through the unchecked C interface: 0.3 µs a call instead of 8.

An exception that escapes a raw callback would be taken for a trap pointer by wasmtime and abort the process, so the
adapter here catches everything, without exception.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import wasmtime
from wasmtime import _bindings as c

_SLOT_WORDS = ctypes.sizeof(c.wasmtime_val_raw_t) // 4
_SECOND, _THIRD = _SLOT_WORDS, 2 * _SLOT_WORDS
# The last argument, the number of values, is left where it is: ctypes makes an object of each that is named.
_RAW_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32))
_NO_FINALIZER = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
_TYPES: Mapping[str, Callable[[], wasmtime.ValType]] = {"i": wasmtime.ValType.i32, "I": wasmtime.ValType.i64}

HostFunction = Callable[..., int | None]
"""Takes unsigned 32-bit values (an i64 arrives as its low half; only stubs have one) and may raise anything."""


class Linker:
    """Owns a wasmtime linker and keeps the callbacks alive. Built once, before the first fork."""

    def __init__(self, engine: wasmtime.Engine, on_failure: Callable[[BaseException], str]) -> None:
        """`on_failure` turns what a host function raised into the message of the trap; it must not raise."""
        self.wasmtime = wasmtime.Linker(engine)
        self._on_failure = on_failure
        self._callbacks: list[Any] = []

    def define(self, module: str, name: str, signature: tuple[str, str], function: HostFunction) -> None:
        params, results = signature
        callback = _RAW_CALLBACK(self._adapter(function, len(params), bool(results)))
        ty = wasmtime.FuncType([_TYPES[p]() for p in params], [_TYPES[r]() for r in results])
        error = c.wasmtime_linker_define_func_unchecked(
            self.wasmtime.ptr(),
            *_text(module),
            *_text(name),
            ty.ptr(),
            ctypes.cast(callback, c.wasmtime_func_unchecked_callback_t),
            None,
            _NO_FINALIZER,
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        self._callbacks.append(callback)

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
    """Does the module import `aici_host_return_logit_bias` with a result, as the later interface has it?"""
    for entry in module.imports:
        if entry.name == "aici_host_return_logit_bias" and isinstance(entry.type, wasmtime.FuncType):
            return bool(entry.type.results)
    return False


def _text(text: str) -> tuple[Any, int]:
    raw = text.encode()
    return ctypes.create_string_buffer(raw), len(raw)


def _new_trap(message: str) -> int:
    """wasmtime takes ownership."""
    trap = c.wasmtime_trap_new(*_text(message))
    return ctypes.cast(trap, ctypes.c_void_p).value or 0
