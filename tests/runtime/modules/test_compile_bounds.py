"""What is refused before it is compiled, and that the reader of modules agrees with wasmtime."""

import random

import pytest
import wasmtime

from aici_base.errors import UsageError
from aici_controllers.catalog import guest_names, guest_path
from aici_runtime.guests.wasmtime_engine import new_engine
from aici_runtime.modules import compile_bounds
from aici_runtime.modules.compile_bounds import check_functions, check_sections
from aici_runtime.modules.wasm_sections import Sections
from tests.runtime.support import wasm_maker as maker
from tests.runtime.support.wasm_maker import GET, PUSH, module
from tests.support.scale import scaled

_BROKEN = "cannot compile the module: "


def check(wasm: bytes) -> None:
    found = check_sections(wasm)
    wasmtime.Module.validate(new_engine(), wasm)
    check_functions(found)


@pytest.mark.parametrize("guest", guest_names())
def test_guests_that_ship_are_within_the_bounds(guest: str) -> None:
    check(guest_path(guest).read_bytes())


def test_a_guest_of_ten_megabytes_is_within_the_bounds() -> None:
    wasm = maker.larger(guest_path("jsctrl").read_bytes(), 8, 2_000_000)
    assert len(wasm) > 10_000_000
    check(wasm)


@pytest.mark.parametrize(
    ("wasm", "what"),
    [
        (module(*[b""] * 50_001), "50001 functions: at most 50000"),
        (module(b"", types=[maker.NO_TYPE] * 10_001), "10001 types: at most 10000"),
        (module(b"", types=[maker.function_type(1000, 0)] * 101), "101000 parameters and results of types"),
        (module(b"", more={4: maker.vector([b"\x70\0\1"] * 3)}), "3 tables: at most 2"),
        (module(b"", more={11: maker.vector([b"\0\x41\0\x0b\0"] * 100_001)}), "100001 data segments"),
        (module(b"", more={6: maker.vector([b"\x7f\1\x41\0\x0b"] * 100_001)}), "100001 globals"),
        (module(*[b""] * 101, num_locals=50_000), "5050000 locals"),
        (module(b"", PUSH * 300_000), "function 1 of the module has 600002 bytes: at most 524288"),
    ],
)
def test_more_than_a_bound_is_refused_before_it_is_validated(wasm: bytes, what: str) -> None:
    with pytest.raises(UsageError, match=what) as refused:
        check_sections(wasm)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("wasm", "what"),
    [
        (module(b"\x02\x40" * 5_001 + b"\x0b" * 5_001), "function 0 of the module has 5001 blocks: at most 5000"),
        (module(b"", b"\x03\x40\x0b" * 1_001), "function 1 of the module has 1001 loops"),
        (maker.blocks_with_values(500, 10), "10000 parameters and results of blocks"),
        (maker.BOMBS["calls through a table"](60_000), "12000 calls through a table"),
        (
            module(b"\x1f\x7f\2\0\0\0\2\1" + PUSH + b"\x0b\x1a" + b"\x02\x40\x0b" * 5_000, more={13: b"\1\0\0"}),
            "5001 blocks",
        ),
    ],
)
def test_functions_that_are_slow_to_compile_are_refused(wasm: bytes, what: str) -> None:
    found = check_sections(wasm)
    with pytest.raises(UsageError, match=what):
        check_functions(found)


def test_what_is_just_within_the_bounds_is_taken() -> None:
    check(module(*[b""] * 50_000))
    check(module(b"\x02\x40" * 5_000 + b"\x0b" * 5_000))
    check(module(b"\x03\x40\x0b" * 1_000))
    check(maker.blocks_with_values(250, 10))


