"""Images: the memory of a guest that has read its argument, for further guests of a pool with the same argument.

An image is to a pool what a template is to guests with processes of their own: kept from the second request for a
module and an argument on, so that later guests need not read the argument again. An image is a file in memory, in the
form of `guests/snapshot.py`, written by a pool and sealed before anybody reads it. Users share no images.
"""

import contextlib
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aici_runtime.guests.snapshot import MAX_FILE_BYTES

_MAX_KEYS = 1000
"""Keys remembered as seen."""

_F_ADD_SEALS, _CANNOT_GROW, _NOTHING_CHANGES = 1033, 0x4, 0x1 | 0x2 | 0x4 | 0x8


class ImageKey(NamedTuple):
    """`arg_hash`: of the argument."""

    module_id: str
    user: str
    arg_hash: bytes


@dataclass(frozen=True, slots=True)
class Image:
    """`about`: what pools have to know of the guest beside its memory. `memory_bytes`: the size of the file, which may
    have holes: whoever reads them fills them."""

    descriptor: int
    about: object
    memory_bytes: int


_REFUSED = Image(-1, None, 0)
"""In the place of an image that there cannot be."""


class Images:
    """Keep at most `limit` images and `memory_max_bytes` in total; forget the least recently used."""

    def __init__(self, *, limit: int, memory_max_bytes: int) -> None:
        self._limit = limit
        self._memory_max_bytes = memory_max_bytes
        self._lock = threading.Lock()
        self._seen: OrderedDict[ImageKey, Image | None] = OrderedDict()  # least recently used first

    @contextlib.contextmanager
    def find(self, key: ImageKey) -> Iterator[tuple[Image | None, int]]:
        """Yield the image of a key; and, for a key seen before that has none, an empty file for an image, else -1.
        Both descriptors are open until the end of the context. `keep` may take the file over."""
        with self._lock:
            image, makes = self._seen.get(key), key in self._seen
            self._seen[key] = image
            self._seen.move_to_end(key)
            if len(self._seen) > _MAX_KEYS:
                self._forget(next(iter(self._seen)))
            found = None
            if image is not None and image is not _REFUSED:
                found = Image(os.dup(image.descriptor), image.about, image.memory_bytes)
        file = -1
        if image is None and makes and self._limit:
            file = os.memfd_create("aici-image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(file, MAX_FILE_BYTES)
            fcntl.fcntl(file, _F_ADD_SEALS, _CANNOT_GROW)  # no limit of the pool counts the file
        try:
            yield found, file
        finally:
            for descriptor in (file, -1 if found is None else found.descriptor):
                if descriptor >= 0:
                    os.close(descriptor)

    def keep(self, key: ImageKey, file: int, about: object) -> None:
        """Keep an image that a pool has written."""
        try:
            fcntl.fcntl(file, _F_ADD_SEALS, _NOTHING_CHANGES)
        except OSError:  # the pool may be anybody's by now, and still write
            return
        image = Image(os.dup(file), about, os.fstat(file).st_size)
        with self._lock:
            self._forget(key)
            self._seen[key] = image
            while (kept := self._kept()) and (len(kept) > self._limit or sum(kept.values()) > self._memory_max_bytes):
                self._forget(next(iter(kept)))

    def refuse(self, key: ImageKey) -> None:
        """Remember that there is no image of a key: what the guest does with the argument depends on more."""
        with self._lock:
            self._forget(key)
            self._seen[key] = _REFUSED

    def drop_modules(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the images of removed modules. `is_gone` tells whether a module id was removed."""
        with self._lock:
            gone = {module_id for module_id in {key.module_id for key in self._kept()} if is_gone(module_id)}
            for key in [key for key in self._seen if key.module_id in gone]:
                self._forget(key)

    def _kept(self) -> dict[ImageKey, int]:
        """Return the memory of every image, least recently used first."""
        kept = ((key, image) for key, image in self._seen.items() if image is not None and image is not _REFUSED)
        return {key: image.memory_bytes for key, image in kept}

    def _forget(self, key: ImageKey) -> None:
        image = self._seen.pop(key, None)
        if image is not None and image is not _REFUSED:
            os.close(image.descriptor)
