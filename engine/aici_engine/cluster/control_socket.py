"""Commands to a node daemon from the same machine, over a Unix socket that only the daemon's user can open.

A connection carries one command, a line. The answer is one line of JSON or several: the last line, then the end.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from aici_base.errors import AiciError, InUseError, UnreachableError
from aici_engine.failure import Failure

_MAX_COMMAND: Final = 1000


def runtime_folder() -> Path:
    """Return the folder of the sockets: `$XDG_RUNTIME_DIR/aici`, else a folder of this user in /tmp."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "aici" if base else Path(f"/tmp/aici-{os.getuid()}")


def socket_path(name: str) -> Path:
    """Return the socket of the node `name`."""
    return runtime_folder() / f"node-{name}.sock"


class ControlServer:
    """Listens at `path`. Call `advance` when one of `fds` is readable, and after each change.

    `obey` takes a command, and returns a line and whether the line is the last. A command without a last line is obeyed
    again at each `advance`; an unchanged line is not sent. Raises InUseError if another process listens at `path`.
    """

    def __init__(self, path: Path, obey: Callable[[str], tuple[str, bool]]) -> None:
        self._path = path
        self._obey = obey
        self._users: dict[socket.socket, _User] = {}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = path.parent.lstat()
        if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.getuid() or folder.st_mode & 0o022:
            raise InUseError(
                f"{path.parent} is not a folder that this user alone can write to",
                hint=f"remove {path.parent}, or set XDG_RUNTIME_DIR",
            )
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            raise InUseError(
                f"a node daemon of the name {path.stem.removeprefix('node-')} runs on this machine",
                hint="end it, or choose another --name",
            )
        path.unlink(missing_ok=True)  # of a daemon that was killed
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        self._listener.setblocking(False)

    @property
    def fds(self) -> list[int]:
        return [self._listener.fileno(), *(user.fileno() for user in self._users)]

    def advance(self) -> None:
        # Linux takes a free descriptor before it looks for a user: without one, this fails even if nobody is there.
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._users[connection] = _User()
        for connection, user in list(self._users.items()):
            if self._serve(connection, user):
                connection.close()
                del self._users[connection]

    def _serve(self, connection: socket.socket, user: "_User") -> bool:
        """Return whether the connection has ended."""
        try:
            data = connection.recv(_MAX_COMMAND)
        except BlockingIOError:
            pass
        except OSError:
            return True
        else:
            if not data:
                return True
            user.command += data
        if not user.command.endswith(b"\n"):
            return len(user.command) >= _MAX_COMMAND
        try:
            line, is_last = self._obey(user.command.decode(errors="replace").strip())
        except AiciError as error:
            line, is_last = msgspec.json.encode({"failure": msgspec.structs.asdict(Failure.of(error))}).decode(), True
        if line != user.answered:
            user.answered = line
            with contextlib.suppress(OSError):
                connection.sendall(line.encode() + b"\n")
        return is_last

    def close(self) -> None:
        for connection in self._users:
            connection.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _User:
    command = b""
    answered = ""


def ask(path: Path, command: str) -> Iterator[dict[str, Any]]:
    """Send a command to the daemon at `path`, and yield its answers as they come.

    Raises UnreachableError without a daemon, and the daemon's own errors.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            raise UnreachableError(
                f"no node daemon listens at {path}",
                hint="start one: aici node join HOST:PORT; the daemon must run as the same user",
            ) from error
        with contextlib.suppress(BrokenPipeError):  # the daemon ends just now
            connection.sendall(command.encode() + b"\n")
        with connection.makefile() as lines:
            for line in lines:
                answer = msgspec.json.decode(line, type=dict[str, Any])
                if failure := answer.get("failure"):
                    raise Failure(**failure).error()
                yield answer
