"""A file with the key pair of a stage or a node, so that its address stays the same when it is started again."""

import os
import re
import secrets
from pathlib import Path

from aici_base.errors import UnavailableError, UsageError
from aici_engine.cluster.link_server import KeyPair


def read_or_create_keys(path: Path) -> KeyPair:
    """Read the key pair, or make one and write it, mode 0600.

    Raises UsageError for another file, UnavailableError if the file cannot be read or written.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(b"".join(KeyPair.new()).hex().encode() + b"\n")
            new.rename(path)
        content = path.read_bytes()
    except OSError as error:
        raise UnavailableError(
            f"the key file {path} cannot be used: {error.strerror}", hint="name another file"
        ) from error
    if not re.fullmatch(rb"[0-9a-f]{128}\n?", content):
        raise UsageError(f"{path} is not a key file", hint="remove the file: a new one is made")
    both = bytes.fromhex(content.decode())
    return KeyPair(both[:32], both[32:])
