"""What every test may rely on, however pytest was started."""

import os
import signal
import tempfile

import pytest
from hypothesis import settings

# Behind a shell's `&` SIGINT is ignored, behind `nohup` SIGHUP is, and every child would ignore them too: neither
# Ctrl-C nor the end of a terminal could be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Torch's threads spin while they wait, and take the cores from the tests of other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Beside busy neighbours an example may wait for its turn longer than hypothesis allows it to take.
settings.register_profile("aici", deadline=None)
settings.load_profile("aici")


def pytest_configure(config: pytest.Config) -> None:
    """A registry of the run's own, which its workers share: nothing is left in the user's."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="aici-test-store-")
        os.environ["AICI_STORE_DIR"] = folder.name
        config.add_cleanup(folder.cleanup)
