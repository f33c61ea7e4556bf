"""Fixtures: one runtime for each protocol version and synchronization. Tests that break a runtime start their own.

`--aicirt PATH` tests another program, `--wire v1,v2` names the protocol versions of the program, and `--rtarg FLAG`
adds a flag to its command line. `--fuzz N` runs N random examples in every test of test_fuzz_*.py.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.support import tokenizer
from tests.wire.support.engine import PATIENT, Binary, Engine, Sync, Version
from tests.wire.support.fuzzing import Arena, Fuzz
from tests.wire.support.guests import Guests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--aicirt", metavar="PATH", help="the runtime to test (default: this project's)")
    parser.addoption("--rtarg", action="append", default=[], metavar="FLAG", help="for each runtime that serves")
    parser.addoption("--fuzz", type=int, metavar="N", help="examples of each fuzz test, at random (default: a few)")
    parser.addoption("--wire", default="v1,v2", help="versions of the protocol that it speaks (default: v1,v2)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for every version in VERSIONS of its file; without VERSIONS, for both versions."""
    if "version" in metafunc.fixturenames:
        versions = getattr(metafunc.module, "VERSIONS", ("v1", "v2"))
        metafunc.parametrize("version", [v for v in _spoken(metafunc.config) if v in versions], scope="session")


def _spoken(config: pytest.Config) -> tuple[Version, ...]:
    chosen = str(config.getoption("wire", "v1,v2")).split(",")
    every: tuple[Version, ...] = ("v1", "v2")
    return tuple(version for version in every if version in chosen)


@pytest.fixture(scope="session")
def aicirt(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Binary:
    path = pytestconfig.getoption("aicirt", None)
    command = (str(Path(path).resolve()),) if path else (sys.executable, "-m", "aici_runtime.main")
    folder = tmp_path_factory.mktemp("wire")
    tokenizer_json = tokenizer.byte_level(folder / "tokenizer") / "tokenizer.json"
    return Binary(command, folder, tokenizer_json, _spoken(pytestconfig), tuple(pytestconfig.getoption("rtarg", [])))


@pytest.fixture(scope="session")
def engine(aicirt: Binary, version: Version) -> Iterator[Engine]:
    """A runtime with semaphores, as most engines use."""
    with Engine(aicirt, version, extra=PATIENT[version]) as engine:
        yield engine


@pytest.fixture(scope="session")
def futex(aicirt: Binary, version: Version) -> Iterator[Engine]:
    with Engine(aicirt, version, "futex", extra=PATIENT[version]) as engine:
        yield engine


@pytest.fixture(scope="session", params=["engine", "futex"])
def either(request: pytest.FixtureRequest, version: Version) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
def guests(engine: Engine) -> Iterator[Guests]:
    """Check after every test that the runtime still answers."""
    yield Guests(engine)
    engine.is_well()


@pytest.fixture(scope="session")
def fuzz(pytestconfig: pytest.Config) -> Iterator[Fuzz]:
    fuzz = Fuzz(pytestconfig.getoption("fuzz", None))
    yield fuzz
    if fuzz.examples is not None:
        print(f"\nfuzzed: {dict(fuzz.done)}")


@pytest.fixture(scope="module")
def sync() -> Sync:
    return "sem"


@pytest.fixture(scope="module")
def arena(aicirt: Binary, version: Version, sync: Sync, fuzz: Fuzz) -> Iterator[Arena]:
    with Engine(aicirt, version, sync, extra=(*PATIENT[version], *aicirt.few_templates())) as engine:
        yield Arena(engine, fuzz)
