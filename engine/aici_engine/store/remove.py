"""Removes models of the cache."""

import shutil
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from aici_base.errors import InUseError, NotFoundError, UnavailableError
from aici_engine.store.paths import exclusive, models_root, opened_folder, size_bytes
from aici_engine.store.resolve import list_models


def remove_model(name: str, *, files_beside: Callable[[Path], list[Path]] = lambda _: []) -> int:
    """Remove a model of the cache. Return the freed bytes.

    `files_beside`: further files that were made of the model in a folder, such as packed weights.

    Raises NotFoundError for a name that is not in the cache, InUseError while an engine or a server uses the model.
    """
    folder = find_cached(name)
    with exclusive(folder.name), opened_folder(folder) as descriptor:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"the model {name} is in use", hint="end the programs that use the model: a server, or `aici run`"
            ) from None
        beside = files_beside(folder)
        freed = size_bytes(folder) + sum(file.stat().st_size for file in beside)
        for file in beside:
            file.unlink(missing_ok=True)
        # Under the hidden name of an unfinished folder, a removal that is killed leaves no half of a model.
        gone = folder.with_name(f".{folder.name}.tmp")
        try:
            shutil.rmtree(gone, ignore_errors=True)
            folder.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            raise UnavailableError(f"{folder} cannot be removed: {error.strerror}") from error
    return freed


def find_cached(name: str) -> Path:
    """Return the folder of a model in the cache. Raises NotFoundError."""
    found = {folder.name: folder for folder in list_models()}
    if name not in found:
        raise NotFoundError(
            f"the cache {models_root()} has no model {name}",
            hint="`aici models list` shows the models; `hf cache` removes what the hub's client keeps",
        )
    return found[name]
