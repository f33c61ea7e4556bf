"""A file with a secret in hexadecimal digits, which its owner alone may read."""

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aici_base.errors import NotFoundError, UnavailableError, UsageError


@dataclass(frozen=True, slots=True)
class SecretFile:
    """`what` names the secret in messages, `num_bytes` is its length, and `cure` is the hint for a damaged file.
    `renewal`: how a new secret is made."""

    path: Path
    what: str
    num_bytes: int
    cure: str
    renewal: str

    def read(self) -> bytes:
        """Return the secret. Raises NotFoundError without a file, and UsageError if others may read the file."""
        path, what, num_digits = self.path, self.what, 2 * self.num_bytes
        try:
            with path.open("rb") as file:
                mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(num_digits + 2)
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no {what} at {path}",
                hint="copy the file from a machine of the cluster, by a safe way such as scp",
            ) from None
        except OSError as error:
            raise UsageError(f"the {what} at {path} cannot be read: {error.strerror}") from error
        if mode & 0o077:
            raise UsageError(
                f"others may read the {what} at {path} (mode {mode:04o})",
                hint=f"chmod 600 {path}; if others may have read the {what}, {self.renewal}",
            )
        if not re.fullmatch(rb"[0-9a-f]{%d}\n?" % num_digits, text):
            raise UsageError(
                f"{path} is not a {what}", hint=f"the file has {num_digits} hexadecimal digits: {self.cure}"
            )
        return bytes.fromhex(text.decode())

    def read_or_create(self, make: Callable[[], bytes]) -> tuple[bytes, bool]:
        """Return the secret, and whether the file is new. `make` returns a new secret if there is no file.

        Two processes that make the file at the same time end with the same secret. Raises as `read`, and
        UnavailableError if the file cannot be written.
        """
        with contextlib.suppress(NotFoundError):
            return self.read(), False
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
            try:
                with open(fd, "w") as file:
                    file.write(make().hex() + "\n")
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
                f"the {self.what} cannot be written to {path}: {error.strerror}",
                hint=f"name another file, or let this user write to {path.parent}",
            ) from error
        return self.read(), created
