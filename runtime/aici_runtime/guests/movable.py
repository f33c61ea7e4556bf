"""Prepare modules whose guests can be copied into another instance of the same module: forks in pools, snapshots and
images.

A guest is *movable* if its whole state is visible to the runtime: linear memory and globals. `prepare` exports the
globals under reserved names if nothing else can change: no instruction that writes a table, no passive segment to drop,
no start function to run again. `prepare` returns any other module unchanged; guests of such a module are not copied.
"""

import re

import wasmtime
from wasmtime import _bindings

from aici_base.errors import UsageError

PREFIX = "aici."
MOVABLE = f"{PREFIX}movable"
"""A second export of the memory: marks a prepared module."""

_NUMBERS = (0x7F, 0x7E, 0x7D, 0x7C)
_IMPORT, _GLOBAL, _EXPORT, _START, _ELEMENT, _CODE, _DATA = 2, 6, 7, 8, 9, 10, 11
_TABLE_COPY = re.compile(rb"\xfc(?:\x0e|\x8e\x80{0,3}\x00)(?:\x80{0,4}\x00){2}")
"""table.copy, or by chance other code: after 0xfc the number 14, then twice table 0; LEB128 of any length."""

_NEED_REFERENCE_TYPES = (
    "component_model_async_stackful", "component_model_more_async_builtins", "component_model_async",
    "component_model", "gc", "function_references", "exceptions", "stack_switching",
)  # fmt: skip


class _FixedError(Exception):
    """Guests of this module cannot move."""


def global_name(number: int) -> str:
    return f"{PREFIX}global.{number}"


def prepare(wasm: bytes) -> bytes:
    """Return the module to compile. Raise UsageError if the module exports a reserved name."""
    sections = list(_sections(wasm))
    exports = next((body for kind, body in sections if kind == _EXPORT), b"\0")
    if any(name.startswith(PREFIX.encode()) for name in _export_names(exports)):
        raise UsageError(f"the export prefix {PREFIX} is reserved for the runtime")
    try:
        extra = [_export(MOVABLE, 2, 0)]
        extra += [_export(global_name(k), 3, index) for k, index in enumerate(_check(wasm, sections))]
    except _FixedError:
        return wasm
    reader = _Reader(exports)
    body = _leb(reader.leb() + len(extra)) + exports[reader.at :] + b"".join(extra)
    return wasm[:8] + b"".join(_section(kind, body if kind == _EXPORT else old) for kind, old in sections)


def _check(wasm: bytes, sections: list[tuple[int, bytes]]) -> list[int]:
    """Return the indices of the mutable globals. Raise _FixedError if guests of the module cannot move."""
    if not _is_valid_without_reference_types(wasm):
        raise _FixedError
    mutable: list[int] = []
    for kind, body in sections:
        if kind == _START or (kind == _CODE and _TABLE_COPY.search(body)):
            raise _FixedError
        if kind == _IMPORT:
            _check_imports(_Reader(body))
        elif kind == _GLOBAL:
            mutable = _mutable_globals(_Reader(body))
        elif kind in (_ELEMENT, _DATA):
            _check_segments(_Reader(body), is_data=kind == _DATA)
    return mutable


def _is_valid_without_reference_types(wasm: bytes) -> bool:
    """Whether the module is valid without reference types: then no instruction writes a table element. Exceptions are
    part of reference types."""
    config = wasmtime.Config()
    for proposal in _NEED_REFERENCE_TYPES:
        getattr(_bindings, f"wasmtime_config_wasm_{proposal}_set")(config.ptr(), False)
    config.wasm_reference_types = False
    try:
        wasmtime.Module.validate(wasmtime.Engine(config), wasm)
    except wasmtime.WasmtimeError:
        return False
    return True


def _check_imports(reader: "_Reader") -> None:
    for _ in range(reader.leb()):
        reader.name()
        reader.name()
        if reader.byte() != 0:
            raise _FixedError
        reader.leb()


def _mutable_globals(reader: "_Reader") -> list[int]:
    mutable = []
    for index in range(reader.leb()):
        kind, is_mutable = reader.byte(), reader.byte()
        if is_mutable:
            if kind not in _NUMBERS:
                raise _FixedError
            mutable.append(index)
        reader.constant()
    return mutable


def _check_segments(reader: "_Reader", *, is_data: bool) -> None:
    for _ in range(reader.leb()):
        flags = reader.leb()
        if flags not in (0, 2):
            raise _FixedError
        if flags == 2:
            reader.leb()
        reader.constant()
        if is_data:
            reader.name()
            continue
        if flags == 2:
            reader.byte()
        for _ in range(reader.leb()):
            reader.leb()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def leb(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def name(self) -> bytes:
        length = self.leb()
        self.at += length
        return self._content[self.at - length : self.at]

    def constant(self) -> None:
        """Skip the constant expression at the start of a global or a segment."""
        while (op := self.byte()) != 0x0B:
            if op in (0x41, 0x42, 0x23):  # i32.const, i64.const, global.get
                self.leb()
            elif op in (0x43, 0x44):  # f32.const, f64.const
                self.at += 4 if op == 0x43 else 8
            elif op not in (0x6A, 0x6B, 0x6C, 0x7C, 0x7D, 0x7E):  # add, sub, mul
                raise _FixedError


def _sections(wasm: bytes) -> list[tuple[int, bytes]]:
    reader, sections = _Reader(wasm), []
    reader.at = 8
    try:
        while reader.at < len(wasm):
            kind = reader.byte()
            sections.append((kind, reader.name()))
    except IndexError as error:
        raise UsageError("not a WebAssembly module: a section is cut off") from error
    return sections


def _export_names(body: bytes) -> list[bytes]:
    reader, names = _Reader(body), []
    for _ in range(reader.leb()):
        names.append(reader.name())
        reader.byte()
        reader.leb()
    return names


def _export(name: str, kind: int, index: int) -> bytes:
    return _leb(len(name)) + name.encode() + bytes([kind]) + _leb(index)


def _section(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + _leb(len(body)) + body


def _leb(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
