"""Where controllers are kept: on a server, or in the store of this machine. Both offer the same methods."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from aici_base.errors import NotFoundError
from aici_runtime.channels.envelope import Auth
from aici_runtime.modules.registry import Module
from aici_runtime.modules.tags import is_module_id
from aici_runtime.wire import ModuleInfo, TagInfo

if TYPE_CHECKING:
    from aici_controllers.store import Store

_OWNER = Auth("local", is_admin=True)


class ControllerStore(Protocol):
    """A name is a tag, or the name of a controller that ships. Methods raise NotFoundError if unknown."""

    def upload(self, wasm: bytes, *, share: bool = False) -> ModuleInfo:
        """`share`: show the controller to all keys of a server."""

    def fetch(self, name: str) -> bytes:
        """Return the module with an id or a name."""

    def modules(self) -> list[Module]: ...

    def tags(self) -> list[TagInfo]: ...

    def set_tags(self, module_id: str, tags: Sequence[str], *, share: bool = False) -> list[TagInfo]: ...

    def remove(self, module_id: str, *, force: bool) -> list[str]:
        """Return the tags that were removed with the module."""

    def remove_tag(self, tag: str) -> None: ...


def open_store(server: str | None) -> ControllerStore:
    """Return the store of the server at a URL; of None, the store of this machine."""
    if server is not None:
        from aici.remote.connection import Server
        from aici.remote.controllers import RemoteControllers

        return RemoteControllers(Server(server))
    return LocalStore()


def find(store: ControllerStore, name: str) -> str:
    """Return the id of the module with an id or a name."""
    if is_module_id(name):
        return name
    for module in store.modules():
        if name in module.tags:
            return module.module_id
    raise NotFoundError(f"no controller is called {name}", hint="`aici ctrl list` shows all controllers")


class LocalStore:
    """The store of this machine's user, who may do everything, and who sees all controllers."""

    def __init__(self, store: "Store | None" = None) -> None:
        from aici_controllers.store import Store

        self._store = store or Store()

    def upload(self, wasm: bytes, *, share: bool = False) -> ModuleInfo:  # noqa: ARG002
        self._store.registry.sweep()
        return self._store.upload(wasm, _OWNER)

    def fetch(self, name: str) -> bytes:
        return self._store.read(name)

    def modules(self) -> list[Module]:
        return self._store.modules()

    def tags(self) -> list[TagInfo]:
        return self._store.tags()

    def set_tags(self, module_id: str, tags: Sequence[str], *, share: bool = False) -> list[TagInfo]:
        return self._store.set_tags(module_id, tags, _OWNER, share=share)

    def remove(self, module_id: str, *, force: bool) -> list[str]:
        return self._store.remove(module_id, _OWNER, force=force)

    def remove_tag(self, tag: str) -> None:
        self._store.remove_tag(tag, _OWNER)


def module_id_of(wasm: bytes) -> str:
    return hashlib.sha256(wasm).hexdigest()
