"""A shared runtime for tests that leave the runtime healthy. Tests that break a runtime start their own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aici_base.ids import TokenId
from aici_base.tokenizer.tokens import read_vocabulary
from aici_controllers import guest_loop
from aici_runtime.client import Runtime, RuntimeConfig
from tests.runtime.support import tokenizer
from tests.runtime.support.raw import RawEngine


@pytest.fixture(scope="session", autouse=True)
def _guest_loop() -> None:
    """Build the loop of the guests' processes from the current sources."""
    guest_loop.build()


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer.byte_level(tmp_path_factory.mktemp("byte-level"))


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start_runtime(byte_level: Path, cache_dir: Path) -> Iterator[Callable[..., Runtime]]:
    """Return a function that starts a runtime, ready to serve, for a single test."""
    started: list[Runtime] = []

    def start(**changes: Any) -> Runtime:
        runtime = Runtime(replace(RuntimeConfig(tokenizer=byte_level, cache_dir=cache_dir), **changes))
        started.append(runtime)
        runtime.wait_ready()
        return runtime

    yield start
    for runtime in started:
        runtime.close()


@pytest.fixture(scope="module")
def runtime(byte_level: Path, cache_dir: Path) -> Iterator[Runtime]:
    with Runtime(RuntimeConfig(tokenizer=byte_level, cache_dir=cache_dir)) as runtime:
        runtime.wait_ready()
        yield runtime


@pytest.fixture(scope="module")
def raw(byte_level: Path, cache_dir: Path) -> Iterator[RawEngine]:
    engine = RawEngine(byte_level, cache_dir, "--wasm-max-pre-step-time=2000", "--wasm-max-step-time=2000")
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def token_of(byte_level: Path) -> Callable[[bytes], TokenId]:
    """Return the token with these bytes."""
    token_bytes = read_vocabulary((byte_level / "tokenizer.json").read_bytes()).token_bytes
    return lambda text: TokenId(token_bytes.index(text))
