"""Frames: what is accepted, and what a hostile or broken peer achieves."""

import array
import dataclasses
import random
import re
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_engine.cluster import frames
from aici_engine.cluster.frames import (
    Attach,
    ChunkFrame,
    Failure,
    FrameError,
    FrameReader,
    Hello,
    LoadStage,
    NeedTensors,
    StepFailed,
    StepFrame,
    StepLimits,
    StepStates,
    TensorDigest,
    TensorPiece,
    check_states,
    check_step,
    encode,
    pieces,
)
from aici_engine.cluster.page_changes import PageTableMirror

IDS = StepLimits(
    num_pages=8, page_size=16, num_stages=3, max_batch_tokens=64, max_context=100, token_bytes=4, vocab_size=1000
)
STATES = dataclasses.replace(IDS, token_bytes=8, vocab_size=None)

# Sequence 1 has two pages, sequence 2 three.
STEP = StepFrame(
    epoch=3,
    number=9,
    forgotten=[2, 77],
    copies=[(0, 7)],
    chunks=[ChunkFrame(1, 20, 2, 2, [], 1), ChunkFrame(3, 0, 17, 0, [3, 7], 0)],
    times=[(0, 10, 20)],
)


def mirror() -> PageTableMirror:
    mirror = PageTableMirror()
    chunks = [ChunkFrame(1, 0, 20, 0, [0, 1], 1), ChunkFrame(2, 0, 40, 0, [4, 5, 6], 1)]
    mirror.apply(StepFrame(3, 8, [], [], chunks), range(60))
    return mirror


def ids(num_tokens: int = 19, token: int = 999) -> bytes:
    return array.array("i", [token] * num_tokens).tobytes()


@contextmanager
def little_memory(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def test_a_step_within_bounds() -> None:
    check_step(STEP, ids(), IDS, mirror().num_held)
    check_step(STEP, bytes(19 * 8), STATES, mirror().num_held)


def chunk(**changes: object) -> StepFrame:
    first, *others = STEP.chunks
    return step(chunks=[msgspec.structs.replace(first, **changes), *others])


def step(**changes: object) -> StepFrame:
    return msgspec.structs.replace(STEP, **changes)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (step(chunks=[]), "0 tokens"),
        (chunk(count=48), "65 tokens"),
        (chunk(count=1), "has 76 bytes"),
        (chunk(keep=3), "not known"),
        (chunk(seq=9, pages=[1, 2]), "not known"),
        (chunk(seq=2), "not known"),
        (step(chunks=[ChunkFrame(1, 20, 1, 2, [], 1), ChunkFrame(1, 20, 18, 2, [2], 0)]), "twice"),
        (chunk(pages=[8]), "out of range"),
        (chunk(pages=[2, 3, 4, 5, 6, 7, 1]), "9 pages"),
        (chunk(start=31), "2 pages only"),
        (chunk(keep=1), "1 pages only"),
        (chunk(start=99, pages=[2, 3, 4, 5, 6]), "longer than the context"),
        (chunk(start=(1 << 31) - 1), "longer than the context"),
        (chunk(num_logits=3), "too many rows"),
        (step(copies=[(0, 8)]), "out of range"),
        (step(copies=[(8, 0)]), "out of range"),
        (step(copies=[(0, 1)] * 9), "copies 9"),
        (step(times=[(0, 1, 1)] * 3), "3 stages"),
    ],
)
def test_a_step_out_of_bounds(bad: StepFrame, why: str) -> None:
    with pytest.raises(FrameError, match=re.escape(why)):
        check_step(bad, ids(), IDS, mirror().num_held)


@pytest.mark.parametrize("token", [-1, 1000, 1 << 30])
def test_token_ids_are_checked(token: int) -> None:
    with pytest.raises(FrameError, match="token id"):
        check_step(STEP, ids(18) + ids(1, token), IDS, mirror().num_held)


def test_states_are_checked() -> None:
    good = StepStates(3, 9, [(0, 1, 2), (1, 1, 2)])
    check_states(good, bytes(24), epoch=3, num_stages=2, num_bytes=24)
    later = msgspec.structs.replace(good, epoch=4)
    half, twice = (msgspec.structs.replace(good, times=good.times[:1] * count) for count in (1, 2))
    for bad, size in ((good, 23), (good, 28), (later, 24), (half, 24), (twice, 24)):
        with pytest.raises(FrameError, match="out of bounds"):
            check_states(bad, bytes(size), epoch=3, num_stages=2, num_bytes=24)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff" * 100,
        encode([]),
        encode(["step"]),
        encode(["unknown", 1]),
        encode(STEP)[:-1],
        encode(STEP) + b"\x00",
        encode([*msgspec.to_builtins(STEP), 1]),
        encode(["detach", -1]),
        encode(["detach", 1 << 63]),
        encode(["detach", "1"]),
        encode(["detach", 1.0]),
        encode(["load", b"short", b"{}", 0, 1, True, True, "f", "n", "c", 16, 1, []]),
        b"\x93" * 100_000,
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_headers_that_are_none(broken: bytes) -> None:
    with little_memory(1 << 20), pytest.raises(FrameError, match="cannot be read"):
        frames.decode_to_stage(broken)


def test_messages_go_one_way() -> None:
    with pytest.raises(FrameError):
        frames.decode_from_stage(encode(STEP))
    with pytest.raises(FrameError):
        frames.decode_to_stage(encode(StepStates(1, 1, [])))


# Pieces.


