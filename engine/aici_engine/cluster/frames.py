"""The messages between driver, stages and node daemons: a msgpack header, and for some messages a body of bytes.

    driver -> stage     MeasureSpeed, LoadStage, TensorPiece + bytes, Attach, Detach, Ping
    stage -> driver     StageSpeed, NeedTensors, PiecesTaken, StageLoaded, Attached, StepStates + states, StepFailed,
                        StageLost, Pong
    along the pipeline  StepFrame + token ids (to the first stage) or hidden states (to the others)

Every stage has a connection of its own with the driver, and one to the next stage. A step enters at the first stage,
each stage passes the step on with its own states as the body, and the last stage answers the driver with StepStates.
Each connection begins with a Hello in both directions (`aici_engine.cluster.link`). A peer is trusted with the contents
of its frames, and with nothing else: a frame is checked before anything is allocated or computed.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from aici_base.errors import AiciError
from aici_engine.failure import Failure as Failure

VERSION: Final = 3
"""Of the messages. Peers of different versions refuse each other by name."""

PIECE_BYTES: Final = 128 << 10
"""A frame travels in pieces of at most so many bytes, so that heartbeats pass between the pieces on a slow link."""
MAX_HEADER_BYTES: Final = 4 << 20
MAX_CHUNKS: Final = 1 << 16
"""Chunks of a step, and sequences whose page tables a stage remembers."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name: TypeAlias = Annotated[str, Meta(max_length=512)]
Rate: TypeAlias = Annotated[float, Meta(ge=1.0, le=1e18)]
Digest: TypeAlias = Annotated[bytes, Meta(min_length=32, max_length=32)]


class FrameError(AiciError):
    """A peer sent a frame that is damaged, out of bounds or out of order. The frame has had no effect."""


class Hello(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="hello"):
    """The first message in both directions. `version` is the first field, in all versions.

    `cluster`: the public name of the cluster token. `role`: what the sender is: "driver", "stage" or "node". `name`:
    for people. `nonce`: random. `answers`: the nonce that this Hello answers; empty in the first. `mac`: HMAC of all
    other fields under the cluster token.
    """

    version: Count
    cluster: Name
    role: Name
    name: Name
    nonce: Annotated[bytes, Meta(max_length=64)]
    answers: Annotated[bytes, Meta(max_length=64)] = b""
    mac: Annotated[bytes, Meta(max_length=64)] = b""


class Refused(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="refused"):
    """The peer does not go on with this connection. `failure` says why."""

    failure: Failure


class TensorDigest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A tensor of a checkpoint. `dtype`: as safetensors spells it. `sha256`: of its bytes, little-endian, row-major."""

    name: Name
    dtype: Annotated[str, Meta(max_length=16)]
    shape: Annotated[tuple[Number, ...], Meta(max_length=8)]
    num_bytes: Number
    sha256: Digest


class HeldRange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A range of layers in a stage's memory. The fields mean the same as in LoadStage."""

    model: Digest
    first: Count
    last: Count
    embedding: bool
    head: bool
    dtype: Name


class StageFacts(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="facts"):
    """What a stage is, and holds; the first message to a driver.

    `pid`: of its process. `cpu_level`: of the kernels; empty if torch computes alone. `device`: "cpu" or "cuda".
    `memory_bytes`: for weights, keys and values. `epoch`: the latest epoch that the stage has seen.
    """

    pid: Count
    cpu_level: Name
    device: Name
    num_threads: Count
    memory_bytes: Number
    epoch: Number
    held: HeldRange | None = None


class MeasureSpeed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="measure"):
    """Answered by StageSpeed. A stage measures once, which takes about 0.3 s, and remembers the result."""


class StageSpeed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="speed"):
    """`bytes_per_s`: the stage's rate of reading weights. `flops_per_s`: the stage's rate of computing batches, by
    format of the weights."""

    bytes_per_s: Rate
    flops_per_s: Annotated[dict[Name, Rate], Meta(max_length=16)]


