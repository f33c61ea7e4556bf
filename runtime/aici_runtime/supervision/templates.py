"""Templates: guests kept ready to be forked: for a module and argument requested more than once, and for all arguments
of a module that has a snapshot.

A template stops at the first host call that depends on the request, and is forked there (`workers/startup.py`). A
template has no slot, no user and no sequence. The side process starts a template at the second request for a key. The
template lives as long as the side process holds the socket.
"""

import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from aici_runtime import process
from aici_runtime.workers.startup import SPAWN_REQUEST, with_memory

_PATIENCE_S = 1.0
"""Longest wait for a template in the making by another request: a guest may loop for the whole init limit."""

_MAX_KEYS = 1000
"""Keys (module and argument) remembered as seen."""


class TemplateKey(NamedTuple):
    """A module, and a hash of its argument; an empty hash for all arguments."""

    module_id: str
    arg_hash: bytes

    @classmethod
    def of(cls, module_id: str, module_arg: str) -> "TemplateKey":
        """Return the key of a module and an argument."""
        return cls(module_id, sha256(module_arg.encode("utf-8", "surrogatepass")).digest())

    def of_module(self) -> "TemplateKey":
        """Return the key for all arguments of the module."""
        return TemplateKey(self.module_id, b"")

    @property
    def is_module(self) -> bool:
        return not self.arg_hash


class Template:
    """The side process's handle of a template. Owns the socket and the pidfd. `memory_bytes`: the guest's linear
    memory."""

    def __init__(self, control: socket.socket, pidfd: int, memory_bytes: int = 0) -> None:
        self._control = control
        self._pidfd = pidfd
        self._lock = threading.Lock()
        self.memory_bytes = memory_bytes

    def spawn(self, slot: int, generation: int, setup: socket.socket, memory: int = -1) -> None:
        """Ask for a fork, as `SpawnerSockets.spawn` does. Raises OSError when the template is gone."""
        with self._lock:
            socket.send_fds(self._control, [SPAWN_REQUEST.pack(slot, generation)], with_memory(setup, memory))

    def end(self) -> None:
        """End the template. Idempotent.

        A fork requested earlier either exists already or never will; in the second case the `setup` socket reads EOF.
        """
        with self._lock:
            if self._control.fileno() >= 0:
                self._control.close()
                process.kill(self._pidfd)
                os.close(self._pidfd)


@dataclass(slots=True, eq=False)
class _Entry:
    """A key seen before. The holder of the lock `making` may make the template, unless `is_closed`."""

    making: threading.Lock = field(default_factory=threading.Lock)
    template: Template | None = None
    is_closed: bool = False


class Templates:
    """Keep at most `limit` templates and `memory_max_bytes` in total; evict the least recently used."""

    def __init__(self, *, limit: int, memory_max_bytes: int) -> None:
        self._limit = limit
        self._memory_max_bytes = memory_max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[TemplateKey, _Entry] = OrderedDict()  # least recently used first

    def find(self, key: TemplateKey, make: Callable[[], Template | None]) -> Template | None:
        """Return the template of a key seen before, made now if necessary. None means: start the guest without a
        template.

        Concurrent callers wait for the first of them to make the template, which is faster than as many cold starts.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(is_closed=self._limit == 0)
                if len(self._entries) > _MAX_KEYS:
                    self._forget(next(iter(self._entries)))
                return None
            self._entries.move_to_end(key)
        if not entry.making.acquire(timeout=_PATIENCE_S):
            return None
        try:
            if entry.template is None and not entry.is_closed:
                entry.template = make()
                self._keep_or_forget(key, entry)
            return entry.template
        finally:
            entry.making.release()

    def refuse(self, key: TemplateKey) -> None:
        """Remember that the key must have no template."""
        with self._lock:
            if key in self._entries:
                self._forget(key)
            self._entries[key] = _Entry(is_closed=True)

    def forget(self, key: TemplateKey) -> None:
        """Forget a key without a template: no guest of the key came up."""
        with self._lock:
            if key in self._entries and self._entries[key].template is None:
                self._forget(key)

    def drop(self, key: TemplateKey, template: Template) -> None:
        """End a broken template. The next request for the key makes a new template."""
        with self._lock:
            if key in self._entries and self._entries[key].template is template:
                self._entries[key] = _Entry()
        template.end()

    def drop_modules(self, is_gone: Callable[[str], bool]) -> None:
        """End the templates of removed modules. `is_gone` tells whether a module id was removed."""
        with self._lock:
            gone = {module_id for module_id in {key.module_id for key in self._kept()} if is_gone(module_id)}
            for key in [key for key in self._entries if key.module_id in gone]:
                self._forget(key)

    def _keep_or_forget(self, key: TemplateKey, entry: _Entry) -> None:
        """Make room for a new template, or forget a key without a possible template.

        The key may have been forgotten in the meantime.
        """
        with self._lock:
            is_known = self._entries.get(key) is entry
            if entry.template is None or not is_known:
                entry.is_closed = True
                if is_known:
                    self._forget(key)
                elif entry.template is not None:
                    entry.template.end()
                return
            if entry.template.memory_bytes > self._memory_max_bytes:
                entry.template.end()
                entry.template, entry.is_closed = None, True
            while (kept := self._kept()) and (len(kept) > self._limit or sum(kept.values()) > self._memory_max_bytes):
                self._forget(next(iter(kept)))

    def _kept(self) -> dict[TemplateKey, int]:
        """Return the memory of every template, least recently used first."""
        return {key: entry.template.memory_bytes for key, entry in self._entries.items() if entry.template}

    def _forget(self, key: TemplateKey) -> None:
        template = self._entries.pop(key).template
        if template is not None:
            template.end()
