"""What every test may rely on, however pytest was started."""

import signal
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent

# Behind `nohup` or a shell's `&` SIGINT is ignored, and every child would ignore it too: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With workers (`-n`), the tests of a file stay together, and so do all that start servers and engines."""
    for item in items:
        file = item.path.relative_to(_HERE)
        item.add_marker(pytest.mark.xdist_group("e2e" if file.parts[0] == "e2e" else str(file)))
