"""Read the sections of a WebAssembly module: their order, sizes and counts (WebAssembly Core Specification, 5.5)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from aici_base.errors import UsageError

TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT, TAG = range(1, 14)
_CUSTOM: Final = 0
_ORDER: Final = (
    TYPE, IMPORT, FUNCTION, TABLE, MEMORY, TAG, GLOBAL, EXPORT, START, ELEMENT, DATA_COUNT, CODE, DATA,
)  # fmt: skip
_HEADER: Final = b"\0asm\1\0\0\0"
_FUNCTION_TYPE: Final = 0x60
_LONG_REFERENCES: Final = (0x63, 0x64)
_U32_BYTES: Final = 5


class Reader:
    """Reads the bytes from `at` to `end`. Every method raises UsageError at the end of the bytes."""

    def __init__(self, wasm: bytes, at: int, end: int) -> None:
        self._wasm = wasm
        self.at = at
        self.end = end

    def byte(self) -> int:
        if self.at >= self.end:
            self.fail("the bytes end too early")
        self.at += 1
        return self._wasm[self.at - 1]

    def number(self) -> int:
        """Read an unsigned number of 32 bits (LEB128)."""
        value = 0
        for shift in range(0, 7 * _U32_BYTES, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte >= 0x80 or value >= 1 << 32:
            self.fail("a number has more than 32 bits")
        return value

    def skip(self, num_bytes: int) -> None:
        if num_bytes > self.end - self.at:
            self.fail("the bytes end too early")
        self.at += num_bytes

    def sized(self) -> "Reader":
        """Read a size, skip as many bytes, and return a reader of these bytes."""
        size = self.number()
        start = self.at
        self.skip(size)
        return Reader(self._wasm, start, self.at)

    def value_type(self) -> None:
        if self.byte() in _LONG_REFERENCES:
            self.number()

    def finish(self) -> None:
        """Raise UsageError unless all bytes have been read."""
        if self.at != self.end:
            self.fail("bytes are left over")

    def fail(self, what: str) -> NoReturn:
        raise UsageError(f"cannot compile the module: {what} (at byte {self.at})")


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """`num_locals`: declared locals, without parameters. The instructions stand at `code_start` to `end`."""

    size: int
    num_locals: int
    code_start: int
    end: int


class Sections:
    """The sections of a module. Raises UsageError if their frame is not as the specification has it."""

    def __init__(self, wasm: bytes) -> None:
        self.wasm = wasm
        self._found = dict(self._read())

    def _read(self) -> Iterator[tuple[int, Reader]]:
        reader = Reader(self.wasm, 0, len(self.wasm))
        if not self.wasm.startswith(_HEADER):
            reader.fail("the header is not that of WebAssembly 1")
        reader.skip(len(_HEADER))
        place = -1
        while reader.at < reader.end:
            kind = reader.byte()
            body = reader.sized()
            if kind == _CUSTOM:
                body.sized()  # the name
                continue
            if kind not in _ORDER:
                body.fail(f"section {kind} is not known")
            if _ORDER.index(kind) <= place:
                body.fail(f"section {kind} is out of order, or there twice")
            place = _ORDER.index(kind)
            yield kind, body

    def count(self, kind: int) -> int:
        """Return the number of entries of a section; 0 without the section. Every entry has at least one byte."""
        reader = self.body(kind)
        count = reader.number() if reader else 0
        if reader and kind not in (START, DATA_COUNT) and count > reader.end - reader.at:
            reader.fail(f"section {kind} is too short for {count} entries")
        return count

    def counts(self) -> Mapping[int, int]:
        """Return the number of entries by section. Raise UsageError if sections contradict each other."""
        counts = {kind: self.count(kind) for kind in self._found if kind != START}
        for one, other in ((FUNCTION, CODE), (DATA_COUNT, DATA)):
            if counts.get(one, 0) != counts.get(other, 0) and (one == FUNCTION or one in counts):
                end = Reader(self.wasm, len(self.wasm), len(self.wasm))
                end.fail(f"sections {one} and {other} have {counts.get(one, 0)} and {counts.get(other, 0)} entries")
        return counts

    def function_types(self) -> Iterator[int]:
        """Yield the number of parameters and results of every type, up to a type that is not a function's."""
        reader = self.body(TYPE)
        if reader is None:
            return
        for _ in range(reader.number()):
            if reader.byte() != _FUNCTION_TYPE:
                return  # of a proposal that is off: wasmtime refuses the module by name
            num_values = 0
            for _ in range(2):
                count = reader.number()
                for _ in range(count):
                    reader.value_type()
                num_values += count
            yield num_values
        reader.finish()

    def function_bodies(self) -> Iterator[FunctionBody]:
        reader = self.body(CODE)
        if reader is None:
            return
        for _ in range(reader.number()):
            body = reader.sized()
            start, num_locals = body.at, 0
            for _ in range(body.number()):
                num_locals += body.number()
                body.value_type()
            yield FunctionBody(body.end - start, num_locals, body.at, body.end)
        reader.finish()

    def body(self, kind: int) -> Reader | None:
        """Return a reader of a section; None without the section."""
        found = self._found.get(kind)
        return None if found is None else Reader(self.wasm, found.at, found.end)
