"""A file with the key pair of a stage or a node, so that the address survives a restart."""

from pathlib import Path

from aici_engine.cluster.link_server import KeyPair
from aici_engine.cluster.secret_file import SecretFile

_KEY_BYTES = 32
_RENEWAL = "remove the file, and a new one is made"


def read_or_create_keys(path: Path) -> KeyPair:
    """Read the key pair, or write a new pair, mode 0600.

    Raises UsageError for another file or a file that others may read, UnavailableError if the file cannot be written.
    """
    file = SecretFile(path, "key file", 2 * _KEY_BYTES, _RENEWAL, _RENEWAL)
    both, _ = file.read_or_create(lambda: b"".join(KeyPair.new()))
    return KeyPair(both[:_KEY_BYTES], both[_KEY_BYTES:])
