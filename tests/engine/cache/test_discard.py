"""Memory of pages that nobody needs goes back to the system, and answers stay the same."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aici_engine.arrays import reserve
from aici_engine.cache.ids import PageId
from aici_engine.cache.memory import resident_bytes
from aici_engine.cache.pressure import calling, watching
from aici_engine.cache.storage import KVStorage
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.request import Request
from tests.engine.support import encode

PAGE_SIZE, NUM_PAGES = 16, 512


def test_discarded_pages_cost_no_memory_and_their_neighbours_stay() -> None:
    arrays = [reserve((NUM_PAGES * PAGE_SIZE, 2, 72), np.uint16) for _ in range(4)]
    storage = KVStorage(arrays[:2], arrays[2:], page_size=PAGE_SIZE)
    for array in arrays:
        array[...] = 7
    kept, spent = [PageId(0), PageId(100), PageId(101)], [PageId(page) for page in range(NUM_PAGES)]
    spent = [page for page in spent if page not in kept]
    before = resident_bytes()
    storage.discard(spent)
    freed = before - resident_bytes()
    for array in arrays:
        for page in kept:
            assert (array[page * PAGE_SIZE : (page + 1) * PAGE_SIZE] == 7).all()
        assert (array[102 * PAGE_SIZE + 16 * PAGE_SIZE : 400 * PAGE_SIZE] == 0).all()
    assert freed > 0.9 * sum(array.nbytes for array in arrays)


def test_after_memory_was_short_answers_are_the_same(tiny_model: Path) -> None:
    prompt, sampling = encode("a long beginning, " * 8), SamplingParams(temperature=1.0, seed=5, max_tokens=30)
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=200, page_size=16)) as engine:

        def ask() -> tuple[str, int]:
            end = engine.submit(Request(prompt=prompt, sampling=sampling)).wait()
            return end.text, end.usage.cached_tokens

        first, again = ask(), ask()
        for _ in range(20):
            engine.shrink()  # halves the idle pages each time
        after = ask()
    assert first[0] == again[0] == after[0]
    assert again[1] > 0
    assert after[1] == 0


@pytest.fixture
def urgent() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Urgent data of TCP are an event of the same kind as the kernel's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sending = socket.create_connection(listener.getsockname())
        hearing, _ = listener.accept()
        with sending, hearing:
            yield sending, hearing


def test_pressure_is_heard_each_time(urgent: tuple[socket.socket, socket.socket]) -> None:
    sending, hearing = urgent
    heard = threading.Semaphore(0)

    def on_pressure() -> None:
        hearing.recv(1, socket.MSG_OOB)
        heard.release()

    with calling(on_pressure, [hearing.fileno()]):
        for _ in range(2):
            sending.send(b"!", socket.MSG_OOB)
            assert heard.acquire(timeout=30)
    assert not any(thread.name == "aici-pressure" for thread in threading.enumerate())


def test_without_pressure_information_nothing_is_watched(tmp_path: Path) -> None:
    with watching(lambda: None, tmp_path):
        assert not any(thread.name == "aici-pressure" for thread in threading.enumerate())