class Ping(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="ping"):
    """Measures a round trip; answered by Pong."""

    number: Count


class Pong(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="pong"):
    number: Count


class LoadStage(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="load"):
    """Load layers `first` to `last` - 1 of a model. Answered by NeedTensors, if tensors are missing, then StageLoaded.

    `model`: the digest of the model. `config`: the model's config.json. `tensors`: the checkpoint's tensors that this
    range needs. The other fields mean the same as in the engine's configuration; `dtype` is never "auto".
    """

    model: Digest
    config: Annotated[bytes, Meta(max_length=4 << 20)]
    first: Count
    last: Count
    embedding: bool
    head: bool
    dtype: Name
    backend: Name
    device: Name
    page_size: Annotated[int, Meta(ge=1, lt=1 << 16)]
    num_threads: Count
    tensors: Annotated[list[TensorDigest], Meta(max_length=1 << 17)]


class NeedTensors(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="need"):
    """Send these tensors, one after the other. At most `window` pieces may be on their way without a PiecesTaken."""

    names: Annotated[list[Name], Meta(max_length=1 << 17)]
    window: Annotated[int, Meta(ge=1, le=64)]


class TensorPiece(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="piece"):
    """Bytes `offset` to `offset + len(body) - 1` of a tensor."""

    name: Name
    offset: Number


class PiecesTaken(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="taken"):
    """The stage has taken so many further pieces."""

    count: Annotated[int, Meta(ge=1, lt=1 << 16)]


class StageLoaded(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="loaded"):
    """The weights are in memory.

    `weight_bytes`: of this range. `page_bytes`: bytes of a page of the KV cache, all layers of this range. `max_pages`:
    the most pages that the stage has room for. `states_dtype`: the number type of hidden states, as torch spells it.
    `read_bytes`, `sent_bytes`: read from the stage's own disk; sent by the driver.
    """

    model: Digest
    weight_bytes: Number
    page_bytes: Number
    max_pages: Number
    hidden_size: Count
    vocab_size: Count
    states_dtype: Name
    read_bytes: Number
    sent_bytes: Number
    seconds: float


class Attach(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="attach"):
    """Begin an epoch with an empty KV cache. Frames of other epochs are refused from now on.

    `stage`: the place in the pipeline, from 0. `next`: the address of the next stage; empty for the last stage, whose
    states go to the driver. `rows_only`: the last stage returns states of the rows with logits alone, since the driver
    has no layers.
    """

    epoch: Number
    stage: Count
    num_stages: Annotated[int, Meta(ge=1, le=1024)]
    next: Name
    num_pages: Count
    page_size: Annotated[int, Meta(ge=1, lt=1 << 16)]
    max_batch_tokens: Count
    max_context: Count
    rows_only: bool


class Attached(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="attached"):
    """The stage has its KV cache, and a connection to the next stage."""

    epoch: Number
    stage: Count


class Detach(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="detach"):
    """End the epoch: drop the KV cache, keep the weights. Not answered."""

    epoch: Number


