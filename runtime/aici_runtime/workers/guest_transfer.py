"""The transfer area: shared memory for a guest on the way from process to process, mapped before any fork.

    u32 length of a document, the document (JSON); from a fixed offset the guest's pages, numbered by the document

The stepper lets one guest at a time into the area. The memory is sparse and given back after every move.
"""

import mmap
from struct import Struct
from typing import Any

import orjson

from aici_runtime.guests.guest import PAGE_BYTES, Guest

_LENGTH = Struct("<I")
_DOCUMENT_MAX_BYTES = 8 << 20
_MAP_NORESERVE = 0x4000


class GuestTransfer:
    """Owns the mapping. `memory_max_bytes`: the limit of a guest's linear memory."""

    def __init__(self, memory_max_bytes: int) -> None:
        size = memory_max_bytes + _DOCUMENT_MAX_BYTES
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)

    def put(self, document: dict[str, Any], guest: Guest) -> bool:
        """Write a guest into the area. Return False, with nothing written, if the guest is too large."""
        pages = list(guest.memory.pages())
        own = {
            "size_bytes": guest.memory.size_bytes(),
            "pages": pages,
            "globals": [value.hex() for value in guest.globals()],
        }
        head = orjson.dumps(document | {"guest": own})
        if len(head) + _LENGTH.size > _DOCUMENT_MAX_BYTES:
            return False
        _LENGTH.pack_into(self._memory, 0, len(head))
        self._memory[_LENGTH.size : _LENGTH.size + len(head)] = head
        at = _DOCUMENT_MAX_BYTES
        for number in pages:
            self._memory[at : at + PAGE_BYTES] = guest.memory.page(number)
            at += PAGE_BYTES
        return True

    def document(self) -> dict[str, Any]:
        """Return the document of the guest in the area."""
        (length,) = _LENGTH.unpack_from(self._memory)
        document: dict[str, Any] = orjson.loads(self._memory[_LENGTH.size : _LENGTH.size + length])
        return document

    def take(self, own: dict[str, Any], guest: Guest) -> None:
        """Turn `guest`, a new guest of the same module, into the guest described by `own`."""
        starts = range(_DOCUMENT_MAX_BYTES, len(self._memory), PAGE_BYTES)
        with memoryview(self._memory) as memory:
            pages = {number: memory[at : at + PAGE_BYTES] for number, at in zip(own["pages"], starts, strict=False)}
            guest.take_over(own["size_bytes"], pages, [bytes.fromhex(value) for value in own["globals"]])
            for page in pages.values():
                page.release()

    def clear(self) -> None:
        """Give the memory back to the kernel."""
        self._memory.madvise(mmap.MADV_REMOVE)
