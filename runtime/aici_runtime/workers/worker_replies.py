"""The replies of a worker: a SeqResult as JSON, and the masks that are not in the mask region yet."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

_HEAD = struct.Struct("<HHI")
"""The number of masks, the number of masks already written to the mask region, the length of the JSON in bytes."""

_ONE_WRITTEN_MASK = _HEAD.pack(1, 1, 0)[:4]


class WorkerReply(NamedTuple):
    """A reply to `mid` or `step`. `num_masks`: masks of the result. `unwritten`: bits of the last masks, for the
    stepper to write."""

    result: bytes
    num_masks: int
    unwritten: Sequence[bytes]


def encode(result: bytes, num_masks: int, unwritten: Sequence[bytes | bytearray]) -> bytes:
    """Return a reply. `unwritten` holds the masks not yet in the mask region."""
    head = _HEAD.pack(num_masks, num_masks - len(unwritten), len(result))
    return b"".join((head, result, *unwritten)) if unwritten else head + result


def written_result(message: bytes) -> bytes:
    """Return the result of a reply with a single mask, already written to the mask row; else empty bytes."""
    return message[_HEAD.size :] if message.startswith(_ONE_WRITTEN_MASK) else b""


def decode(message: bytes) -> WorkerReply:
    """Parse a reply."""
    num_masks, num_written, length = _HEAD.unpack_from(message)
    end = _HEAD.size + length
    if num_masks == num_written:
        return WorkerReply(message[_HEAD.size : end], num_masks, ())
    size = (len(message) - end) // (num_masks - num_written)
    unwritten = [message[k : k + size] for k in range(end, len(message), size)]
    return WorkerReply(message[_HEAD.size : end], num_masks, unwritten)