class ChunkFrame(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`aici_engine.step_input.Chunk`, with changes of the page table in place of the table.

    The table of sequence `seq` becomes its first `keep` entries, then `pages`.
    """

    seq: Number
    start: Count
    count: Annotated[int, Meta(ge=1, lt=1 << 31)]
    keep: Count
    pages: Annotated[list[Count], Meta(max_length=1 << 20)]
    num_logits: Count


StageTimes: TypeAlias = tuple[Count, Count, Count]
"""Stage, then microseconds in which the stage waited for the step, and computed the step."""


class StepFrame(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="step"):
    """A step on its way through the pipeline. The body: token ids (i32) to the first stage, else hidden states, in the
    order of the chunks' tokens.

    `number` counts from 1 in each epoch. `copies`: (source, target) pages, to be copied in order before the chunks are
    computed. `forgotten`: sequences whose page tables are dropped first. `times`: of the stages so far. `failure`: a
    stage has failed to compute the step. The body is empty then, and the other stages follow the copies and the page
    tables alone.
    """

    epoch: Number
    number: Number
    forgotten: Annotated[list[Number], Meta(max_length=MAX_CHUNKS)]
    copies: Annotated[list[tuple[Count, Count]], Meta(max_length=MAX_CHUNKS)]
    chunks: Annotated[list[ChunkFrame], Meta(max_length=MAX_CHUNKS)]
    times: Annotated[list[StageTimes], Meta(max_length=1024)] = []
    failure: Failure | None = None


class StepStates(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="states"):
    """The last stage's answer to the driver. The body: hidden states of all tokens, or of the rows with logits."""

    epoch: Number
    number: Number
    times: Annotated[list[StageTimes], Meta(max_length=1024)]


class StepFailed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="failed"):
    """A stage could not do what it was asked for. `number` 0: the failure belongs to no step (a load, an attach)."""

    epoch: Number
    number: Number
    stage: Count
    failure: Failure


class StageLost(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="lost"):
    """Stage `stage` has lost its connection to the next stage, or has been told so."""

    epoch: Number
    stage: Count
    failure: Failure


ToStage: TypeAlias = Ping | MeasureSpeed | LoadStage | TensorPiece | Attach | Detach | StepFrame
FromStage: TypeAlias = (
    Refused
    | StageFacts
    | StageSpeed
    | Pong
    | NeedTensors
    | PiecesTaken
    | StageLoaded
    | Attached
    | StepStates
    | StepFailed
    | StageLost
)

encode: Final = msgspec.msgpack.Encoder().encode


