"""A temporary folder for compiled controllers, where the user's cache cannot be written."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aici_base.cache_files import default_cache_dir, default_store_dir
from aici_base.errors import UnavailableError

_ROOM_BYTES: Final = 64 << 20
"""Room for the compiled code of several controllers."""
_HINT: Final = "AICI_STORE_DIR names a folder for controllers, TMPDIR one for temporary files"


def can_grow(folder: Path) -> bool:
    """Return whether `folder`, which may not exist yet, can be written and its disk has room."""
    while not os.path.exists(folder):  # Path.exists raises where a folder cannot be looked into
        folder = folder.parent
    disk = os.statvfs(folder)
    return os.access(folder, os.W_OK | os.X_OK) and disk.f_bavail * disk.f_frsize >= _ROOM_BYTES


class SpareStore:
    """Stands for the user's store, `store`, until `close`. `cache_dir` is a cache folder for the runtime.

    Modules of the user's store are copied when they are needed. `say` hears about a controller that is compiled here.
    """

    def __init__(self, say: Callable[[str], None], store: Path | None = None) -> None:
        self._store = store or default_store_dir()
        self._say = say
        try:
            self.cache_dir = Path(tempfile.mkdtemp(prefix="aici-store-"))
            (self.cache_dir / "modules").mkdir()
            if (tries := default_cache_dir() / "tries").is_dir():
                (self.cache_dir / "tries").symlink_to(tries)
        except OSError as error:
            message = f"cannot write {self._store}, and no temporary folder: {error.strerror or error}"
            raise UnavailableError(message, hint=_HINT) from error

    def provide(self, module_id: str, name: str) -> None:
        """Copy what the user's store has of a module. `name` is for the message."""
        files = list(self._store.glob(f"{module_id}*"))
        try:
            for file in files:
                shutil.copyfile(file, self.cache_dir / "modules" / file.name)
        except OSError as error:
            message = f"cannot write {self.cache_dir}: {error.strerror or error}"
            raise UnavailableError(message, hint=_HINT) from error
        if not any(file.suffix == ".cwasm" for file in files):
            self._say(f"{self._store} cannot be written: {name} is compiled in a temporary folder, each time")

    def close(self) -> None:
        shutil.rmtree(self.cache_dir, ignore_errors=True)
