"""The controllers that a server sends to a host, and the requests that wait for them."""

import asyncio
import hashlib
import logging
from collections.abc import Callable

from aici_base.errors import AiciError
from aici_controllers.store import SHIPPED_BY, Store
from aici_engine.server.link import wire
from aici_runtime.channels.envelope import Auth

_log = logging.getLogger(__name__)


class ModuleArrivals:
    """Passes a server's messages on to `forward`. A request for a controller waits until the controller is compiled
    and stored; other requests overtake that request. Everything runs on one event loop."""

    def __init__(self, store: Store, forward: Callable[[wire.ToEngine], None]) -> None:
        self._store = store
        self._forward = forward
        self._waiting: dict[str, list[wire.ToEngine]] = {}
        self._held: dict[int, str] = {}

    def expect(self, module_id: str) -> None:
        """Hold requests for a module from now on; `keep` ends that."""
        self._waiting.setdefault(module_id, [])

    async def keep(self, module_id: str, binary: bytes) -> None:
        """Compile and store a module. A module that cannot be kept fails the requests that name the module."""
        try:
            if hashlib.sha256(binary).hexdigest() == module_id:
                await asyncio.to_thread(self._store.upload, binary, Auth(SHIPPED_BY, is_admin=True))
            else:
                _log.error("the server sent other bytes than those of the module %s", module_id)
        except (AiciError, OSError) as error:
            _log.error("the server's module %s cannot be kept: %s", module_id, error)
        for message in self._waiting.pop(module_id, ()):
            if isinstance(message, wire.Submit):
                self._held.pop(message.stream, None)
            self._forward(message)

    def take(self, message: wire.ToEngine) -> None:
        """Pass a message on, now or later."""
        if isinstance(message, wire.Submit) and message.controller in self._waiting:
            self._held[message.stream] = message.controller
            self._waiting[message.controller].append(message)
        elif isinstance(message, wire.Abort) and (module_id := self._held.get(message.stream)) is not None:
            self._waiting[module_id].append(message)
        else:
            self._forward(message)

    def clear(self) -> None:
        """Forget the requests that wait: their server is gone."""
        self._held.clear()
        for messages in self._waiting.values():
            messages.clear()
