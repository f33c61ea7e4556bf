"""Snapshots: the memory of a guest that has read the vocabulary, in a file. Later guests start from the file.

The file holds, in this order:

    one page: a magic number, the size of the memory (u64), the number of globals (u32), and each global (u8 and bytes)
    the linear memory, sparse

A guest maps the memory copy-on-write, so the guests of a machine share all pages that they only read. A snapshot is
made once for a module and a vocabulary. Only modules that export `aici_read_vocabulary` have snapshots, and only if
all state is visible to the runtime (`movable.py`). While the snapshot is made, the guest can read the trie and the EOS
token; any other host function that could tell one request, flag or moment from another fails, and there is no
snapshot. So a snapshot is a function of the module and the vocabulary.

A snapshot holds data of a guest and no code: a wrong snapshot harms its guests and nobody else.
"""

import os
import struct
from collections.abc import Callable
from typing import Final

import wasmtime

from aici_runtime.abi import NUM_BLOBS, READ_VOCABULARY
from aici_runtime.guests.guest import MAX_TABLE_ELEMENTS, PAGE_BYTES, Guest, GuestError
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.guests.linker import Linker, returns_offset
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

MAX_MEMORY_BYTES: Final = 64 << 20
MAX_FILE_BYTES: Final = MAX_MEMORY_BYTES + PAGE_BYTES

_HEAD: Final = struct.Struct("<8sQI")
_MAGIC: Final = b"aicimem1"
_WASM_PAGE_BYTES: Final = 65536


class NoSnapshotError(Exception):
    """There is no snapshot, or the file is of no use. The guest starts as usual."""


class _VocabularyHost(HostFunctions):
    """The host functions of a guest that reads the vocabulary ahead."""

    allowed = frozenset({"aici_host_token_trie", "aici_host_eos_token", "aici_host_read_blob"})

    def __init__(self, vocabulary: LoadedVocabulary) -> None:
        super().__init__(vocabulary, lambda _: b"")
        self.guest.blobs = [None] * NUM_BLOBS  # there is no blob but the trie

    def log(self, _text: bytes) -> None:
        raise GuestError("the log belongs to a request")

    def random(self, _length: int) -> bytes:
        raise GuestError("random bytes belong to a request")

    def clock_ns(self) -> int:
        raise GuestError("the clock belongs to a request")

    def on_failure(self, error: BaseException) -> str:
        return str(error)


def make(
    engine: wasmtime.Engine,
    module: wasmtime.Module,
    vocabulary: LoadedVocabulary,
    descriptor: int,
    *,
    memory_max_bytes: int,
    max_table_elements: int = MAX_TABLE_ELEMENTS,
    before_guest: Callable[[], None] = lambda: None,
) -> None:
    """Run a guest until it has read the vocabulary, and write the snapshot into an empty file.

    Raise NoSnapshotError if the module has no snapshot. Runs code of the guest, so call in the sandbox. `before_guest`
    is called when all is prepared, before the first instruction of the guest.
    """
    host = _VocabularyHost(vocabulary)
    linker = Linker(engine, host.on_failure)
    host.define(linker, returns_offset=returns_offset(module))
    before_guest()
    try:
        guest = Guest(
            engine=engine,
            linker=linker.wasmtime,
            module=module,
            memory_max_bytes=memory_max_bytes,
            max_table_elements=max_table_elements,
        )
        if not (guest.exports(READ_VOCABULARY) and guest.is_movable):
            raise NoSnapshotError(f"the module does not export {READ_VOCABULARY}, or its guests have hidden state")
        host.guest.memory, host.guest.trie = guest.memory, vocabulary.tries[guest.abi]
        guest.initialize(read_vocabulary=True)
    except GuestError as error:
        raise NoSnapshotError(str(error)) from error
    write(guest, descriptor)
    guest.close()


def write(guest: Guest, descriptor: int) -> None:
    """Write the state of a guest into an empty file. Raise NoSnapshotError if the state is too large."""
    values = guest.globals()
    head = _HEAD.pack(_MAGIC, guest.memory.size_bytes(), len(values))
    head += b"".join(bytes([len(value)]) + value for value in values)
    if len(head) > PAGE_BYTES:
        raise NoSnapshotError("the globals are too many")
    if guest.memory.size_bytes() > MAX_MEMORY_BYTES:
        raise NoSnapshotError("the memory is too large")
    os.ftruncate(descriptor, PAGE_BYTES + guest.memory.size_bytes())
    os.pwrite(descriptor, head, 0)
    for number in guest.memory.pages():
        os.pwrite(descriptor, guest.memory.page(number), PAGE_BYTES * (1 + number))


def start_from(guest: Guest, descriptor: int) -> None:
    """Give a new guest the state of a snapshot of its module. `descriptor`: of the file, open for reading.

    Raise NoSnapshotError if the file is damaged, or too large for the memory limit. Then the guest is of no use any
    more.
    """
    try:
        size, values = _read_head(descriptor)
        guest.memory.grow_to(size)
        if guest.memory.size_bytes() != size or [len(value) for value in guest.globals()] != [*map(len, values)]:
            raise NoSnapshotError("the snapshot belongs to another module")
        guest.memory.map_file(descriptor, PAGE_BYTES)
        guest.set_globals(values)
    except (OSError, GuestError) as error:
        raise NoSnapshotError(str(error)) from error
    guest.is_initialized, guest.snapshot_bytes = True, size


def _read_head(descriptor: int) -> tuple[int, list[bytes]]:
    head = os.pread(descriptor, PAGE_BYTES, 0)
    if len(head) != PAGE_BYTES:
        raise NoSnapshotError("the file is too short")
    magic, size, num_globals = _HEAD.unpack_from(head)
    is_whole = size % _WASM_PAGE_BYTES == 0 and os.fstat(descriptor).st_size == PAGE_BYTES + size
    if magic != _MAGIC or not is_whole or num_globals > PAGE_BYTES:
        raise NoSnapshotError("the file is no snapshot")
    values, at = [], _HEAD.size
    for _ in range(num_globals):
        length = head[at] if at < PAGE_BYTES else 0
        values.append(head[at + 1 : at + 1 + length])
        at += 1 + length
    return size, values
