"""The secret that the machines of a cluster share, and the values derived from it.

Whoever has the token may drive stages, and be a stage: read the text of requests, and write the answers.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Self

import zmq
from zmq.utils import z85

from aici_engine.cluster.secret_file import SecretFile

_NUM_BYTES = 32


class ClusterToken:
    """256 secret bits. Printing the object shows the cluster's public name, never the secret.

    >>> token = ClusterToken.new()
    >>> token.cluster == ClusterToken(token.secret).cluster
    True
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _NUM_BYTES:
            raise ValueError(f"a cluster token has {_NUM_BYTES} bytes")
        self.secret = secret

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_bytes(_NUM_BYTES))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a token file. Raises NotFoundError without a file, and UsageError if others may read the file."""
        return cls(_token_file(path).read())

    @classmethod
    def read_or_create(cls, path: Path) -> tuple[Self, bool]:
        """Read the token file, or make one with a new token. Return the token, and whether the file is new.

        Two processes that make the file at the same time end with the same token. Raises as `read`, and
        UnavailableError if the file cannot be written.
        """
        secret, is_new = _token_file(path).read_or_create(lambda: secrets.token_bytes(_NUM_BYTES))
        return cls(secret), is_new

    @property
    def cluster(self) -> str:
        """The public name of the cluster: 16 hexadecimal digits that tell tokens apart and say nothing about them."""
        return self._derive(b"name")[:8].hex()

    def client_keys(self) -> tuple[bytes, bytes]:
        """Return the public and the secret CURVE key (Z85) of everybody who opens connections in this cluster."""
        secret = z85.encode(self._derive(b"client key"))
        return zmq.curve_public(secret), secret

    def mac(self, data: bytes) -> bytes:
        """Return the HMAC-SHA256 of `data` under a key for greetings."""
        return hmac.digest(self._derive(b"greeting"), data, hashlib.sha256)

    def ray_token(self) -> str:
        """Return the token of the cluster's Ray. Whoever finds it in Ray's processes does not have the cluster's."""
        return self._derive(b"ray").hex()

    def _derive(self, label: bytes) -> bytes:
        return hmac.digest(self.secret, b"aici cluster: " + label, hashlib.sha256)

    def __repr__(self) -> str:
        return f"<ClusterToken of {self.cluster}>"


def default_token_path() -> Path:
    """Return `$XDG_CONFIG_HOME/aici/cluster-token`, else `~/.config/aici/cluster-token`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "aici" / "cluster-token"


def _token_file(path: Path) -> SecretFile:
    renewal = "remove it, and let aici cluster token make one for all machines"
    return SecretFile(path, "cluster token", _NUM_BYTES, "copy the file again", renewal)
