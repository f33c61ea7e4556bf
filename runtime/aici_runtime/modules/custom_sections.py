"""Custom sections of a WebAssembly module: data that the module carries and no code sees (WebAssembly Core
Specification, 5.5.3)."""

from typing import Final

from aici_base.errors import UsageError
from aici_runtime.modules.wasm_sections import Reader

_HEADER_BYTES: Final = 8
_CUSTOM: Final = 0


def custom_section(module: bytes, name: str) -> bytes | None:
    """Return the content of the first custom section called `name`; None if there is none, also in a damaged module."""
    reader = Reader(module, _HEADER_BYTES, len(module))
    try:
        while reader.at < reader.end:
            kind = reader.byte()
            body = reader.sized()
            if kind == _CUSTOM:
                named = body.sized()
                if module[named.at : named.end] == name.encode():
                    return module[body.at : body.end]
    except UsageError:
        return None
    return None


def with_custom_section(module: bytes, name: str, content: bytes) -> bytes:
    """Return `module` with a custom section at its end."""
    body = _leb128(len(name.encode())) + name.encode() + content
    return module + bytes([_CUSTOM]) + _leb128(len(body)) + body


def _leb128(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
