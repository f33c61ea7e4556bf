"""Which guests are kept as templates: those of a module and an argument that are asked for again.

A template stands where its guest first needs to know its request, and is forked there (see `startup.py`). It has no
slot, no user and no sequence. The side process makes it when the key is asked for the second time; it lives as long as
that process holds the socket to it.
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
from aici_runtime.workers.startup import SPAWN_REQUEST

_PATIENCE_S = 1.0
"""With a template that another request makes. A guest may loop for as long as it may take to start."""

_MAX_PAIRS = 1000
"""Of module and argument that are remembered as seen."""


class TemplateKey(NamedTuple):
    module_id: str
    arg_hash: bytes

    @classmethod
    def of(cls, module_id: str, module_arg: str) -> "TemplateKey":
        return cls(module_id, sha256(module_arg.encode("utf-8", "surrogatepass")).digest())


class Template:
    """The side process's end. Owns the socket and the pidfd. `memory_bytes`: linear memory of the guest that stands."""

    def __init__(self, control: socket.socket, pidfd: int, memory_bytes: int = 0) -> None:
        self._control = control
        self._pidfd = pidfd
        self._lock = threading.Lock()
        self.memory_bytes = memory_bytes

    def spawn(self, slot: int, generation: int, setup: socket.socket) -> None:
        """As the spawner does it. Raises OSError when the template is gone."""
        with self._lock:
            socket.send_fds(self._control, [SPAWN_REQUEST.pack(slot, generation)], [setup.fileno()])

    def end(self) -> None:
        """Idempotent. For what it was asked before there is a fork already, or there will never be one: then `setup`
        is at its end."""
        with self._lock:
            if self._control.fileno() >= 0:
                self._control.close()
                process.kill(self._pidfd)
                os.close(self._pidfd)


@dataclass(slots=True, eq=False)
class _Entry:
    """A key that was seen. Whoever has the turn may make its template; `over`: nobody may any more."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    template: Template | None = None
    over: bool = False


class Templates:
    """At most `limit`, with at most `memory_max_bytes` together; those go first that were not used for longest."""

    def __init__(self, *, limit: int, memory_max_bytes: int) -> None:
        self._limit = limit
        self._memory_max_bytes = memory_max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[TemplateKey, _Entry] = OrderedDict()  # by last use

    def find(self, key: TemplateKey, make: Callable[[], Template | None]) -> Template | None:
        """The template for a key that is asked for again, made now if there is none. None: start without one.

        Many who ask at once wait for one of them to make it: that is sooner than as many guests that start at once.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(over=self._limit == 0)
                if len(self._entries) > _MAX_PAIRS:
                    self._forget(next(iter(self._entries)))
                return None
            self._entries.move_to_end(key)
        if not entry.turn.acquire(timeout=_PATIENCE_S):
            return None
        try:
            if entry.template is None and not entry.over:
                entry.template = make()
                self._settle(key, entry)
            return entry.template
        finally:
            entry.turn.release()

    def refuse(self, key: TemplateKey) -> None:
        """No template can be made of it."""
        with self._lock:
            if key in self._entries:
                self._forget(key)
            self._entries[key] = _Entry(over=True)

    def forget(self, key: TemplateKey) -> None:
        """No guest of it has come up: it counts as never seen."""
        with self._lock:
            if key in self._entries and self._entries[key].template is None:
                self._forget(key)

    def drop(self, key: TemplateKey, template: Template) -> None:
        """It has failed: another one is made when the key is asked for again."""
        with self._lock:
            if key in self._entries and self._entries[key].template is template:
                self._entries[key] = _Entry()
        template.end()

    def drop_modules(self, is_gone: Callable[[str], bool]) -> None:
        with self._lock:
            gone = {module_id for module_id in {key.module_id for key in self._kept()} if is_gone(module_id)}
            for key in [key for key in self._entries if key.module_id in gone]:
                self._forget(key)

    def _settle(self, key: TemplateKey, entry: _Entry) -> None:
        """Make room for a new template, or forget the key of which none could be made. It may have been forgotten
        meanwhile."""
        with self._lock:
            is_known = self._entries.get(key) is entry
            if entry.template is None or not is_known:
                entry.over = True
                if is_known:
                    self._forget(key)
                elif entry.template is not None:
                    entry.template.end()
                return
            if entry.template.memory_bytes > self._memory_max_bytes:
                entry.template.end()
                entry.template, entry.over = None, True
            while (kept := self._kept()) and (len(kept) > self._limit or sum(kept.values()) > self._memory_max_bytes):
                self._forget(next(iter(kept)))

    def _kept(self) -> dict[TemplateKey, int]:
        """Memory of each template, in the order of last use."""
        return {key: entry.template.memory_bytes for key, entry in self._entries.items() if entry.template}

    def _forget(self, key: TemplateKey) -> None:
        template = self._entries.pop(key).template
        if template is not None:
            template.end()
