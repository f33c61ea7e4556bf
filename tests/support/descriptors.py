"""A process without a free file descriptor, as after a flood of connections."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let every call that needs a new descriptor fail with EMFILE."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
