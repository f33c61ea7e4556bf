"""Modules that an engine uploads as a file instead of a message."""

import os
import stat
from typing import Final

from aici_base.errors import UsageError

MAX_MODULE_BYTES: Final = 128 << 20


def read_upload(path: str) -> bytes:
    """Return the content of a file. Raise UsageError for a file that cannot be read, is no regular file, or is larger
    than 128 MiB."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is no regular file")
            content = file.read(MAX_MODULE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"the module {path} cannot be read: {error}") from error
    if len(content) > MAX_MODULE_BYTES:
        raise UsageError(f"the module {path} is larger than {MAX_MODULE_BYTES >> 20} MiB")
    return content
