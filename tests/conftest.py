"""What every test may rely on, however pytest was started."""

import os
import signal
import tempfile

import pytest

# Behind `nohup` or a shell's `&` SIGINT is ignored, and every child would ignore it too: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """A registry of the run's own, which its workers share: nothing is left in the user's."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="aici-test-store-")
        os.environ["AICI_STORE_DIR"] = folder.name
        config.add_cleanup(folder.cleanup)
