"""The secret that the machines of one cluster share, and what is derived from it.

Whoever has the token may drive stages, and be a stage: read the text of requests, and write the answers.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Self

import zmq
from zmq.utils import z85

from aici_base.errors import NotFoundError, UnavailableError, UsageError

_TEXT = re.compile(rb"[0-9a-f]{64}\n?")


class ClusterToken:
    """256 secret bits. Printing the object shows the cluster's public name, never the secret.

    >>> token = ClusterToken.new()
    >>> token.cluster == ClusterToken(token.secret).cluster
    True
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != 32:
            raise ValueError("a cluster token has 32 bytes")
        self.secret = secret

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_bytes(32))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a token file. Raises NotFoundError without a file, and UsageError if others may read the file."""
        try:
            with path.open("rb") as file:
                mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(100)
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no cluster token at {path}",
                hint="copy the file from a machine of the cluster, by a safe way such as scp",
            ) from None
        except OSError as error:
            raise UsageError(f"the cluster token at {path} cannot be read: {error.strerror}") from error
        if mode & 0o077:
            raise UsageError(
                f"others may read the cluster token at {path} (mode {mode:04o})",
                hint=f"chmod 600 {path}; if others may have read the token, make a new one",
            )
        if not _TEXT.fullmatch(text):
            raise UsageError(
                f"{path} is not a cluster token", hint="the file has 64 hexadecimal digits: copy the file again"
            )
        return cls(bytes.fromhex(text.decode()))

    @classmethod
    def read_or_create(cls, path: Path) -> tuple[Self, bool]:
        """Read the token file, or make one with a new token. Return the token, and whether the file is new.

        Two processes that make the file at the same time end with the same token. Raises as `read`, and
        UnavailableError if the file cannot be written.
        """
        with contextlib.suppress(NotFoundError):
            return cls.read(path), False
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
            try:
                with open(fd, "w") as file:
                    file.write(secrets.token_hex(32) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                os.link(name, path)  # fails if the file exists by now
                created = True
            except FileExistsError:
                created = False
            finally:
                os.unlink(name)
        except OSError as error:
            raise UnavailableError(
                f"the cluster token cannot be written to {path}: {error.strerror}", hint="name a file with --token-file"
            ) from error
        return cls.read(path), created

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