@given(header=st.binary(min_size=1, max_size=300_000), body_size=st.integers(0, 300_000))
@settings(max_examples=30, deadline=None)
def test_frames_are_cut_and_put_together(header: bytes, body_size: int) -> None:
    body = random.Random(body_size).randbytes(body_size)
    reader = FrameReader(body_size)
    cut = list(pieces(header, body))
    assert all(len(piece) <= frames.PIECE_BYTES for piece in cut)
    assert len(cut) == max(1, -(-(12 + len(header) + body_size) // frames.PIECE_BYTES))
    for _ in range(2):  # a reader goes on with the next frame
        *early, last = [reader.add(piece) for piece in cut]
        assert early == [None] * len(early)
        assert last == (bytearray(header), bytearray(body))


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        bytes(11),
        struct.pack("<IQ", 0, 0),
        struct.pack("<IQ", frames.MAX_HEADER_BYTES + 1, 0),
        struct.pack("<IQ", (1 << 32) - 1, 0),
        struct.pack("<IQ", 1, 1001),
        struct.pack("<IQ", 1, (1 << 64) - 1),
        struct.pack("<IQ", 1, 0) + b"ab",
    ],
)
def test_pieces_that_are_none(piece: bytes) -> None:
    with little_memory(1 << 16), pytest.raises(FrameError):
        FrameReader(1000).add(piece)


# Fuzzing.

VALID = [
    STEP,
    Attach(3, 0, 2, "tcp://127.0.0.1:1#" + "a" * 64, 8, 16, 64, 100, True),
    LoadStage(
        bytes(32),
        b"{}",
        0,
        3,
        True,
        False,
        "float32",
        "native",
        "cpu",
        16,
        2,
        [TensorDigest("a", "F32", (2, 3), 24, bytes(32))],
    ),
    TensorPiece("a", 0),
    StepStates(3, 9, [(0, 1, 2)]),
    StepFailed(3, 9, 1, Failure("internal_error", "no")),
    NeedTensors(["a"], 4),
    Hello(1, "c", "driver", "d", bytes(16)),
]
DECODERS: list[Callable[[frames.Buffer], object]] = [
    frames.decode_to_stage,
    frames.decode_from_stage,
    frames.decode_hello,
]


def take(data: bytes, body: bytes) -> None:
    """What a stage does with a frame; only FrameError may come out, and the page tables stay in range."""
    for decode in DECODERS:
        with suppress(FrameError):
            message = decode(data)
            if isinstance(message, StepFrame) and message.failure is None:
                tables = mirror()
                check_step(message, body, IDS, tables.num_held)
                for each in tables.apply(message, memoryview(body).cast("i")).chunks:
                    assert all(0 <= page < IDS.num_pages for page in each.pages)
                    assert 0 <= each.start < each.end <= len(each.pages) * IDS.page_size


@given(st.binary(max_size=2000), st.binary(max_size=400))
@settings(max_examples=300, deadline=1000)
def test_random_bytes(data: bytes, body: bytes) -> None:
    take(data, body)
    with suppress(FrameError):
        FrameReader(1000).add(data)


@given(st.sampled_from(VALID), st.randoms(use_true_random=False))
@settings(max_examples=500, deadline=1000)
def test_mutated_frames(message: msgspec.Struct, rnd: random.Random) -> None:
    data = bytearray(encode(message))
    for _ in range(rnd.randint(1, 4)):
        at = rnd.randrange(len(data))
        match rnd.randrange(5):
            case 0:
                data[at] ^= 1 << rnd.randrange(8)
            case 1:
                data[at] = rnd.choice([0, 0x7F, 0xC0, 0xC6, 0xCF, 0xD3, 0xDB, 0xDD, 0xDF, 0xFF])
            case 2 if len(data) > 1:
                del data[at]
            case 3:
                data[at:at] = rnd.randbytes(rnd.randint(1, 9))
            case _:
                data[at:at] = data[at : at + rnd.randint(1, 40)]
    take(bytes(data), ids(rnd.choice([19, 18, 2]), rnd.choice([0, 999, 1000])))


@given(
    st.builds(
        StepFrame,
        epoch=st.just(3),
        number=st.just(9),
        forgotten=st.lists(st.integers(0, 4), max_size=3),
        copies=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2),
        chunks=st.lists(
            st.builds(
                ChunkFrame,
                st.integers(0, 4),
                st.integers(0, 110),
                st.integers(1, 40),
                st.integers(0, 9),
                st.lists(st.integers(0, 9), max_size=9),
                st.integers(0, 2),
            ),
            max_size=3,
        ),
    )
)
@settings(max_examples=500, deadline=1000)
def test_steps_of_any_numbers(message: StepFrame) -> None:
    take(encode(message), ids(sum(each.count for each in message.chunks)))


def test_the_largest_headers_are_bounded_in_time_and_memory() -> None:
    """Headers of 4 MiB that grow most when decoded."""
    size = frames.MAX_HEADER_BYTES
    numbers = b"\xdd" + struct.pack(">I", (size - 100) // 3) + b"\xcd\x7f\xff" * ((size - 100) // 3)
    empty = b"\xdd" + struct.pack(">I", size - 100) + b"\x90" * (size - 100)
    for part in (numbers, empty):
        for place in range(3):
            fields = [encode([])] * 3
            fields[place] = part
            header = b"\x97" + encode("step") + encode(1) + encode(1) + b"".join(fields) + encode([])
            began = time.monotonic()
            with little_memory(64 << 20), suppress(FrameError):
                frames.decode_to_stage(header)
            assert time.monotonic() - began < 2