@pytest.mark.parametrize(
    "body",
    [
        b"\x02\x7f" + PUSH + b"\x0b\x1a",
        b"\x02\x40" + GET + b"\x0e\2\0\1\0\x0b",
        b"\x44" + b"\x02" * 8 + b"\x1a",
        b"\x43" + b"\x02" * 4 + b"\x1a",
        b"\xfd\x0c" + b"\x02" * 16 + b"\x1a",
        b"\x41\x82\x80\0\x1a",
        GET + PUSH + GET + b"\x1c\1\x7f\x1a",
        b"\xd0\x70\x1a",
        b"\xd0\x6f\x1a",
        GET + b"\x28\x82\0\x02\x1a",
        GET + GET + GET + b"\xfc\x0a\0\0",
        GET + GET + GET + b"\xfc\x0b\0",
        GET + b"\xfd\x0f\xfd\x15\2\x1a",
        GET + GET + b"\xfd\x0f\xfd\x54\0\x02\2\x1a",
        GET + b"\xfd\x5c\x02\x02\x1a",
        GET + b"\x40\0\x1a\x3f\0\x1a",
        b"\x44" + bytes(8) + b"\xfc\x02\x1a",
    ],
)
def test_immediates_are_not_taken_for_blocks(body: bytes) -> None:
    """A byte 2 in an immediate begins no block: the count is that of `block` alone."""
    wasm = module(body + b"\x02\x40\x0b" * 3, num_locals=1, more={5: b"\1\0\1"})
    found = check_sections(wasm)
    wasmtime.Module.validate(new_engine(), wasm)
    [function] = found.function_bodies()
    shape = compile_bounds.walk(wasm, function.code_start, function.end, [0])
    assert shape.num_blocks == 3 + body.startswith(b"\x02")


_STRUCTURE = ("out of order", "inconsistent lengths", "malformed section id", "magic header", "unknown binary version")


@pytest.mark.parametrize("guest", ["substring", "choices", "pyctrl"])
def test_mutants_of_guests(guest: str) -> None:
    """The reader raises nothing but UsageError. It refuses no frame that wasmtime takes, and takes none that wasmtime
    refuses."""
    wasm, engine, dice = guest_path(guest).read_bytes(), new_engine(), random.Random(guest)
    num_refused = num_valid = 0
    for _ in range(scaled(150)):
        mutant = mutate(wasm, dice)
        wasmtimes = refusal_of_wasmtime(engine, mutant)
        found, ours = sections_of(mutant)
        if found is None:
            num_refused += 1
            assert wasmtimes or not ours.startswith(_BROKEN), ours
            continue
        assert not any(text in wasmtimes for text in _STRUCTURE), wasmtimes
        if not wasmtimes:
            num_valid += 1
            check_functions(found)
    assert num_refused > 10
    assert num_valid > 3


def refusal_of_wasmtime(engine: wasmtime.Engine, wasm: bytes) -> str:
    try:
        wasmtime.Module.validate(engine, wasm)
    except wasmtime.WasmtimeError as error:
        return str(error)
    return ""


def sections_of(wasm: bytes) -> tuple[Sections | None, str]:
    """Return the sections, or why they are refused."""
    try:
        return check_sections(wasm), ""
    except UsageError as error:
        return None, error.message


def mutate(wasm: bytes, dice: random.Random) -> bytes:
    """Change, remove, repeat or move bytes or whole sections."""
    mutant = bytearray(wasm)
    for _ in range(dice.choice([1, 1, 2, 5])):
        sections = list(_frames(bytes(mutant)))
        if len(sections) < 2:
            break
        start, end = dice.choice(sections)
        match dice.randrange(6):
            case 0:
                mutant[dice.randrange(len(mutant))] = dice.randrange(256)
            case 1:
                mutant[start + dice.randrange(min(8, end - start))] = dice.randrange(256)
            case 2:
                del mutant[start:end]
            case 3:
                mutant[end:end] = mutant[start:end]
            case 4:
                at = dice.choice(sections)[0]
                mutant[at:at] = mutant[start:end]
            case 5:
                mutant[end:end] = b"\0" + maker.leb(5) + b"\3abc" + bytes([dice.randrange(256)])
    return bytes(mutant)


def _frames(wasm: bytes) -> list[tuple[int, int]]:
    frames, at = [], 8
    while at < len(wasm):
        start, size, shift = at, 0, 0
        at += 1
        while at < len(wasm):
            size |= (wasm[at] & 0x7F) << shift
            shift += 7
            at += 1
            if wasm[at - 1] < 0x80:
                break
        at = min(len(wasm), at + size)
        frames.append((start, at))
    return frames