def decoder(kind: Any) -> Callable[[Buffer], Any]:
    """Return a function that decodes a header as `kind`, a class or a union, and raises FrameError alone."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def checked(header: Buffer) -> Any:
        try:
            return decode(header)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise FrameError(f"a frame cannot be read: {error}") from None

    return checked


decode_to_stage: Final[Callable[[Buffer], ToStage]] = decoder(ToStage)
decode_from_stage: Final[Callable[[Buffer], FromStage]] = decoder(FromStage)
decode_hello: Final[Callable[[Buffer], Hello]] = decoder(Hello)


# A frame in pieces.

_LENGTHS = struct.Struct("<IQ")


def pieces(header: bytes, body: Buffer = b"") -> Iterator[bytes]:
    """Yield the messages that carry a frame: the lengths of header and body, then header and body, cut."""
    view = memoryview(body).cast("B")
    lengths = _LENGTHS.pack(len(header), len(view))
    first = max(0, PIECE_BYTES - len(lengths))
    if len(header) + len(view) <= first:
        yield b"".join((lengths, header, view))
        return
    whole = [memoryview(header), view]
    yield b"".join((lengths, *_cut(whole, first)))
    while any(map(len, whole)):
        yield b"".join(_cut(whole, PIECE_BYTES))


def _cut(whole: list[memoryview], size: int) -> Iterator[memoryview]:
    """Take `size` bytes from the front."""
    for i, view in enumerate(whole):
        yield view[:size]
        whole[i], size = view[size:], max(0, size - len(view))


class FrameReader:
    """Puts the pieces of one connection together. `max_body_bytes` may change between frames."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._header = self._body = bytearray()
        self._room: list[memoryview] = []
        """What is not filled yet, of the header and of the body; empty between frames."""

    def add(self, piece: Buffer) -> tuple[bytearray, bytearray] | None:
        """Take the next piece. Return header and body of a frame that is complete; the caller owns both.

        Raises FrameError for a frame larger than the bounds, before memory is allocated. The connection is then of no
        further use.
        """
        view = memoryview(piece).cast("B")
        if not self._room:
            view = self._begin(view)
        for i, room in enumerate(self._room):
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._room[i], view = room[count:], view[count:]
        if view:
            raise FrameError("a frame has more bytes than it said")
        if any(self._room):
            return None
        self._room = []
        return self._header, self._body

    def _begin(self, view: memoryview) -> memoryview:
        if len(view) < _LENGTHS.size:
            raise FrameError("a frame has no lengths")
        header, body = _LENGTHS.unpack_from(view)
        if not 1 <= header <= MAX_HEADER_BYTES:
            raise FrameError(f"the header of a frame has {header} bytes, and the limit is {MAX_HEADER_BYTES}")
        if body > self.max_body_bytes:
            raise FrameError(f"the body of a frame has {body} bytes, and the limit is {self.max_body_bytes}")
        self._header, self._body = bytearray(header), bytearray(body)
        self._room = [memoryview(self._header), memoryview(self._body)]
        return view[_LENGTHS.size :]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What a stage accepts in a step.

    `token_bytes`: bytes of the body per token: 4 for token ids, else hidden_size times the size of a number.
    `vocab_size`: set if the body has token ids.
    """

    num_pages: int
    page_size: int
    num_stages: int
    max_batch_tokens: int
    max_context: int
    token_bytes: int
    vocab_size: int | None = None

    @property
    def max_body_bytes(self) -> int:
        return self.max_batch_tokens * self.token_bytes


def check_step(step: StepFrame, body: Buffer, limits: StepLimits, num_held: Callable[[int], int]) -> None:
    """Raise FrameError for a step that the kernels must not see: the kernels check nothing.

    `num_held`: the number of pages in the table of a sequence, 0 for an unknown sequence.
    """
    num_tokens = sum(chunk.count for chunk in step.chunks)
    view = memoryview(body).cast("B")
    _require(1 <= num_tokens <= limits.max_batch_tokens, "step has {} tokens", num_tokens)
    num_bytes = 0 if step.failure is not None else num_tokens * limits.token_bytes
    _require(len(view) == num_bytes, "step of {} tokens has {} bytes", num_tokens, len(view))
    _require(len(step.times) < limits.num_stages, "step has passed {} stages", len(step.times))
    forgotten = set(step.forgotten)
    seen = set()
    for chunk in step.chunks:
        seq, table = chunk.seq, chunk.keep + len(chunk.pages)
        _require(seq not in seen, "sequence {} is twice in a step", seq)
        seen.add(seq)
        _require(chunk.keep <= (0 if seq in forgotten else num_held(seq)), "sequence {} keeps pages not known", seq)
        _require(chunk.start + chunk.count <= limits.max_context, "sequence {} is longer than the context", seq)
        _require(chunk.start + chunk.count <= table * limits.page_size, "sequence {} has {} pages only", seq, table)
        _require(table <= limits.num_pages, "sequence {} has {} pages", seq, table)
        _require(not chunk.pages or max(chunk.pages) < limits.num_pages, "page of sequence {} is out of range", seq)
        _require(chunk.num_logits <= chunk.count, "sequence {} wants too many rows", seq)
    _require(len(step.copies) <= limits.num_pages, "step copies {} pages", len(step.copies))
    for copy in step.copies:
        _require(max(copy) < limits.num_pages, "copied page {} is out of range", max(copy))
    if limits.vocab_size is not None and num_bytes:
        ids = view.cast("i")
        _require(min(ids) >= 0 and max(ids) < limits.vocab_size, "token id {} is out of range", max(ids))


def check_states(states: StepStates, body: Buffer, *, epoch: int, num_stages: int, num_bytes: int) -> None:
    """Raise FrameError for states that the driver's own kernels must not see. `num_bytes`: of the rows of the step."""
    size = memoryview(body).nbytes
    _require(states.epoch == epoch, "states are of epoch {}, not {}", states.epoch, epoch)
    _require(size == num_bytes, "states have {} bytes, not {}", size, num_bytes)
    _require([stage for stage, *_ in states.times] == list(range(num_stages)), "step has not passed all stages once")


def _require(holds: bool, message: str, *values: int) -> None:
    if not holds:
        raise FrameError("a frame is out of bounds: " + message.format(*values))
