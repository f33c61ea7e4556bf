"""Images: a guest of a pool that starts from one differs from a fresh guest in nothing but speed."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aici_runtime.client import Runtime
from aici_runtime.supervision.images import ImageKey, Images
from tests.runtime.supervision.test_templates import begin, counting, logs_of
from tests.runtime.support import wat
from tests.runtime.support.leak import used_slots
from tests.support.processes import command, descendants, wait_until

RANDOM = """(call $random_get (i32.const 0x8000) (i32.const 8)) drop
    (call $log (i32.const 0x8000) (i32.const 8))"""


def write(images: Images, key: ImageKey, size: int = 4096) -> bool:
    """Ask for the image of a key, and write one if there is none. Return whether there was one."""
    with images.find(key) as (image, file):
        if file >= 0:
            os.ftruncate(file, size)
            os.write(file, b"x" * size)
            images.keep(key, file, {"handle": 1})
        return image is not None


def key(argument: str, user: str = "one") -> ImageKey:
    return ImageKey("module", user, argument.encode())


def test_a_key_has_an_image_from_the_third_request_on() -> None:
    images = Images(limit=4, memory_max_bytes=1 << 20)
    assert [write(images, key("a")) for _ in range(4)] == [False, False, True, True]
    assert not write(images, key("a", user="two"))
    with images.find(key("a")) as (image, file):
        assert image is not None
        assert (image.about, os.pread(image.descriptor, 2, 0), file) == ({"handle": 1}, b"xx", -1)


def test_the_image_used_least_goes_first() -> None:
    images = Images(limit=2, memory_max_bytes=1 << 20)
    for argument in ("a", "a", "b", "b", "a", "c", "c"):
        write(images, key(argument))
    assert [write(images, key(argument)) for argument in "acb"] == [True, True, False]


def test_images_have_room_for_so_many_bytes() -> None:
    images = Images(limit=9, memory_max_bytes=8192)
    for argument in ("a", "a", "b", "b", "c", "c"):
        write(images, key(argument), 4096)
    assert [write(images, key(argument)) for argument in "cba"] == [True, True, False]


def test_no_image_is_kept_that_somebody_can_still_write() -> None:
    images = Images(limit=2, memory_max_bytes=1 << 20)
    write(images, key("a"))
    with images.find(key("a")) as (_, file):
        os.write(file, bytes(4096))
        with mmap.mmap(file, 4096):
            images.keep(key("a"), file, {})
    with images.find(key("a")) as (image, file):
        assert (image, file >= 0) == (None, True)
        images.keep(key("a"), file, {})
        with pytest.raises(PermissionError):
            os.write(file, b"x")


def test_a_refused_key_has_no_image_and_others_have() -> None:
    images = Images(limit=2, memory_max_bytes=1 << 20)
    write(images, key("a"))
    images.refuse(key("a"))
    assert [write(images, key("a")) for _ in range(2)] == [False, False]
    assert [write(images, key("b")) for _ in range(3)] == [False, False, True]


def test_descriptors_are_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    images = Images(limit=2, memory_max_bytes=1 << 20)
    for argument in "aabbccddeeff":
        write(images, key(argument))
    assert len(os.listdir("/proc/self/fd")) == before + 2
    images.drop_modules(lambda module_id: module_id == "module")
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_a_limit_there_are_none() -> None:
    images = Images(limit=0, memory_max_bytes=1 << 20)
    assert not any(write(images, key("a")) for _ in range(4))


def num_images(runtime: Runtime) -> int:
    (side,) = [pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-side"]
    opened = (os.readlink(entry) for entry in Path(f"/proc/{side}/fd").iterdir())
    return sum("aici-image" in name for name in opened)


def test_guests_start_from_the_image_of_their_argument(start_runtime: Callable[..., Runtime]) -> None:
    """Also the memory that the guest has written, and its log."""
    runtime = start_runtime(extra_args=("--placement=pool",))
    store = "(i32.store (i32.const 0x20000) (i32.const 42))"
    prompt = "(if (i32.ne (i32.load (i32.const 0x20000)) (i32.const 42)) (then unreachable)) " + wat.ECHO
    wasm = counting(create=store, prompt=prompt)
    for number in range(4):
        assert num_images(runtime) == int(number >= 2)
        seq_id = begin(runtime, wasm, "argument", (number,))
        assert logs_of(runtime, seq_id) == f'created {{"prompt":[{number}]}}step '
    assert logs_of(runtime, begin(runtime, wasm, "other")) == 'created {"prompt":[1]}step '


def test_a_guest_that_draws_random_numbers_has_no_image(start_runtime: Callable[..., Runtime]) -> None:
    runtime = start_runtime(extra_args=("--placement=pool",))
    wasm = counting(create=RANDOM)
    for _ in range(4):
        begin(runtime, wasm)
    assert num_images(runtime) == 0


def test_the_next_guest_gets_the_instance_of_one_that_has_left(start_runtime: Callable[..., Runtime]) -> None:
    """An instance reserves gigabytes of addresses, which tell how many instances there are."""
    runtime = start_runtime(extra_args=("--placement=pool",))
    wasm = counting(create="(i32.store (i32.const 0x20000) (i32.const 42))")
    reserved = []
    for _ in range(5):
        seq_id = begin(runtime, wasm, "argument")
        assert logs_of(runtime, seq_id) == "created step "
        (pool,) = [pid for pid in descendants(runtime.pid) if command(pid) == "aicirt-pool"]
        reserved.append(reserved_gib(pool))
        runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[seq_id])
        assert wait_until(lambda: used_slots(runtime.pid) == 1, 10)  # the slot of the pool
        reserved.append(reserved_gib(pool))
    *_, third, after_third, fourth, after_fourth, fifth, after_fifth = reserved
    assert third == after_third == fourth == after_fourth == fifth == after_fifth


def reserved_gib(pid: int) -> int:
    """Return the addresses of a process in GiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * mmap.PAGESIZE >> 30
