"""WebAssembly modules larger than a message to the runtime."""


def padded(wasm: bytes, num_bytes: int) -> bytes:
    """Return `wasm` with a custom section, which engines skip: the same module, larger by `num_bytes`."""
    body = b"\x07padding" + bytes(num_bytes)
    return wasm + b"\0" + _leb128(len(body)) + body


def _leb128(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])
