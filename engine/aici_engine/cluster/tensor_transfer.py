"""Tensors from the driver to a stage that lacks them: the stage asks, the driver sends pieces, the stage checks.

A bounded number of pieces travels at a time, so neither side holds more than one tensor and the pieces under way. The
classes know no sockets, and never wait.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from aici_base.errors import UnavailableError
from aici_engine.cluster.frames import Buffer, FrameError, NeedTensors, PiecesTaken, TensorDigest, TensorPiece

TENSOR_PIECE_BYTES: Final = 4 << 20
_WINDOW: Final = 4


class SendPiece(Protocol):
    """Sends a frame without waiting, as `StageLink.send` does. The body is valid during the call."""

    def __call__(self, message: TensorPiece, body: Buffer) -> None: ...


class TensorSender:
    """The driver's side of one NeedTensors. `read`: returns the bytes of a tensor; called at the tensor's turn.

    `sizes`: bytes of each tensor that the stage may ask for. Raises FrameError if the stage asks for another tensor.
    """

    def __init__(
        self, asked: NeedTensors, *, sizes: Mapping[str, int], read: Callable[[str], Buffer], send: SendPiece
    ) -> None:
        if unknown := next((name for name in asked.names if name not in sizes), None):
            raise FrameError(f"a stage asks for the tensor {unknown!r}, which its range does not need")
        self._num_left = sum(_num_pieces(sizes[name]) for name in asked.names)
        self._num_under_way = 0
        self._window = asked.window
        self._pieces = self._read(asked.names, sizes, read)
        self._send = send

    @property
    def is_done(self) -> bool:
        """Whether the stage has taken everything."""
        return self._num_left == 0

    def start(self) -> None:
        """Send the first pieces."""
        for piece, body in self._pieces:
            self._num_under_way += 1
            self._send(piece, body)
            if self._num_under_way == self._window:
                return

    def taken(self, message: PiecesTaken) -> None:
        """Send further pieces. Raises FrameError if the stage has taken more than it was sent."""
        if message.count > self._num_under_way:
            raise FrameError("a stage has taken more pieces of tensors than it was sent")
        self._num_under_way -= message.count
        self._num_left -= message.count
        self.start()

    @staticmethod
    def _read(
        names: Sequence[str], sizes: Mapping[str, int], read: Callable[[str], Buffer]
    ) -> Iterator[tuple[TensorPiece, memoryview]]:
        for name in names:
            data = memoryview(read(name)).cast("B")
            if len(data) != sizes[name]:
                raise UnavailableError(f"the tensor {name} has {len(data)} bytes, and had {sizes[name]} before")
            for i in range(_num_pieces(len(data))):
                at = i * TENSOR_PIECE_BYTES
                yield TensorPiece(name, at), data[at : at + TENSOR_PIECE_BYTES]


class TensorReceiver:
    """The stage's side. `keep` is called with each tensor once the digest is right; the bytes are the callee's.

    `wanted`: the tensors to ask for, all with the sizes announced by the driver. Raises UnavailableError if a tensor
    has more than `max_bytes`, before anything is allocated: a tensor is in memory until the digest is checked.
    """

    def __init__(
        self, wanted: Sequence[TensorDigest], *, keep: Callable[[TensorDigest, bytearray], None], max_bytes: int
    ) -> None:
        largest = max(wanted, key=lambda tensor: tensor.num_bytes, default=None)
        if largest is not None and largest.num_bytes > max_bytes:
            raise UnavailableError(
                f"the driver would send {largest.name} with {largest.num_bytes / (1 << 30):.2f} GiB, "
                f"and this stage may use {max_bytes / (1 << 30):.2f} GiB",
                hint="give the stage more memory, or fewer layers",
            )
        self._wanted = list(wanted)
        self._keep = keep
        self._index = 0
        self._data = bytearray()
        self._filled = 0
        self._digest = hashlib.sha256()

    @property
    def is_done(self) -> bool:
        return self._index == len(self._wanted)

    def request(self) -> NeedTensors:
        """Return the message that asks for the tensors."""
        return NeedTensors([tensor.name for tensor in self._wanted], _WINDOW)

    def take(self, piece: TensorPiece, body: Buffer) -> PiecesTaken:
        """Take the next piece, and return the answer to the driver.

        Raises FrameError for a piece that is not the next, and UnavailableError for a tensor with another digest.
        """
        if self.is_done:
            raise FrameError("the driver sends a tensor that nobody asked for")
        tensor = self._wanted[self._index]
        if (piece.name, piece.offset) != (tensor.name, self._filled):
            raise FrameError(
                f"the driver sends byte {piece.offset} of {piece.name}, not {self._filled} of {tensor.name}"
            )
        view = memoryview(body).cast("B")
        if len(view) != min(TENSOR_PIECE_BYTES, tensor.num_bytes - self._filled):
            raise FrameError(f"a piece of {tensor.name} has {len(view)} bytes")
        self._data += view  # grows with what arrives: a false size costs nothing
        self._digest.update(view)
        self._filled += len(view)
        if self._filled == tensor.num_bytes:
            self._finish(tensor)
        return PiecesTaken(1)

    def _finish(self, tensor: TensorDigest) -> None:
        if self._digest.digest() != tensor.sha256:
            raise UnavailableError(
                f"the tensor {tensor.name} arrived damaged: its digest is another",
                hint="the model's files may have changed since the driver has started: start the driver again",
            )
        data, self._data = self._data, bytearray()
        self._index, self._filled, self._digest = self._index + 1, 0, hashlib.sha256()
        self._keep(tensor, data)


def _num_pieces(num_bytes: int) -> int:
    return max(1, -(-num_bytes // TENSOR_PIECE_BYTES))
