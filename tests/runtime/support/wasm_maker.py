"""WebAssembly modules in the binary format, also such as no compiler makes, and modules that are slow to compile."""

from collections.abc import Callable, Mapping, Sequence

from aici_runtime.modules.wasm_sections import CODE, DATA, DATA_COUNT, FUNCTION, Sections

NO_TYPE = b"\x60\0\0"
PUSH = b"\x41\1"
GET = b"\x20\0"


def leb(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def section(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + leb(len(body)) + body


def vector(entries: Sequence[bytes]) -> bytes:
    return leb(len(entries)) + b"".join(entries)


def function_type(num_params: int, num_results: int) -> bytes:
    return b"\x60" + leb(num_params) + b"\x7f" * num_params + leb(num_results) + b"\x7f" * num_results


def module(
    *bodies: bytes, types: Sequence[bytes] = (NO_TYPE,), num_locals: int = 0, more: Mapping[int, bytes] | None = None
) -> bytes:
    """Return a module of functions `bodies` (instructions without the last `end`), all of the first type.

    `num_locals`: of every function. `more`: section → body.
    """
    declared = b"\1" + leb(num_locals) + b"\x7f" if num_locals else b"\0"
    codes = [declared + body + b"\x0b" for body in bodies]
    parts = {
        1: vector(types),
        3: vector([b"\0"] * len(bodies)),
        10: vector([leb(len(code)) + code for code in codes]),
    } | dict(more or {})
    order = (1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11)
    return b"\0asm\1\0\0\0" + b"".join(section(kind, parts[kind]) for kind in order if kind in parts)


def ifs_that_join_locals(num_ifs: int, num_locals: int) -> bytes:
    """Assign a local in each branch: the compiler joins all locals behind each."""
    branches = (GET + b"\x04\x40\x41\5\x21" + leb(number % num_locals) + b"\x0b" for number in range(num_ifs))
    used = (b"\x20" + leb(number) + b"\x21\0" for number in range(num_locals))
    return module(b"".join([*branches, *used]), num_locals=num_locals)


def blocks_with_values(num_blocks: int, num_values: int) -> bytes:
    block = function_type(num_values, num_values)
    body = PUSH * num_values + b"\x02\1\x0b" * num_blocks + b"\x1a" * num_values
    return module(body, types=[NO_TYPE, block])


def larger(wasm: bytes, times: int, data_bytes: int) -> bytes:
    """Return a guest with all its functions several times, and more data: valid, and as honest as the guest."""
    reader = Sections(wasm)
    parts = {kind: wasm[body.at : body.end] for kind in range(1, 14) if (body := reader.body(kind)) is not None}
    count = reader.count(FUNCTION)
    for kind in (FUNCTION, CODE):
        parts[kind] = leb(count * times) + parts[kind][len(leb(count)) :] * times
    segment = b"\0\x41\0\x0b" + leb(data_bytes) + bytes(data_bytes)
    num_data = reader.count(DATA)
    parts[DATA] = leb(num_data + 1) + parts[DATA][len(leb(num_data)) :] + segment
    parts.pop(DATA_COUNT, None)
    return module(more=parts)


BOMBS: Mapping[str, Callable[[int], bytes]] = {
    "functions without code": lambda size: module(*[b""] * (size // 4)),
    "types with 20 parameters": lambda size: module(b"", types=[NO_TYPE, *map(_type_of_bits, range(size // 23))]),
    "blocks with 20 values": lambda size: blocks_with_values(size // 3, 20),
    "loops": lambda size: module(b"\x03\x40\x0b" * (size // 3)),
    "calls through a table": lambda size: module(
        (GET + b"\x11\0\0") * (size // 5), num_locals=1, more={4: b"\1\x70\0\1"}
    ),
    "branches that join 100 locals": lambda size: ifs_that_join_locals(size // 9, 100),
}
"""Name → a module of about so many bytes, which takes long to compile."""


def _type_of_bits(number: int) -> bytes:
    return b"\x60" + leb(20) + bytes(0x7F if number >> bit & 1 else 0x7E for bit in range(20)) + b"\0"
