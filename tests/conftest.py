"""Settings for every test, however pytest was started."""

import gc
import os
import signal
import tempfile
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

# A shell's `&` ignores SIGINT for its jobs, `nohup` ignores SIGHUP, and children inherit the setting: neither Ctrl-C
# nor the end of a terminal could be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_MOST_DESCRIPTORS = 100

# Torch's threads spin while idle, and take the cores from the tests of other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# On a busy machine an example may wait longer than the deadline of hypothesis.
settings.register_profile("aici", deadline=None)
settings.load_profile("aici")


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a temporary registry and temporary stores of responses and batches, shared by the pytest workers:
    nothing is left in the user's own."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="aici-test-store-")
        os.environ["AICI_STORE_DIR"] = f"{folder.name}/modules"
        os.environ["AICI_RESPONSES_FILE"] = f"{folder.name}/responses.db"
        os.environ["AICI_BATCHES_FILE"] = f"{folder.name}/batches.db"
        config.add_cleanup(folder.cleanup)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python look for garbage among the objects of the tests only. The collected tests and the imported libraries
    are a million objects that stay; to look through them again and again took a tenth of the time of some tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers of `-n auto`: one more than cores, because many tests wait for other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="module", autouse=True)
def no_descriptors_left() -> Iterator[None]:
    """A file of tests leaves few descriptors open: those of the fixtures of a session."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) < before + _MOST_DESCRIPTORS


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """After all tests, /dev/shm holds no shared object of this process. Every other session fixture ends before."""
    yield
    mark = f"-{os.getpid()}-"
    assert [name for name in os.listdir("/dev/shm") if "aici" in name and mark in name] == []
